"""An answer that goes wrong as a rule says: it stands between an API and the plain answer and passes on less, later,
or odd.

Steps are kept in a line, because some of them wait: what comes after a wait must not overtake it.
"""

import zlib
from collections import deque
from collections.abc import Callable, Sequence

from backends.http import Answer, Headers
from backends.mock.distort import distortion, is_last, pieces
from backends.mock.faults import Effects, breaking

GZIP_BITS = 31
STREAM_LENGTHS = {True: 1_000_000, False: 64}
"""What a stream without a length pretends to have: far more than it sends, or less."""

Later = Callable[[float, Callable[[], None]], object]


class Line:
    """Runs actions in order, each after its wait. Without waits it is a plain call."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._actions: deque[tuple[float, Callable[[], None]]] = deque()

    def then(self, action: Callable[[], None], wait: float | None = None) -> None:
        """`wait` 0 is not None: it lets the event loop turn once, so that what was written leaves on its own."""
        if wait is None and not self._actions:
            action()
            return
        self._actions.append((wait or 0.0, action))
        if len(self._actions) == 1:
            self._later(self._actions[0][0], self._run)

    def clear(self) -> None:
        self._actions.clear()

    def _run(self) -> None:
        if not self._actions:
            return
        self._actions[0][1]()
        if self._actions:
            self._actions.popleft()
        if self._actions:
            self._later(self._actions[0][0], self._run)


class FaultyAnswer:
    """Implements `Answer`."""

    def __init__(self, inner: Answer, effects: Effects, later: Later) -> None:
        self._inner = inner
        self._effects = effects
        self._line = Line(later)
        self._break = breaking(effects)
        self._distort = distortion(effects)
        self._zip = zlib.compressobj(wbits=GZIP_BITS) if effects.gzip else None
        self._sent = 0
        self._broken = False
        inner.when_over(lambda _: self._line.clear())

    def when_over(self, callback: Callable[[bool], None]) -> None:
        self._inner.when_over(callback)

    def whole(self, status: int, headers: Headers, body: bytes) -> None:
        if self._zip is not None:
            body = self._zip.compress(body) + self._zip.flush()
            headers, self._zip = [*headers, ("content-encoding", "gzip")], None
        self._open(status, headers, len(body))
        self._event(body)
        self._close()

    def head(self, status: int, headers: Headers, length: int | None = None) -> None:
        if self._zip is not None:
            headers, length = [*headers, ("content-encoding", "gzip")], None
        self._open(status, headers, length)

    def send(self, events: Sequence[bytes]) -> None:
        for event in events:
            self._event(event)

    def end(self) -> None:
        if self._zip is not None:
            self._write(self._zip.flush())
        self._close()

    def raw(self, data: bytes) -> None:
        self._line.then(lambda: self._inner.raw(data))

    def cut(self) -> None:
        self._line.then(self._inner.cut)

    def reset(self) -> None:
        self._line.then(self._inner.reset)

    def _open(self, status: int, headers: Headers, length: int | None) -> None:
        off = self._effects.length
        if off is not None:
            length = max(0, (STREAM_LENGTHS[off >= 0] if length is None else length) + off)
        self._line.then(lambda: self._inner.head(status, headers, length))
        if self._break is not None and self._break[1] in ("head", 0):
            self._break_off()

    def _event(self, event: bytes) -> None:
        """One event: odd, compressed, in pieces, late, in half, or never."""
        if self._broken:
            return
        last = is_last(event)
        data = self._distort(event) if self._distort is not None else event
        point = self._break[1] if self._break is not None else None
        if point == "done" and last:
            self._break_off()
            return
        half = isinstance(point, float | int) and self._sent < point < self._sent + 1
        if half:
            data = data[: len(data) // 2]
        if self._zip is not None:
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        self._write(data, self._effects.gap)
        self._sent += 1
        if half or point == self._sent:
            self._break_off()

    def _write(self, data: bytes, wait: float | None = None) -> None:
        for piece in pieces(data, self._effects.split or len(data) or 1):
            self._line.then(lambda piece=piece: self._inner.send([piece]), wait)  # type: ignore[misc]
            wait = 0.0 if self._effects.split else None

    def _close(self) -> None:
        if not self._broken:
            self._line.then(self._inner.end if self._effects.length is None else self._inner.cut)

    def _break_off(self) -> None:
        self._broken = True
        if self._break is None or self._break[0] == "hang":
            return
        if self._break[0] == "cut":
            self._line.then(self._inner.cut)
        else:
            self._line.then(self._inner.reset, 0.0)  # a reset throws away what has not left yet
