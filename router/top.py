"""`prefix-router top`: a running gateway's workers, decisions and cache hits, live in a terminal or as JSON in a pipe.

It asks as anybody may: `GET /admin/workers`, `/admin/decisions` and `/metrics`. A gateway that goes away is asked
again until it is back; one that refuses the token, or is none, ends the command.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

URL = "http://127.0.0.1:8080"
SECONDS = (0.1, 3600.0)  # between two frames


def add(commands: Any) -> None:
    top = commands.add_parser(
        "top", formatter_class=argparse.RawDescriptionHelpFormatter,
        help="watch a running gateway's workers, decisions and cache hits",
        description="Watch a running gateway: its workers, its decisions, and what came from their caches.\n"
        "Figures are of the time since the last frame; in a pipe each frame is printed below the last.",
        epilog="example: prefix-router top --url http://127.0.0.1:8080 --interval 2",
    )  # fmt: skip
    top.add_argument("--url", default=URL, help=f"the gateway's address ({URL})")
    top.add_argument("--token", help="the admin token (or PREFIX_ROUTER_ADMIN_TOKEN)")
    top.add_argument("--interval", type=_interval, default=1.0, metavar="SECONDS", help="between two frames (1)")
    top.add_argument("--once", action="store_true", help="print one frame and end")
    top.add_argument("--json", action="store_true", help="print each frame as one JSON object on a line")
    top.set_defaults(run=run)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SECONDS[0] <= seconds <= SECONDS[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not within {SECONDS[0]:g} and {SECONDS[1]:g} seconds")
    return seconds


def run(options: argparse.Namespace) -> int:
    """The exit status: 0, 1 where no gateway can be watched, 2 for an address that is none."""
    import httpx

    try:
        address = httpx.URL(options.url)
    except httpx.InvalidURL:
        address = httpx.URL("")
    if address.scheme not in ("http", "https") or not address.host:
        sys.stderr.write(f"prefix-router: --url {options.url}: expected an address such as {URL}\n")
        return 2
    from router.top_watch import Refused, Watch, show

    token = options.token or os.environ.get("PREFIX_ROUTER_ADMIN_TOKEN")
    if token and not (token.isascii() and token.isprintable()):
        sys.stderr.write("prefix-router: --token: expected printable ASCII without line ends\n")
        return 2
    with Watch(options.url.rstrip("/"), token) as watch:
        try:
            return show(watch, options.interval, once=options.once, as_json=options.json)
        except Refused as refused:
            sys.stderr.write(f"prefix-router: {refused}\n")
            return 1
        except BrokenPipeError:  # whoever read the frames has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
