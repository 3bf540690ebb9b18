"""Who decides, one a replica: here the gateway's core with a policy, in `reference.py` a yardstick that knows all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from router.contracts import Policy, PolicyTools, Usage
from router.core.fleet import Fleet
from router.core.health import PROBE_OK
from router.core.holders import Holders
from router.core.mind import Mind
from router.replay.item import ROUTER_KIND, Item, Request
from router.replay.workers import SimulatedWorker
from router.types import Fingerprint, News, Worker, worker_from_url

Loads = list[tuple[str, int, float]]
MakePolicy = Callable[[PolicyTools], Policy]
TABLE_HASHES = 100_000


class Router(Protocol):
    """What the simulation asks of a replica. Only `send` decides; the rest is what a replica notices by itself."""

    def send(self, request: Request, now: float) -> str: ...
    def first_token(self, request: Request, now: float) -> None: ...
    def finished(self, request: Request, now: float) -> None: ...
    def lost(self, request: Request, now: float) -> None:
        """Its worker left before the first token: it will be sent again."""

    def members(self, workers: Sequence[SimulatedWorker], now: float) -> None:
        """The workers there are from now on."""

    def look(self, workers: Sequence[SimulatedWorker], now: float, lasting: float) -> None:
        """The workers' queue lengths, polled; they count as known for so many seconds."""

    def news(self) -> list[News]:
        """What the other replicas should hear, once."""

    def loads(self, now: float) -> Loads:
        """What the others should know of this one's load."""

    def hear(self, teller: str, news: Sequence[News], loads: Loads, until: float) -> None: ...


class Routed:
    """One replica of the gateway's core.

    usage: the workers report prompt and cached tokens; told: their speeds are configured as weights
    room: tokens that a worker's cache holds, which it tells
    shares: it tells the other replicas; alone: there are none
    table: prefix hashes that it remembers
    """

    def __init__(
        self,
        make: MakePolicy,
        dice: Random,
        *,
        room: int,
        told: bool = False,
        usage: bool = True,
        shares: bool = False,
        alone: bool = True,
        table: int = TABLE_HASHES,
    ) -> None:
        self.fleet = Fleet()
        self.mind = Mind(
            self.fleet, make(PolicyTools(self.fleet.ring, dice)), holders=Holders(table), alone=alone or shares
        )
        self.mind.outbox = [] if shares else None
        self._room = room
        self._told = told
        self._usage = usage

    def members(self, workers: Sequence[SimulatedWorker], now: float) -> None:
        changes = self.fleet.reconcile([self._worker(each) for each in workers])
        for seat in changes.joined:
            self.fleet.feed(seat, PROBE_OK, now)
            self.mind.holders.room(seat.id, self._room)
        for seat in changes.left:
            self.mind.left(seat)

    def send(self, request: Request, now: float) -> str:
        mind, item = self.mind, request.item
        ask = mind.weigh_prefix(self._prefix(item), text=item.words, count=not request.reason)
        ask.kind, ask.length, ask.text = ROUTER_KIND, item.words.length, item.words.head()
        choice = mind.choose(ask, None, (), now)
        if choice is None:
            raise LookupError("no worker fits")
        ask.text = b""
        request.reason = choice.reason
        lease = mind.commit(ask, choice, now, streaming=True)
        request.ticket = ask, choice, lease
        return choice.seat.id

    def first_token(self, request: Request, now: float) -> None:
        request.ticket[2].first_token(now)

    def finished(self, request: Request, now: float) -> None:
        ask, choice, lease = request.ticket
        lease.release()
        request.ticket = None
        if self._usage:
            self.mind.learn(ask, choice, Usage(request.item.tokens, request.item.output, request.hit), now)

    def lost(self, request: Request, now: float) -> None:
        request.ticket[2].release()
        request.ticket = None

    def look(self, workers: Sequence[SimulatedWorker], now: float, lasting: float) -> None:
        for worker in workers:
            self.mind.hear_queue(self.fleet.seats[worker.id], worker.waiting, now, lasting)

    def news(self) -> list[News]:
        found = self.mind.outbox
        if not found:
            return []
        self.mind.outbox = []
        return found

    def loads(self, now: float) -> Loads:
        return self.mind.loads(now)

    def hear(self, teller: str, news: Sequence[News], loads: Loads, until: float) -> None:
        for each in news:
            self.mind.hear(each)
        self.mind.hear_loads(teller, loads, until)

    def _prefix(self, item: Item) -> Fingerprint:
        """Hashed once for all runs; only the estimate of its length follows what this replica has learnt."""
        prefix = item.prefix
        ratio = self.mind.lengths.bytes_a_token(ROUTER_KIND)
        if ratio == prefix.bytes_a_token:
            return prefix
        tokens = item.words.length / ratio
        return Fingerprint(prefix.depths, prefix.hashes, prefix.whole, tokens, ratio)

    def _worker(self, worker: SimulatedWorker) -> Worker:
        weight = worker.speed if self._told else 1.0
        return worker_from_url(f"http://{worker.id}:1", id=worker.id, weight=weight)
