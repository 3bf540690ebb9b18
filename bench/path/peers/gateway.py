"""The gateway itself, with its default settings: ids, limits, metrics, leases, breaker and access log are all on."""

from __future__ import annotations

import sys
from dataclasses import replace

from bench.path.peer import ROOT, Peer, Place

ACCESS = "PREFIX_ROUTER_LOG__ACCESS"


def command(python: str, place: Place) -> list[str]:
    workers = [flag for url in place.urls for flag in ("--worker", url)]
    return [python, "-m", "router", "serve", "--host", "127.0.0.1", "--port", str(place.port), *workers]


OURS = Peer(
    name="ours",
    what="this gateway, default settings; the access log is written to /dev/null",
    get="",
    find=lambda: sys.executable,
    command=command,
    environment={"PYTHONPATH": str(ROOT), ACCESS: "/dev/null"},
)
LOG = replace(
    OURS,
    name="ours-log",
    what="the same, the access log in a file on disk",
    environment={**OURS.environment, ACCESS: "access.log"},
    emptied=("access.log",),
)
QUIET = replace(
    OURS,
    name="ours-quiet",
    what="the same without an access log, as all the others run",
    environment={**OURS.environment, ACCESS: "none"},
)
TWO = replace(
    OURS,
    name="ours-2",
    what="the same in two processes, on all cores",
    command=lambda python, place: [*command(python, place), "--processes", "2"],
    pinned=False,
)
