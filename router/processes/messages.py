"""What parent and processes say to each other: the kinds of their messages, and what the contents are."""

from __future__ import annotations

import pickle
from typing import Literal

import msgspec

from router.observe.snapshot import Snapshot
from router.reload import Outcome
from router.settings import Settings
from router.types import Worker

# A process tells. Its first question, `BEGIN`, is answered once it has heard every change made so far.
BEGIN, LISTENING, COUNTED = "begin", "listening", "counted"
# A process asks the parent, and for `CHANGE` and `DECISIONS` the parent asks every process.
CHANGE, WHOLE, DECISIONS, PROCESSES = "change", "whole", "decisions", "processes"
# A process asks the parent, and the parent every process, what it has in flight at the workers that it drains.
DRAINED = "drained"
# The parent asks for a process's counts, which it tells before it answers: so older ones never overtake newer ones.
COUNT = "count"
# A process asks the parent to reload; the parent asks every process to take new settings.
RELOAD, SETTINGS = "reload", "settings"
# The parent tells whether the last reload was refused.
REFUSED = "refused"
# The parent tells: end within so many seconds of grace; end at once; leave new connections to a successor, and end.
STOP, CUT, LEAVE = "stop", "cut", "leave"


class Change(msgspec.Struct, frozen=True):
    """What an admin changed, fit to be made in every process. `over_seconds`: a drain that hands over for so long."""

    kind: Literal["add", "remove", "drain", "undrain"]
    worker_id: str
    worker: Worker | None = None
    over_seconds: float = 0.0


class ProcessRow(msgspec.Struct, frozen=True):
    """One process, as `GET /admin/processes` shows it. `answers`: it did, just now; else its last numbers are shown.
    `leaving`: it has a successor and takes no new connections."""

    index: int
    pid: int
    uptime_seconds: float
    requests: int
    in_flight: int
    answers: bool = True
    leaving: bool = False


def process_row(
    index: int, pid: int, uptime: float, counted: Snapshot, *, answers: bool = True, leaving: bool = False
) -> ProcessRow:
    requests = int(counted.total("prefix_router_requests"))
    return ProcessRow(index, pid, round(uptime, 3), requests, int(counted.total("in_flight")), answers, leaving)


encode = msgspec.msgpack.Encoder().encode
decode_change = msgspec.msgpack.Decoder(Change).decode
decode_rows = msgspec.msgpack.Decoder(list[ProcessRow]).decode
decode_lists = msgspec.msgpack.Decoder(list[bytes]).decode
decode_in_flight = msgspec.msgpack.Decoder(dict[str, int]).decode
decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


def encode_settings(settings: Settings, origins: dict[str, str]) -> bytes:
    """With their secrets, as they are handed to a process that is started."""
    return pickle.dumps((settings, origins))


def decode_settings(content: bytes) -> tuple[Settings, dict[str, str]]:
    """Only for what our own parent says."""
    settings, origins = pickle.loads(content)  # noqa: S301
    return settings, origins
