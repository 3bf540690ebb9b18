"""HTTP/1.1 words: a request as it arrived, and what may be done with its answer. No sockets here.

A server of our own, not a framework, because a worker that can fail in every way must reach below the framework: cut a
chunk in half, lie about a length, reset the connection.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Request:
    """Headers keep their order, their case and their repetitions; the body is whole."""

    method: str
    target: str
    version: str
    headers: Headers
    body: bytes
    keep_alive: bool

    @cached_property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @cached_property
    def _named(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in reversed(self.headers)}

    def header(self, name: str) -> str | None:
        """The first header of that name."""
        return self._named.get(name.lower())


class Answer(Protocol):
    """The one answer to a request. Everything after its end, or after the client went, is silently dropped.

    `whole` sends a complete answer with its length. Otherwise: `head`, then `send` any number of times, then `end`.
    """

    def whole(self, status: int, headers: Headers, body: bytes) -> None: ...

    def head(self, status: int, headers: Headers, length: int | None = None) -> None:
        """Opens a body of unknown length, or of one that the sender vouches for."""

    def send(self, events: Sequence[bytes]) -> None:
        """More of the body: complete events, each of which arrives as soon as it can."""

    def end(self) -> None: ...

    def raw(self, data: bytes) -> None:
        """Bytes past all framing. Only for answers that are meant to be wrong."""

    def cut(self) -> None:
        """Closes the connection after what was sent."""

    def reset(self) -> None:
        """Breaks the connection so that the peer sees a reset."""

    def when_over(self, callback: Callable[[bool], None]) -> None:
        """Calls back once: true when the answer was sent whole, false when the client went or the answer was cut."""


def status_line(status: int) -> bytes:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Unknown"
    return f"HTTP/1.1 {status} {reason}\r\n".encode()


def head_bytes(status: int, headers: Headers) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return status_line(status) + lines.encode("latin-1", "replace") + b"\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
