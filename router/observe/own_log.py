"""The gateway's own log, on standard error: what happened to workers and to itself, never what passed through it.

One event is one line, whatever stands in it: what comes from outside (names, paths, workers' words) cannot end a line,
forge another, or speak to a terminal. A traceback shows where and what kind of error, not its text: an error's text may
quote a prompt or a key.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from types import TracebackType

# C0 with line ends, DEL, C1 (a terminal takes U+009B for an escape sequence), line separators, what turns text round,
# and lone surrogates, which no stream can write.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SECRET_URL = re.compile(r"(//)[^/@\s]*@")
FURTHER = "\n  | "  # begins each line of a traceback, so that none looks like an event of its own
Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def set_up_logging(level: str, mark: str = "") -> None:
    """`mark` stands before every message, where several processes write one log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(f"%(asctime)s %(levelname)s {mark.replace('%', '%%')}%(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def safe(text: str) -> str:
    """The text without anything that acts on a terminal or a log, and without names and passwords in URLs."""
    return SECRET_URL.sub(r"\1", UNSAFE.sub(_escaped, text))


def safe_json(text: str) -> str:
    """The same for JSON, which stays JSON."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler's text of the error, kept there, would be taken for ours
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
        message = record.message
        if record.name == "asyncio":  # the rest repeats the arguments of what failed, and with them what passed through
            message = message.partition("\n")[0].partition("(")[0]
        record.message = safe(message)
        return super().formatMessage(record)

    def formatException(self, ei: Raised) -> str:  # noqa: N802
        if ei[1] is None:
            return ""
        lines = [line for each in _chain(ei[1]) for line in _told(each)]
        return "  | " + FURTHER.join(safe(line) for line in lines)


def _chain(raised: BaseException) -> list[BaseException]:
    """The error and those it came from, the first one first."""
    chain: list[BaseException] = []
    at: BaseException | None = raised
    while at is not None and at not in chain and len(chain) < 8:
        chain.append(at)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return chain[::-1]


def _told(raised: BaseException) -> list[str]:
    frames = traceback.format_list(traceback.extract_tb(raised.__traceback__))
    lines = [line for frame in frames for line in frame.splitlines()]
    kind = type(raised)
    reason = f": {raised.strerror}" if isinstance(raised, OSError) and raised.strerror else ""
    return ["Traceback (most recent call last):", *lines, f"{kind.__module__}.{kind.__qualname__}{reason}"]
