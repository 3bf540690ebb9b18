"""The access log: one JSON object a line, one line a request. Never prompt text, never a key.

Lines are gathered and written by a thread a few times a second, so that a slow reader of the log never stops the event
loop. What does not fit in the bound is dropped and counted in the next line that is written.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from select import PIPE_BUF
from typing import Final

import msgspec

from router.clock import Stamp
from router.events import Finished
from router.observe.bus import Bus
from router.observe.own_log import safe_json

MOST_PENDING: Final = 65_536  # lines
INTERVAL: Final = 0.1  # seconds


class AccessLog:
    """`where`: stderr, stdout, none, or a file's path (opened to append). `shared`: other processes write there too."""

    def __init__(self, bus: Bus, where: str, *, shared: bool = False) -> None:
        self._lines: list[bytes] = []
        self._dropped = 0
        self._stamp = Stamp()
        self._stop = threading.Event()
        self._file: int | None = None
        self._writer: threading.Thread | None = None
        if where == "none":
            return
        self._file = _open(where)
        self._most = PIPE_BUF if shared and self._file is not None and _is_pipe(self._file) else None
        self._encode = msgspec.json.Encoder().encode
        self._writer = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._writer.start()
        bus.on(Finished, self._note)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._stop.set()
            self._writer.join(timeout=2.0)
            self._writer = None

    def _note(self, event: Finished) -> None:
        if len(self._lines) >= MOST_PENDING:
            self._dropped += 1
            return
        fields = self._encode(event)
        if not fields.isascii():  # JSON's writer escapes line ends and the like, but not what some terminals heed
            fields = safe_json(fields.decode()).encode()
        self._lines.append(b'{"time":"%s",%s\n' % (self._stamp(), fields[1:]))

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if self._dropped:
            lines.append(b'{"time":"%s","dropped_lines":%d}\n' % (self._stamp(), self._dropped))
            self._dropped = 0
        try:
            for data in batches(lines, self._most):
                while data and self._file is not None:
                    data = data[os.write(self._file, data) :]
        except OSError:
            self._file = None  # a log nobody reads any more is no reason to stop


def batches(lines: list[bytes], most: int | None) -> Iterator[bytes]:
    """What to write at once: all, or whole lines of at most so many bytes."""
    if most is None:
        yield b"".join(lines)
        return
    batch = b""
    for line in lines:
        if batch and len(batch) + len(line) > most:
            yield batch
            batch = b""
        batch += line
    yield batch


def _is_pipe(file: int) -> bool:
    """A file takes what is appended in one piece; a pipe that is full only up to `PIPE_BUF` bytes."""
    kind = os.fstat(file).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def _open(where: str) -> int | None:
    if where in ("stderr", "stdout"):
        try:
            return int(getattr(sys, where).fileno())
        except (AttributeError, OSError, ValueError):  # closed: nobody reads it
            return None
    return os.open(Path(where), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
