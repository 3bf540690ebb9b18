"""Every plug shape on one page, each with its law in prose. The user of a plug owns its shape.

A policy, a dialect or a discovery source is one module with `Options` and `build`; its file name is its name in the
settings, and `plugins.py` finds it. Listeners and clocks are handed over by the wiring.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from router.asks import Ask as Ask
from router.asks import Ranked as Ranked
from router.asks import Usage as Usage
from router.errors import AttemptError, Refusal
from router.events import Event
from router.prompt import Prompt
from router.types import Fingerprint, News, Worker


class Burden(Protocol):
    """What a worker has been charged with.

    in_flight, elsewhere: requests by this process, and by the others of this machine
    traffic: prompt tokens sent there recently
    pace: prefill tokens a second, as learnt; None while unknown
    """

    @property
    def in_flight(self) -> int: ...
    @property
    def elsewhere(self) -> int: ...
    @property
    def traffic(self) -> float: ...
    @property
    def pace(self) -> float | None: ...


class Candidate(Protocol):
    """A look at one worker that may be used now. Policies read it and never write it."""

    @property
    def id(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def speed(self) -> float:
        """How fast it is against the others: its weight where weights are given, else as learnt."""

    @property
    def load(self) -> Burden: ...
    @property
    def wait(self) -> Callable[[float], float]:
        """Prefill tokens that a new request would wait for, at this time."""


class Ring(Protocol):
    """The consistent-hash ring over all known workers, available or not."""

    def walk(self, key: int, /) -> Iterator[str]: ...
    def home(self, key: int, /) -> str | None: ...
    def nearest(self, key: int, among: Collection[str], /) -> str | None: ...
    def in_order(self, key: int, among: Collection[str], /) -> Iterator[str]: ...


class Policy(Protocol):
    """Puts workers in order. It does not pick, count, or write.

    `order` yields every candidate exactly once, the most wanted first, lazily: most callers take one. It must be a
    function of its arguments and of the dice it was built with. Ties fall in ring order.

    `candidates` may be a `core.candidates.Candidates`: besides being that list it knows how they stand against each
    other, so that a policy need not look at each of many.
    """

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]: ...


class Truth(Protocol):
    """What an engine itself says of its KV cache. `overrule` corrects `held` (worker id -> bytes of this prefix) in
    place, for the workers it knows better than the table does. `sent`, `heard`, `lost`: it is told, like the table, of
    what was sent by this process or by others, and that a worker's process went away."""

    def overrule(self, prefix: Fingerprint, held: dict[str, int]) -> None: ...
    def sent(self, ask: Ask, worker: Any, now: float) -> None: ...
    def heard(self, news: News) -> None: ...
    def lost(self, worker: str) -> None: ...


class Report(Protocol):
    """waiting: requests not scheduled yet; room: tokens that the prefix cache holds. None: not said."""

    @property
    def waiting(self) -> int | None: ...
    @property
    def room(self) -> float | None: ...


EngineReader = Callable[[bytes], Report]  # of an engine's metrics text; takes any bytes


class Channel(Protocol):
    """A way to other processes or replicas. Best effort: what is lost makes a decision worse, never a request fail.

    `send` is called on the event loop and must not block; what comes in is handed to the callback given at its start.
    """

    def send(self, batch: bytes) -> None: ...
    async def close(self) -> None: ...


class Dialect(Protocol):
    """How one kind of API is spoken: bytes to `Prompt`, errors back to bytes.

    `paths` are the POST paths it answers. `read` raises only `InvalidJson`: a body it cannot make sense of is a
    `Prompt` with nothing to hash, since the worker may know better. `has_token` says whether one event of a stream
    carries content. `refusal` gives (content type, body). All must take any bytes without failing otherwise.
    """

    name: str
    paths: tuple[str, ...]
    native: bool

    def read(self, path: str, body: bytes) -> Prompt: ...
    def has_token(self, event: bytes) -> bool: ...
    def usage(self, tail: bytes) -> Usage: ...
    def refusal(self, refusal: Refusal) -> tuple[bytes, bytes]: ...


class Source(Protocol):
    """Where workers are learned from.

    Each item is the complete set known to this source, never a change to it: whoever reads it makes itself equal.
    The first item comes at once, or once the place it learns from was reached. What is lost on the way empties nothing.
    """

    def watch(self) -> AsyncGenerator[tuple[Worker, ...], None]: ...


class Listener(Protocol):
    """Told of every event, in order, on the event loop. It must be quick and must not raise."""

    def __call__(self, event: Event, /) -> None: ...


class Sink(Protocol):
    """Where an answer goes: the client's side of a journey, the same on both servers.

    The order is `head`, then `body` any number of times, then `end` or `abort`. After `end`, `abort` or the client's
    leaving every call is without effect. `head` and `body` may be held back until `flush`. `peer`: whose it is.
    `paused`: its client reads slowly.
    """

    peer: str

    @property
    def paused(self) -> bool: ...
    def head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None: ...
    def body(self, data: bytes) -> None: ...
    def flush(self) -> None: ...
    def end(self) -> None: ...
    def abort(self) -> None:
        """Cut, so that the client cannot take what it has for the whole."""


class Receiver(Protocol):
    """Who awaits the answer. After `on_end` or `on_failure` the connection calls no more."""

    connection: Any  # set by the pool where the request had to wait for one

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None: ...
    def on_body(self, pieces: list[bytes]) -> None: ...
    def on_read(self) -> None:
        """All that one read brought has been told, and the answer goes on."""

    def on_end(self) -> None: ...
    def on_failure(self, failure: AttemptError) -> None: ...


class Promise(Protocol):
    """On the time to first token, in seconds."""

    def allowed(self, ask: Ask, /) -> float: ...


class PolicyTools(NamedTuple):
    """What a policy is built with, besides its options. `slo`: the promise to keep, None for none."""

    ring: Ring
    random: Any
    slo: Promise | None = None


class Place(NamedTuple):
    """A proxied path and the dialect spoken there."""

    path: str
    dialect: Dialect


class Story(Protocol):
    """One request's life, as its sink drives it. Calls after its end are without effect."""

    def begin(self, headers: list[tuple[bytes, bytes]], /) -> None:
        """The head is known. The story may answer at once."""

    def feed(self, data: bytes) -> None: ...
    def complete(self) -> None: ...
    def late(self) -> None:
        """The body did not come in time."""

    def refuse(self, refusal: Refusal, /) -> None:
        """The body is no HTTP."""

    def cancel(self) -> None:
        """The client went away."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Teller(Protocol):
    """Opens stories: what a sink needs of the house. `target`: the raw path and query; header names are lower case."""

    @property
    def paths(self) -> Mapping[bytes, Place]: ...

    def open(self, place: Place, target: bytes, headers: list[tuple[bytes, bytes]], sink: Sink, /) -> Story: ...
