"""`prefix-router picker`: Envoy asks it where a request goes. Needs the extra `envoy`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from router.layers import SettingsError
from router.reload import Loaded, SettingsSource

Read = Callable[..., Loaded]  # the file, flags; `again`: not at the start


def add(commands: Any, read: Read) -> None:
    picker = commands.add_parser(
        "picker", formatter_class=argparse.RawDescriptionHelpFormatter,
        help="tell an Envoy proxy where its requests go",
        description="Serve Envoy's ext_proc protocol: Envoy carries the bytes, the router decides where they go.\n"
        "Settings and policies are those of `serve`. Needs pip install 'prefix-router[envoy]'.",
        epilog="example: prefix-router picker --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000 --port 9002",
    )  # fmt: skip
    picker.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML")
    picker.add_argument("--worker", action="append", metavar="URL", help="a worker; may repeat")
    picker.add_argument("--host", help="the address to listen on for gRPC (127.0.0.1)")
    picker.add_argument("--port", type=int, help="the port to listen on for gRPC (9002; 0: any free one)")
    picker.add_argument("--http-port", type=int, help="health, metrics and /admin over HTTP (none; 0: any free one)")
    picker.add_argument("--policy", metavar="NAME", help="the policy (prefix_cost)")
    picker.set_defaults(run=lambda options: _run(options, read))


def _run(options: argparse.Namespace, read: Read) -> int:
    missing = [name for name in ("hpack", "envoy.service.ext_proc") if not _is_there(name)]
    if missing:
        raise SettingsError(["picker: needs libraries that are not installed: pip install 'prefix-router[envoy]'"])
    given = {"host": options.host, "port": options.port, "http_port": options.http_port}
    flags: dict[str, Any] = {"picker": {name: value for name, value in given.items() if value is not None}}
    if options.worker is not None:
        flags["workers"] = options.worker
    if options.policy is not None:
        flags["routing"] = {"policy": options.policy}
    source = SettingsSource(lambda: read(options.config, flags, again=True), options.config)
    loaded = read(options.config, flags)
    from router.picking import serve_picks

    return serve_picks(loaded, source)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
