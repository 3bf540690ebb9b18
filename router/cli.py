"""The door: commands, files, the environment. Exit 0 when well, 1 when something failed, 2 when the call was wrong."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from router import __version__, asks, picker_command, replay_command, top
from router.discovery.faults import discovery_faults
from router.layers import SettingsError, effective, from_environment, load, yaml_trouble
from router.plugins import dialect_names, missing_extras, policy_faults, policy_names
from router.proxy.worker_tls import NOTHING, tls_faults
from router.sections.listen import Tls
from router.settings import Settings
from router.types import WorkerTls

URL = "http://127.0.0.1:8080"
AS_WRITTEN = argparse.RawDescriptionHelpFormatter  # an example that is wrapped cannot be copied
FORM = "" if asks.__file__.endswith(".py") else " (compiled)"  # how the path of a request runs


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        result: int = options.run(options)
        sys.stdout.flush()
    except SettingsError as wrong:
        for fault in wrong.faults:
            sys.stderr.write(f"prefix-router: {fault}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # nobody reads our output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prefix-router",
        formatter_class=AS_WRITTEN,
        description="An HTTP gateway that sends LLM requests with the same beginning to the same warm KV cache.",
        epilog="example: prefix-router serve --worker http://gpu-1:8000 --worker http://gpu-2:8000",
    )
    parser.add_argument("--version", action="version", version=f"prefix-router {__version__}{FORM}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_demo(commands)
    _add_check(commands)
    _add_explain(commands)
    replay_command.add(commands)
    top.add(commands)
    picker_command.add(commands, settings_from)
    return parser


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve", formatter_class=AS_WRITTEN, help="run the gateway", description="Run the gateway.",
        epilog="example: prefix-router serve --worker http://gpu-1:8000 --worker http://gpu-2:8000 --port 8080",
    )  # fmt: skip
    _add_config(serve)
    serve.add_argument("--worker", action="append", metavar="URL", help="a worker; may repeat")
    serve.add_argument("--host", help="the address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, help="the port to listen on (8080; 0: any free one)")
    serve.add_argument("--policy", metavar="NAME", help=f"one of {', '.join(policy_names())} (prefix_cost)")
    serve.add_argument("--processes", type=int, metavar="N", help="processes to run (1; 0: one a core)")
    serve.set_defaults(run=_serve)


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo", formatter_class=AS_WRITTEN,
        help="see the gain: mock workers, a gateway, the same load with random and with the default policy",
        description="Start mock workers and a gateway, send the same shared-prefix chat load first with random,\nthen, "
        "with fresh workers and empty caches, with the default policy; print both and keep serving.",
        epilog="example: prefix-router demo --seconds 30 --json",
    )  # fmt: skip
    demo.add_argument("--workers", type=int, default=3, metavar="N", help="mock workers (3)")
    demo.add_argument("--port", type=int, default=8080, help="the gateway's port (8080)")
    demo.add_argument("--seconds", type=float, metavar="N", help="end after N seconds in all; without it, serve on")
    demo.add_argument("--json", action="store_true", help="print the table as one JSON object")
    demo.set_defaults(run=_demo)


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check", formatter_class=AS_WRITTEN, help="read the settings and say what they come to",
        description="Print every effective setting and where it came from, secrets masked. Exit 2 on any fault.",
        epilog="example: prefix-router check --config prefix-router.yaml",
    )  # fmt: skip
    _add_config(check)
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain", formatter_class=AS_WRITTEN, help="ask a running gateway where a request would go, and why",
        description="Ask a running gateway where this request body would go now, and why, without sending it.",
        epilog="""example: echo '{"messages": [{"role": "user", "content": "hi"}]}' | prefix-router explain -""",
    )  # fmt: skip
    explain.add_argument("body", nargs="?", default="-", metavar="BODY.json", help="a request body (-: standard input)")
    explain.add_argument("--url", default=URL, help=f"the gateway's address ({URL})")
    explain.add_argument("--path", help="the API path it is meant for (guessed from its fields)")
    explain.add_argument("--token", help="the admin token (or PREFIX_ROUTER_ADMIN_TOKEN)")
    explain.add_argument("--json", action="store_true", help="print the answer as it came")
    explain.set_defaults(run=_explain)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML")


def settings_from(
    config: Path | None, flags: Mapping[str, Any], *, again: bool = False
) -> tuple[Settings, dict[str, str]]:
    """Merge the file, the environment and the command line. `again`: not at the start. Raises SettingsError."""
    environment = from_environment(os.environ, yaml.safe_load)
    layers = [("file", _read_file(config, again=again)), ("environment", environment), ("command line", flags)]
    return load(layers, os.environ, [_check_names])


def _read_file(path: Path | None, *, again: bool = False) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        read = yaml.safe_load(path.read_text("utf-8"))
    except OSError as wrong:
        raise SettingsError([f"--config {path}: {wrong.strerror}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise SettingsError([f"--config {path}: not YAML{yaml_trouble(wrong)}"]) from None
    if read is None and again:
        raise SettingsError([f"--config {path}: it is empty, and may be half written"])
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise SettingsError([f"--config {path}: expected a mapping of settings, found {type(read).__name__}"])
    return read


def _check_names(settings: Settings) -> list[str]:
    faults = policy_faults(settings.routing.policy, settings.routing.options)
    if settings.routing.shadow is not None:
        faults += [each.replace("policy", "shadow", 1) for each in policy_faults(settings.routing.shadow, {})]
    faults += missing_extras(settings)
    known = ("auto", *dialect_names())
    faults += [
        f"workers[{at}].dialect: there is no dialect {worker.dialect!r}; expected one of {', '.join(known)}"
        for at, worker in enumerate(settings.workers)
        if worker.dialect not in known
    ]
    faults += discovery_faults(settings.discovery, known)
    faults += _tls_faults(settings.listen.tls, "listen.tls") + _tls_faults(settings.picker.tls, "picker.tls")
    return faults + _worker_tls_faults(settings) + _log_faults(settings.log.access)


def _worker_tls_faults(settings: Settings) -> list[str]:
    faults = tls_faults(WorkerTls(**settings.connections.tls.model_dump()), "connections.tls")
    for at, each in enumerate(settings.workers):
        faults += tls_faults(each.worker().tls or NOTHING, f"workers[{at}].tls")
    return faults


def _log_faults(access: str) -> list[str]:
    if access in ("stderr", "stdout", "none"):
        return []
    path = Path(access)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        return [f"log.access: {access} cannot be written; expected stderr, stdout, none, or a file in a folder there"]
    return []


def _tls_faults(tls: Tls, where: str) -> list[str]:
    if (tls.certificate is None) != (tls.key is None):
        return [f"{where}: certificate and key go together"]
    if tls.certificate is None or tls.key is None:
        return []
    files = {"certificate": tls.certificate, "key": tls.key}
    faults = [f"{where}.{name}: there is no file {path}" for name, path in files.items() if not Path(path).is_file()]
    if not faults:
        import ssl

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
        except OSError as wrong:
            faults.append(f"{where}: not a certificate with its key, in PEM and without a password ({wrong})")
    return faults


def _serve(options: argparse.Namespace) -> int:
    listen = _given(host=options.host, port=options.port, processes=options.processes)
    flags = _given(workers=options.worker, listen=listen or None)
    if options.policy is not None:
        flags["routing"] = {"policy": options.policy}
    from router.reload import SettingsSource

    source = SettingsSource(lambda: settings_from(options.config, flags, again=True), options.config)
    loaded = settings_from(options.config, flags)
    from router.processes.supervisor import process_count, supervise

    count = process_count(loaded[0])
    if count > 1:
        return supervise(loaded, count, source)
    from router.server import serve

    return serve(loaded, source)


def _demo(options: argparse.Namespace) -> int:
    from router.demo import demo

    return demo(options.workers, options.port, options.seconds, as_json=options.json)


def _check(options: argparse.Namespace) -> int:
    settings, origins = settings_from(options.config, {})
    rows = effective(settings, origins)
    if options.json:
        shown = {path: {"value": value, "origin": origin} for path, value, origin in rows}
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
        return 0
    from router.show import settings_table

    settings_table(rows)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from router.show import ask_explanation

    try:
        body = sys.stdin.buffer.read() if options.body == "-" else Path(options.body).read_bytes()
    except OSError as wrong:
        sys.stderr.write(f"prefix-router: {options.body}: {wrong.strerror}\n")
        return 2
    token = options.token or os.environ.get("PREFIX_ROUTER_ADMIN_TOKEN")
    return ask_explanation(options.url, body, options.path, token, as_json=options.json)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
