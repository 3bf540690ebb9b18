"""The gateway itself, with its default settings: ids, limits, metrics, leases and breaker are all on.

Its path of a request is the compiled one where `make compiled` has made it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import replace

from bench.path.peer import ROOT, Peer, Place

ACCESS = "PREFIX_ROUTER_LOG__ACCESS"
COMPILED = ROOT / ".cache" / "compiled"
MADE = (COMPILED / ".ready").is_file()
PACKAGES = sysconfig.get_path("purelib")  # for another interpreter of the same version: OURS_PYTHON names it


def command(python: str, place: Place) -> list[str]:
    workers = [flag for url in place.urls for flag in ("--worker", url)]
    return [python, "-m", "router", "serve", "--host", "127.0.0.1", "--port", str(place.port), *workers]


OURS = Peer(
    name="ours",
    what="this gateway, default settings but for the access log, which no other has on; "
    + ("compiled" if MADE else "not compiled: see `make compiled`"),
    get="",
    find=lambda: os.environ.get("OURS_PYTHON") or sys.executable,
    command=command,
    environment={"PYTHONPATH": f"{COMPILED if MADE else ROOT}:{PACKAGES}", ACCESS: "none"},
)
LOG = replace(
    OURS,
    name="ours-log",
    what="the same, with the access log in a file on disk",
    environment={**OURS.environment, ACCESS: "access.log"},
    emptied=("access.log",),
)
PLAIN = replace(
    OURS,
    name="ours-plain",
    what="the same from its sources, not compiled",
    environment={**OURS.environment, "PYTHONPATH": f"{ROOT}:{PACKAGES}"},
)
TWO = replace(
    OURS,
    name="ours-2",
    what="the same in two processes, on all cores",
    command=lambda python, place: [*command(python, place), "--processes", "2"],
    pinned=False,
)
