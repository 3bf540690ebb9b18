"""Events in the order of their times: requests come, prefills and decodes end, replicas tell and look, workers go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

import msgspec

from router.replay.item import Request
from router.replay.routing import Loads, Router
from router.replay.workers import SimulatedWorker, Timing
from router.types import News

Dice = Callable[[str], Random]  # a name -> dice of its own, the same at every call in every run of one seed
MakeRouter = Callable[[Random], Router]
LEAVES = 3  # which worker does, counted from 0
TOLD_EACH = 250  # requests between two calls of the progress callback
BELIEVED = 60.0  # seconds that a replica's loads count; it tells them whenever they change
LASTING = 3.0  # polls that a polled queue length counts as known


class Setup(msgspec.Struct, frozen=True):
    """What is simulated, whoever routes.

    room: tokens of one worker's cache; speeds: factors, 1 for workers beyond the list
    share, lag: replicas tell each other what they sent and what waits, so many seconds later: half of it passes
        until a batch goes out, half until it is heard
    poll: seconds between two looks at the workers' queues where there are several replicas; 0: never
    change: "leave" or "join": one worker does, half way
    """

    workers: int = 8
    replicas: int = 1
    room: int = 3000 * 512
    timing: Timing = Timing()
    speeds: tuple[float, ...] = ()
    share: bool = True
    lag: float = 0.03
    poll: float = 0.1
    change: str = ""


def made_worker(at: int, setup: Setup, *, foresight: bool) -> SimulatedWorker:
    speed = setup.speeds[at] if at < len(setup.speeds) else 1.0
    return SimulatedWorker(f"w{at}", setup.room, setup.timing, speed, foresight=foresight)


class Simulation:
    """One run. `foresight`: the router looks at the workers' true state."""

    def __init__(
        self, requests: Sequence[Request], setup: Setup, make: MakeRouter, dice: Dice, *, foresight: bool = False
    ) -> None:
        self.requests = requests
        self.setup = setup
        self.now = 0.0
        self.workers = [made_worker(at, setup, foresight=foresight) for at in range(setup.workers)]
        self.routers = [make(dice(f"replica {at}")) for at in range(setup.replicas)]
        self.finished = 0
        self._foresight = foresight
        self._by_id = {worker.id: worker for worker in self.workers}
        self._alive = list(self.workers)
        self._jitter = dice("polls")
        self._telling: set[int] = set()  # replicas with a batch to say
        self._tell: Callable[[int], None] | None = None
        self._turn = self._order = 0
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []

    def run(self, tell: Callable[[int], None] | None = None) -> Simulation:
        """To the end of the last request; `tell` hears how many have ended since it heard last."""
        self._tell = tell
        for router in self.routers:
            router.members(self._alive, 0.0)
        for request in self.requests:
            if request.opens:
                self._at(request.due, self._arrive, request)
        if self.setup.change and self.requests:
            self._at(self.requests[len(self.requests) // 2].due, self._change, None)
        if self.setup.poll > 0 and len(self.routers) > 1:
            for at in range(len(self.routers)):
                self._at(self._jitter.uniform(0.0, self.setup.poll), self._poll, at)
        events = self._events
        while events:
            self.now, _, act, what = heappop(events)
            act(what)
        return self

    def _at(self, when: float, act: Callable[[Any], None], what: Any) -> None:
        self._order += 1
        heappush(self._events, (when, self._order, act, what))

    def _arrive(self, request: Request) -> None:
        if request.at is None:
            request.at = self.now
            request.router = self._turn % len(self.routers)
            self._turn += 1
        worker = self._by_id[self.routers[request.router].send(request, self.now)]
        worker.enqueue(request)
        self._start(worker)
        self._share(request.router)

    def _start(self, worker: SimulatedWorker) -> None:
        ends_at = worker.start(self.now)
        if ends_at is not None:
            self._at(ends_at, self._prefilled, (worker, worker.current))

    def _prefilled(self, what: tuple[SimulatedWorker, Request]) -> None:
        worker, request = what
        if request.worker != worker.id:
            return  # it went elsewhere when this worker left
        request.first = self.now
        worker.first_token()
        self.routers[request.router].first_token(request, self.now)
        self._share(request.router)
        self._start(worker)
        self._at(self.now + worker.decode_seconds(request.item.output), self._decoded, what)

    def _decoded(self, what: tuple[SimulatedWorker, Request]) -> None:
        worker, request = what
        worker.decodes -= 1
        request.done = self.now
        self.routers[request.router].finished(request, self.now)
        self.finished += 1
        if request.following is not None:
            self._at(max(request.following.due, self.now), self._arrive, request.following)
        if self._tell is not None and self.finished % TOLD_EACH == 0:
            self._tell(TOLD_EACH)

    def _share(self, replica: int) -> None:
        """Something changed that the other replicas should hear: with the next batch."""
        if len(self.routers) > 1 and self.setup.share and replica not in self._telling:
            self._telling.add(replica)
            self._at(self.now + self.setup.lag / 2, self._say, replica)

    def _say(self, replica: int) -> None:
        self._telling.discard(replica)
        router = self.routers[replica]
        self._at(self.now + self.setup.lag / 2, self._hear, (replica, router.news(), router.loads(self.now)))

    def _hear(self, what: tuple[int, list[News], Loads]) -> None:
        teller, news, loads = what
        for at, router in enumerate(self.routers):
            if at != teller:
                router.hear(f"replica {teller}", news, loads, self.now + BELIEVED)

    def _poll(self, replica: int) -> None:
        if self.finished >= len(self.requests):
            return
        poll = self.setup.poll
        self.routers[replica].look(self._alive, self.now, LASTING * poll)
        self._at(self.now + poll * self._jitter.uniform(0.9, 1.1), self._poll, replica)

    def _change(self, _: object) -> None:
        if self.setup.change == "join":
            worker = made_worker(len(self.workers), self.setup, foresight=self._foresight)
            self.workers.append(worker)
            self._by_id[worker.id] = worker
            self._alive.append(worker)
            moved: list[Request] = []
        else:
            worker = self._alive.pop(min(LEAVES, len(self._alive) - 1))
            moved = worker.leave()
        for request in moved:
            self.routers[request.router].lost(request, self.now)
            self._at(self.now, self._arrive, request)
        for router in self.routers:
            router.members(self._alive, self.now)
