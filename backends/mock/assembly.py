"""The parts of a mock worker put together: the only place that knows them all."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.face import Access, Face
from backends.kv_events import KvEvents
from backends.mock.engine import MockEngine, Shape, Time
from backends.mock.faults import Faults, Rule
from backends.mock.trouble import Control, Trouble
from backends.prefix_cache import PrefixCache
from backends.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that can be chosen about a mock worker."""

    shape: Shape
    host: str = "127.0.0.1"
    port: int = 0
    control_port: int | None = None
    cache_blocks: int = 4096
    block_tokens: int = 16
    access: Access = field(default_factory=Access)
    ready_after: float = 0.0
    faults: Sequence[Rule] = ()
    kv_events: str | None = None
    kv_events_topic: str = ""


class MockWorker:
    """A worker that is not listening yet. Raises MissingExtraError or OSError where the plan's KV events cannot be."""

    def __init__(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        self._events = (
            KvEvents(plan.kv_events, plan.block_tokens, loop.call_soon, plan.kv_events_topic)
            if plan.kv_events is not None
            else None
        )
        cache = PrefixCache(plan.cache_blocks, plan.block_tokens, self._events)
        self.engine = MockEngine(plan.shape, cache, Time(time.monotonic, loop.call_later))
        dice = random.Random(plan.shape.seed)  # noqa: S311 - dice, not secrets
        faults = Faults(plan.faults, dice)
        self.control = Control(faults, loop.call_later)
        opens = time.monotonic() + plan.ready_after
        self.face = Face(self.engine, plan.access, lambda: time.monotonic() >= opens, self.control.routes)
        self.server = Server(Trouble(self.face, faults, loop.call_later), plan.host, plan.port)
        self.control.server = self.server
        self.servers = [self.server]
        if plan.control_port is not None:
            self.servers.append(Server(self.face, plan.host, plan.control_port))

    def close(self) -> None:
        """Gives back ports, connections, sequences and sockets."""
        for server in self.servers:
            server.stop()
        self.engine.close()
        if self._events is not None:
            self._events.close()
