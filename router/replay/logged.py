"""The gateway's own access log as a trace: its lines hold the hashes of each prompt's rungs where `log.hashes` is on.

A worker's cache then keeps whole rungs, each with the tokens of its span: what two prompts share is known at rungs and
nowhere between. A line tells hashes, not depths: they are those of `core/fingerprint.py`, but the last may be
the end of the prompt's last full 256 bytes. The prompt's length decides which; in a log without `prompt_bytes` it is
taken from the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from router.core.fingerprint import DEPTHS, STEP
from router.prompt import BYTES_A_TOKEN
from router.replay.blocks import Count
from router.replay.item import Item
from router.replay.rows import Row, TraceError, in_time
from router.replay.words import HashedWords
from router.types import Fingerprint

USUAL_OUTPUT = 128  # tokens, where no line of the log says
STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d(?:\.\d+)?)Z")


class LogLine(msgspec.Struct):
    """What the replay reads of a line. `time` is the request's end; it came `seconds` earlier."""

    time: str
    worker: str | None = None
    seconds: float = 0.0
    prompt_tokens: Count = 0
    prompt_bytes: int = 0
    output_tokens: Count | None = None
    hashes: list[int] | None = None


def logged_rows(lines: Iterable[tuple[int, LogLine]]) -> list[Row]:
    """Rows of numbered lines; requests that no worker got, or that had no prompt, are left out."""
    held = [(number, line) for number, line in lines if line.worker is not None and line.prompt_tokens > 0]
    if not any(line.hashes for _, line in held):
        raise TraceError(
            0, "no request in this access log has the hashes of its prompt: set log.hashes: true and log anew"
        )
    known = [line.output_tokens for _, line in held if line.output_tokens is not None]
    usual = round(sum(known) / len(known)) if known else USUAL_OUTPUT
    rows = []
    for number, line in held:
        if line.hashes is None or len(line.hashes) > len(DEPTHS):
            raise TraceError(number, f"expected `hashes`, at most {len(DEPTHS)} of them; set log.hashes: true")
        output = usual if line.output_tokens is None else line.output_tokens
        rows.append(Row(seconds_of(line.time, number) - line.seconds, None, partial(_item, line, number, output)))
    return in_time(rows)


def _item(line: LogLine, number: int, output: int, copy: int) -> Item:
    prefix = prefix_of(line.hashes or [], line.prompt_tokens, number, line.prompt_bytes)
    ratio = line.prompt_tokens / prefix.tokens  # the estimate is the router's, the count the worker's
    ends = [round(depth / BYTES_A_TOKEN * ratio) for depth in prefix.depths]
    return Item(prefix.hashes, ends, line.prompt_tokens, output, HashedWords(prefix))


def prefix_of(hashes: Sequence[int], prompt_tokens: int, number: int, prompt_bytes: int = 0) -> Fingerprint:
    """The fingerprint that gave these hashes, nearly. A prompt too short for any rung is like no other: its hash is
    not logged, so the line's number stands for it."""
    length = prompt_bytes or prompt_tokens * BYTES_A_TOKEN
    count = len(hashes)
    if not count:
        return Fingerprint((), [], number, min(length, DEPTHS[0] - 1) / BYTES_A_TOKEN)
    depths = DEPTHS[:count]
    if count > 1 and length < depths[-1] and depths[-1] - depths[-2] > STEP:
        last_full = max(int(length) // STEP * STEP, depths[-2] + STEP)
        depths = (*depths[:-1], last_full)
    length = min(max(length, depths[-1]), depths[-1] + STEP - 1)
    return Fingerprint(depths, list(hashes), 0, length / BYTES_A_TOKEN)


def seconds_of(stamp: str, number: int) -> float:
    """Seconds of a stamp in UTC since 1 March of the year 0: only differences matter."""
    found = STAMP.fullmatch(stamp)
    if found is None:
        raise TraceError(number, f"expected a time such as 2026-01-31T12:00:00.000Z, found {stamp!r}")
    year, month, day, hour, minute = map(int, found.groups()[:5])
    if month < 3:  # years that begin in March end with the leap day
        year, month = year - 1, month + 12
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1
    return ((days * 24 + hour) * 60 + minute) * 60 + float(found[6])
