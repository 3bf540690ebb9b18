"""The model of a worker, in seconds and tokens.

One prefill engine, first come, first served (chunked prefill ends requests in the same order); any number of decodes;
a cache of prefix blocks in which the least recently used leaves first. With `decodes` running,

    prefill = (start + uncached / rate + cached / (20 * rate)) * (1 + 0.02 * decodes)
    decode  = output * (0.012 + 0.0004 * decodes), half as much again while a prefill runs

What is cached is looked up when prefill starts, and a prompt's blocks are there once it ends: a request that waits
behind one with the same beginning profits. The constants are those of an 8B model on one data-centre GPU, roughly.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Sequence

import msgspec

from router.replay.item import Item, Request


class Timing(msgspec.Struct, frozen=True):
    """rate: prefill tokens a second; start: seconds of any prefill; slowing: of prefill, for each running decode
    token, token_each: seconds of an output token alone, and more for each running decode
    """

    rate: float = 20_000.0
    start: float = 0.005
    slowing: float = 0.02
    token: float = 0.012
    token_each: float = 0.0004

    def alone(self, uncached: int, cached: int = 0) -> float:
        """Prefill of a request that has the worker to itself."""
        return self.start + uncached / self.rate + cached / (20 * self.rate)


class Cache:
    """Prefix blocks by name, least recently used first. Of one prompt the leaves leave first, so that the set is
    closed: whoever is in has its predecessors in."""

    __slots__ = ("_held", "room", "tokens")

    def __init__(self, room: int) -> None:
        self.room = room
        self.tokens = 0
        self._held: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: int) -> bool:
        return name in self._held

    def match(self, item: Item, promised: Container[int] = ()) -> int:
        """Tokens of this prompt that are cached (or promised). At least one is always computed."""
        held, names = self._held, item.names
        low, high = 0, len(names)
        while low < high:
            middle = (low + high + 1) // 2
            name = names[middle - 1]
            if name in held or name in promised:
                low = middle
            else:
                high = middle - 1
        return min(item.ends[low - 1], item.tokens - 1) if low else 0

    def touch(self, names: Sequence[int], ends: Sequence[int]) -> None:
        """The prompt was computed: its blocks are in, most recent at its beginning; what no longer fits is out."""
        held = self._held
        recent = held.move_to_end
        for at in range(len(names) - 1, -1, -1):
            name = names[at]
            if name in held:
                recent(name)
            else:
                size = ends[at] - (ends[at - 1] if at else 0)
                held[name] = size
                self.tokens += size
        while self.tokens > self.room:
            self.tokens -= held.popitem(last=False)[1]


class SimulatedWorker:
    """`speed` divides every time. With `foresight` it also knows what its queue will cost and leave in the cache,
    which only the reference asks for."""

    def __init__(self, name: str, room: int, timing: Timing, speed: float = 1.0, *, foresight: bool = False) -> None:
        self.id = name
        self.timing = timing
        self.speed = speed
        self.cache = Cache(room)
        self.queue: deque[Request] = deque()
        self.current: Request | None = None
        self.decodes = 0
        self.busy = 0.0  # seconds of prefill
        self.served = 0
        self.alive = True
        self._ends_at = 0.0
        self._queued = 0.0  # seconds of prefill in the queue
        self._promised: dict[int, int] | None = {} if foresight else None

    def __repr__(self) -> str:
        return f"<SimulatedWorker {self.id}, {self.waiting} waiting, {self.decodes} decoding>"

    @property
    def waiting(self) -> int:
        """Requests without a first token: what an engine's metrics call waiting, and the one in prefill."""
        return len(self.queue) + (self.current is not None)

    def wait(self, now: float) -> float:
        """Seconds of prefill before a new request's would start; needs foresight."""
        return self._queued + (max(0.0, self._ends_at - now) if self.current is not None else 0.0)

    def prefill_seconds(self, tokens: int, hit: int) -> float:
        return self.timing.alone(tokens - hit, hit) * (1 + self.timing.slowing * self.decodes) / self.speed

    def expected_hit(self, item: Item) -> int:
        """What a request sent now would find cached, with foresight."""
        return self.cache.match(item, self._promised or ())

    def enqueue(self, request: Request) -> None:
        request.worker = self.id
        promised = self._promised
        if promised is not None:
            item = request.item
            request.estimate = self.prefill_seconds(item.tokens, self.expected_hit(item))
            self._queued += request.estimate
            for name in item.names:
                promised[name] = promised.get(name, 0) + 1
        self.queue.append(request)

    def start(self, now: float) -> float | None:
        """Begin the next prefill if there is one and none runs; when it will end."""
        if self.current is not None or not self.queue:
            return None
        request = self.current = self.queue.popleft()
        self._queued = max(0.0, self._queued - request.estimate) if self.queue else 0.0
        request.hit = self.cache.match(request.item)
        seconds = self.prefill_seconds(request.item.tokens, request.hit)
        self.busy += seconds
        self._ends_at = now + seconds
        return self._ends_at

    def first_token(self) -> None:
        """The running prefill is over, and its request decodes from now on."""
        request = self.current
        if request is None:
            return
        self.cache.touch(request.item.names, request.item.ends)
        self._fulfil(request)
        self.served += 1
        self.decodes += 1
        self.current = None

    def decode_seconds(self, output: int) -> float:
        """How long a request that begins to decode now will take."""
        each = self.timing.token + self.timing.token_each * self.decodes
        return output * each * (1.5 if self.current is not None else 1.0) / self.speed

    def leave(self) -> list[Request]:
        """Take no more; what has no first token yet must go elsewhere, decodes go on to their end."""
        moved = [*([self.current] if self.current is not None else []), *self.queue]
        for request in moved:
            self._fulfil(request)
            request.worker = None
        self.alive = False
        self.current = None
        self.queue.clear()
        self._queued = 0.0
        return moved

    def _fulfil(self, request: Request) -> None:
        promised = self._promised
        if promised is None:
            return
        for name in request.item.names:
            left = promised[name] - 1
            if left:
                promised[name] = left
            else:
                del promised[name]
