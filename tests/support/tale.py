"""A house whose workers are nothing but notes: what is sent to them is written down, and the test answers by hand."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from router.contracts import PolicyTools
from router.core.fleet import Seat
from router.core.mind import Mind
from router.errors import AttemptError
from router.events import Event, Finished
from router.house import House
from router.journey import Journey
from router.layers import load
from router.plugins import build_dialects, build_policy
from router.types import Worker
from tests.support.client import CHAT, HELLO
from tests.support.fleets import fleet_of

Headers = list[tuple[bytes, bytes]]
JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [(b"content-type", b"text/event-stream")]


class Sink:
    """Writes down what the client would get."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.status = 0
        self.headers: Headers = []
        self.length: int | None = None
        self.data = b""

    def head(self, status: int, headers: Headers, length: int | None) -> None:
        self.calls.append("head")
        self.status, self.headers, self.length = status, headers, length

    def body(self, data: bytes) -> None:
        self.calls.append("body")
        self.data += data

    def flush(self) -> None:
        self.calls.append("flush")

    def end(self) -> None:
        self.calls.append("end")

    def abort(self) -> None:
        self.calls.append("abort")

    def one(self, name: str) -> str | None:
        return next((value.decode() for key, value in self.headers if key == name.encode()), None)


class Line:
    """A connection: what was sent on it, and what was done to it. The test speaks for the worker."""

    def __init__(self, seat: Seat, head: bytes, body: bytes, receiver: Any, fresh: bool) -> None:
        self.seat, self.sent, self.body, self.receiver, self.fresh = seat, head, body, receiver, fresh
        self.is_open = True
        self.done: list[str] = []

    def cancel(self) -> None:
        self.done.append("cancel")

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")

    def head(self, status: int = 200, headers: Headers = JSON, length: int | None = None) -> None:
        self.receiver.on_head(status, headers, length)

    def says(self, *pieces: bytes) -> None:
        self.receiver.on_body(list(pieces))

    def end(self) -> None:
        self.receiver.on_end()

    def answers(self, status: int = 200, body: bytes = b"{}", headers: Headers = JSON) -> None:
        self.head(status, headers, len(body))
        self.says(body)
        self.end()

    def fails(self, failure: AttemptError) -> None:
        self.receiver.on_failure(failure)


class NotedPool:
    base_path, greeting, has_credentials = b"", b" HTTP/1.1\r\nhost: w\r\n", False

    def __init__(self, seat: Seat, lines: list[Line]) -> None:
        self.seat, self.lines = seat, lines

    def send(self, head: bytes, body: bytes, receiver: Any, now: float, *, fresh: bool = False) -> Line:
        line = Line(self.seat, head, body, receiver, fresh)
        self.lines.append(line)
        return line


class Tale:
    """A house with ready workers that are asked in the order of their names, and a clock that is set by hand."""

    def __init__(self, workers: Iterable[str | Worker] = ("a", "b", "c"), **settings: Any) -> None:
        made, _ = load([("test", settings)], {})
        self.now = 100.0
        self.facts: list[Event] = []
        self.lines: list[Line] = []
        self.fleet = fleet_of(workers)
        policy = build_policy("tests.support.in_order", {}, PolicyTools(self.fleet.ring, Random(1)))
        self.house = House(made, Mind(self.fleet, policy), build_dialects(), self.facts.append, lambda: self.now)
        self.house.tell_with(Journey)
        self.house.pool = lambda seat: NotedPool(seat, self.lines)  # type: ignore[method-assign,assignment,return-value]

    def open(self, headers: Sequence[tuple[bytes, bytes]] = (), path: str = CHAT) -> Journey:
        """A request whose head has come."""
        sink = Sink()
        story = self.house.open(self.house.paths[path.encode()], path.encode(), list(headers), sink)
        assert isinstance(story, Journey)
        story.begin(list(headers))
        return story

    def ask(self, body: bytes = HELLO, headers: Sequence[tuple[bytes, bytes]] = ()) -> Journey:
        """A request that has come whole."""
        story = self.open(headers)
        story.feed(body)
        story.complete()
        return story

    @property
    def line(self) -> Line:
        return self.lines[-1]

    @property
    def asked(self) -> list[str]:
        """The workers that were sent a request, in order."""
        return [line.seat.id for line in self.lines]

    @property
    def finished(self) -> list[Finished]:
        return [fact for fact in self.facts if isinstance(fact, Finished)]

    def told(self, kind: type) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def at_rest(self) -> bool:
        return not len(self.house.room) and all(
            seat.load.in_flight == 0 and seat.load.charged == 0.0 for seat in self.fleet.seats.values()
        )
