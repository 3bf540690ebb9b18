"""What the gateway hears besides its own requests: workers' queues, engines' KV events, other replicas.

Each part is there where it is of use, and only makes decisions better: whatever of it is lost, late or absent, requests
go on.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Any

from router.core.blocks import Blocks
from router.core.fleet import Changes
from router.core.rungs import Rungs
from router.dialects._engine_metrics import engine_report
from router.house import House
from router.settings import Settings
from router.signals.queues import Queues
from router.signals.redis_channel import RedisChannel
from router.signals.sharing import Sharing
from router.signals.tokenize import Tokenizer

log = logging.getLogger("router")

SHARED = ("sent", "received", "dropped", "garbage")
ALONE, TOGETHER = 0.0, 0.1  # seconds between two looks at a queue


class Outside:
    """Begins with `follow`, on the running loop; `close` ends all of it.

    sharing: what goes to other processes and replicas; there once somebody asks for it with `share`
    """

    def __init__(self, house: House, settings: Settings, dice: Random) -> None:
        self._house, self._settings, self._dice = house, settings, dice
        self.sharing: Sharing | None = None
        self.redis: RedisChannel | None = None
        self.events: Any = None  # KvEvents, whose module needs pyzmq
        self._queues: Queues | None = None

    def share(self) -> Sharing:
        if self.sharing is None:
            self.sharing = Sharing(self._house.mind, self._house.clock)
        return self.sharing

    def open(self, family: str) -> None:
        """Join the other replicas. `family`: what the processes of one gateway have in common."""
        url = self._settings.share
        self._queues = self._new_queues()
        if url is not None:
            sharing = self.share()
            self.redis = RedisChannel(url, sharing.receive, family=family)
            sharing.join(self.redis, far=True)

    def adopt(self, settings: Settings) -> None:
        """Go by these settings from now on: queues may be looked at at another pace, or with other certificates."""
        before, self._settings = (self._queue_seconds(), self._settings.connections), settings
        if self._queues is not None and (self._queue_seconds(), settings.connections) != before:
            self._queues.close()
            self._queues = self._new_queues()
            for seat in self._house.fleet.seats.values():
                self._queues.follow(seat)

    def _new_queues(self) -> Queues:
        house = self._house
        seconds = self._queue_seconds()
        return Queues(house.mind, engine_report, seconds, house.sweep, house.tls, self._dice, house.resolver)

    def follow(self, changes: Changes) -> None:
        """Make what is listened to equal to the fleet. Before `open` and after `close` nothing is."""
        queues = self._queues
        if queues is None:
            return
        for seat in changes.left:
            queues.leave(seat)
            if self.events is not None:
                self.events.leave(seat.id)
        for seat in changes.joined + changes.updated:
            queues.follow(seat)
            if seat.worker.kv_events is not None or self.events is not None:
                self._listen().follow(seat.worker)

    def heard(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Counts for the metrics, by the counter's name and its label values."""
        counts: dict[str, dict[tuple[str, ...], float]] = {}
        if self.sharing is not None:
            counts["shared"] = {(kind,): getattr(self.sharing, kind) for kind in SHARED}
        if self.events is not None:
            rungs = self.events.rungs
            counts["kv_matches"] = {("matched",): rungs.matched, ("fallback",): rungs.fallback}
            counts["kv_events"] = {
                (worker, kind): many
                for worker, follower in self.events.followers.items()
                for kind, many in follower.counts.items()
            }
        return counts

    async def close(self) -> None:
        queues, self._queues = self._queues, None
        if queues is not None:
            queues.close()
        if self.sharing is not None:
            await self.sharing.close()
        if self.events is not None:
            await self.events.close()

    def _queue_seconds(self) -> float:
        settings = self._settings
        if settings.signals.queue_seconds is not None:
            return settings.signals.queue_seconds
        others = settings.share is not None or settings.routing.replicas > 1 or settings.listen.processes != 1
        return TOGETHER if others else ALONE

    def _listen(self) -> Any:
        if self.events is None:
            from router.signals.kv_events import KvEvents

            rungs = Rungs(Blocks())
            self.events = KvEvents(rungs, Tokenizer(rungs, self._house.tls))
            self._house.mind.truth = self.events
        return self.events
