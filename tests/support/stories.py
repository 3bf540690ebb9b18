"""Journeys without sockets: a real house with a clock that is set by hand, pools that only note what they are sent,
and a sink that writes down what it is told."""

from collections.abc import Mapping
from random import Random
from typing import Any

from router.contracts import PolicyTools
from router.core.fleet import Fleet, Seat
from router.core.mind import Mind
from router.events import AttemptFailed, Chosen, Event, Finished
from router.house import House
from router.journey import Journey
from router.layers import load
from router.plugins import build_dialects, build_policy
from router.proxy.headers import Headers
from tests.support.client import CHAT, HELLO
from tests.support.fleets import ready, worker

JSON_HEAD = [(b"content-type", b"application/json")]
EVENT_HEAD = [(b"content-type", b"text/event-stream")]


class NotedSink:
    """`told` is the order of calls; bodies are joined."""

    peer = "192.0.2.1"
    paused = False

    def __init__(self) -> None:
        self.told: list[str] = []
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.length: int | None = None
        self.data = b""

    def head(self, status: int, headers: Headers, length: int | None) -> None:
        self.told.append(f"head {status}")
        self.status, self.headers, self.length = status, dict(headers), length

    def body(self, data: bytes) -> None:
        self.told.append("body")
        self.data += data

    def flush(self) -> None:
        self.told.append("flush")

    def end(self) -> None:
        self.told.append("end")

    def abort(self) -> None:
        self.told.append("abort")


class NotedConnection:
    """What a connection would have been asked to do."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_open = True

    def cancel(self) -> None:
        self.told.append("cancel")

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")


class Sent:
    """One request on its way to a worker."""

    def __init__(self, seat: Seat, head: bytes, body: bytes, attempt: Any, fresh: bool) -> None:
        self.worker, self.head, self.body, self.attempt, self.fresh = seat.id, head, body, attempt, fresh
        self.connection = NotedConnection()

    def lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")

    def answers(self, status: int = 200, headers: Headers | None = None, *pieces: bytes, end: bool = True) -> None:
        self.attempt.on_head(status, JSON_HEAD if headers is None else headers, None)
        if pieces:
            self.attempt.on_body(list(pieces))
        if end:
            self.attempt.on_end()
        else:
            self.attempt.on_read()


class NotedPool:
    base_path, greeting, has_credentials = b"", b" HTTP/1.1\r\nhost: w\r\n", False

    def __init__(self, desk: "Desk", seat: Seat) -> None:
        self._desk, self._seat = desk, seat

    def send(self, head: bytes, body: bytes, receiver: Any, now: float, *, fresh: bool = False) -> NotedConnection:
        self._desk.sent.append(Sent(self._seat, head, body, receiver, fresh))
        return self._desk.sent[-1].connection


class Desk:
    """A house to tell journeys in. Workers `w0`, `w1` … are ready and are asked in that order."""

    def __init__(self, workers: int = 2, *, each: Mapping[str, Any] | None = None, **settings: Any) -> None:
        made, _ = load([("test", {"routing": {"policy": "tests.support.in_order"}, **settings})], {})
        self.now = 0.0
        self.events: list[Event] = []
        self.sent: list[Sent] = []
        self.fleet = Fleet()
        tools = PolicyTools(self.fleet.ring, Random(7))
        mind = Mind(self.fleet, build_policy(made.routing.policy, {}, tools))
        self.house = House(made, mind, build_dialects(), self.events.append, lambda: self.now)
        self.house.tell_with(Journey)
        self.house.reconcile([worker(f"w{at}", models=("m",), **(each or {})) for at in range(workers)])
        ready(self.fleet)
        self.house.pool = lambda seat: NotedPool(self, seat)  # type: ignore[method-assign, assignment, return-value]

    def open(self, headers: Headers | None = None, path: str = CHAT) -> tuple[Journey, NotedSink]:
        """A journey whose head has come."""
        sink = NotedSink()
        place = self.house.paths[path.encode()]
        journey = self.house.open(place, path.encode(), headers or [], sink)
        assert isinstance(journey, Journey)
        journey.begin(headers or [])
        return journey, sink

    def ask(self, body: bytes = HELLO, headers: Headers | None = None, path: str = CHAT) -> tuple[Journey, NotedSink]:
        """A journey whose request is whole."""
        journey, sink = self.open(headers, path)
        journey.feed(body)
        journey.complete()
        return journey, sink

    @property
    def seats(self) -> list[Seat]:
        return list(self.fleet.seats.values())

    def at_rest(self) -> bool:
        return not any(seat.load.in_flight or seat.load.charged for seat in self.seats) and not len(self.house.room)

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def finished(self) -> Finished:
        [event] = self.told(Finished)
        assert isinstance(event, Finished)
        return event

    @property
    def failures(self) -> list[tuple[str, str, bool]]:
        return [(event.worker, event.kind, event.retried) for event in self.told(AttemptFailed)]

    @property
    def chosen(self) -> list[str]:
        return [event.worker for event in self.told(Chosen)]
