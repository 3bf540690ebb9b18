"""What engines publish of their KV caches, over ZMQ: one subscriber a worker, and the engines' word for the mind.

Messages are read by `kv_follower.py` and `kv_wire.py`, and what follows from them is in `core/blocks.py` and
`core/rungs.py`: here are the sockets, and what the mind and the wiring call.

Where the engine connects to us (`bind`), several workers may share the endpoint, told apart by their topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from router.clock import monotonic
from router.contracts import Ask
from router.core.fleet import Seat
from router.core.rungs import Rungs
from router.signals.kv_follower import Follower
from router.signals.tokenize import Tokenizer
from router.types import KvSource, News, Worker

log = logging.getLogger("router")

MOST_BYTES = 256 << 20  # a message; with a larger one the connection ends, for good, and that is no way to refuse one
MOST_QUEUED = 10_000  # messages that wait in ZMQ; more are dropped, which shows as a gap
FIRST_DELAY, MOST_DELAY = 0.2, 5.0  # seconds until an endpoint that cannot be used is tried again
SILENCE = 60.0  # seconds from a connection's beginning
BEAT = 5000  # milliseconds; three beats without an answer and the connection is made anew


class Subscription:
    """One socket. It reconnects by itself; what it was told is handed to the follower with the longest topic."""

    def __init__(self, context: Any, source: KvSource) -> None:
        self.followers: dict[bytes, list[Follower]] = {}  # of those that share a topic the latest is heard
        self._context = context
        self._source = source
        self._socket: Any = None
        self._task = asyncio.create_task(self._run(), name=f"kv events {source.endpoint}")

    def follow(self, topic: bytes, follower: Follower) -> None:
        those = self.followers.setdefault(topic, [])
        if those:
            log.error("KV events: %s and another worker publish at the same place; give topics", follower.worker)
        elif self._socket is not None:
            self._socket.subscribe(topic)
        those.append(follower)

    def leave(self, topic: bytes, follower: Follower) -> None:
        those = self.followers[topic]
        those.remove(follower)
        if not those:
            del self.followers[topic]
            if self._socket is not None:
                self._socket.unsubscribe(topic)

    def stop(self) -> None:
        self._task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        import zmq

        delay, told = FIRST_DELAY, False
        while True:
            try:
                with self._open() as socket:
                    delay, told = FIRST_DELAY, False
                    await self._listen(socket)
            except (zmq.ZMQError, OSError) as wrong:
                if not told:
                    told = True
                    log.error("KV events: %s cannot be used (%s)", self._source.endpoint, wrong)
            await asyncio.sleep(delay)
            delay = min(2 * delay, MOST_DELAY)

    async def _listen(self, socket: Any) -> None:
        """Until nothing came at all for a while: ZMQ never calls again where it was once answered in another
        protocol, as by a port that serves something else."""
        try:
            async with asyncio.timeout(SILENCE) as limit:
                while True:
                    frames = await socket.recv_multipart()
                    limit.reschedule(None)
                    self._hand_over(frames)
                    await asyncio.sleep(0)  # requests have their turn between two messages
        except TimeoutError:
            return

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import zmq

        socket = self._context.socket(zmq.SUB)
        try:
            for option, value in (
                (zmq.LINGER, 0), (zmq.RCVHWM, MOST_QUEUED), (zmq.MAXMSGSIZE, MOST_BYTES), (zmq.IPV6, 1),
                (zmq.RECONNECT_IVL, 100), (zmq.RECONNECT_IVL_MAX, 5000), (zmq.HEARTBEAT_IVL, BEAT),
                (zmq.HEARTBEAT_TIMEOUT, 3 * BEAT),
            ):  # fmt: skip
                socket.setsockopt(option, value)
            for topic in self.followers:
                socket.subscribe(topic)
            (socket.bind if self._source.bind else socket.connect)(self._source.endpoint)
            self._socket = socket
            yield socket
        finally:
            self._socket = None
            socket.close()

    def _hand_over(self, frames: list[bytes]) -> None:
        fitting = [topic for topic in self.followers if frames[0].startswith(topic)]
        if fitting:
            follower = self.followers[max(fitting, key=len)][-1]
            try:
                follower.take(frames)
            except Exception:  # a fault of ours in one message must not end the listening
                follower.miss("malformed")
                log.warning("KV events of %s could not be read", follower.worker, exc_info=True)


class KvEvents:
    """The engines' word, for the mind. ImportError where pyzmq is missing. To be built on a running event loop."""

    def __init__(self, rungs: Rungs, tokenizer: Tokenizer) -> None:
        try:
            import zmq.asyncio
        except ImportError:
            raise ImportError("KV events need pyzmq: pip install 'prefix-router[events]'") from None
        self.rungs = rungs
        self.tokenizer = tokenizer
        self.overrule = rungs.overrule
        self.followers: dict[str, Follower] = {}
        self._context = zmq.asyncio.Context()
        self._subscriptions: dict[tuple[str, bool], Subscription] = {}
        self._sources: dict[str, KvSource] = {}

    def sent(self, ask: Ask, seat: Seat, now: float) -> None:
        """A request was sent there: it will hold the prefix, and may be asked which tokens it reads."""
        if self.rungs.sent(ask.prefix, seat.id, now) and ask.body and not ask.native:
            self.tokenizer.offer(seat, ask.prefix, ask.body)

    def heard(self, news: News) -> None:
        """Another process or replica sent this there."""
        self.rungs.heard(news.hashes, news.worker, monotonic())

    def lost(self, worker: str) -> None:
        """Its process went away, and its cache with it."""
        if worker in self.followers:
            self.rungs.blocks.lose(worker)

    def follow(self, worker: Worker) -> None:
        """Listen to this worker from now on; to one that changed where it publishes, there. Others are passed over."""
        source = worker.kv_events
        if self._sources.get(worker.id) == source:
            return
        self.leave(worker.id)
        if source is None:
            return
        key = source.endpoint, source.bind
        subscription = self._subscriptions.get(key)
        if subscription is None:
            subscription = self._subscriptions[key] = Subscription(self._context, source)
        follower = self.followers[worker.id] = Follower(worker.id, self.rungs.blocks)
        self._sources[worker.id] = source
        subscription.follow(source.topic.encode(), follower)

    def leave(self, worker: str) -> None:
        """The worker is known no more."""
        source = self._sources.pop(worker, None)
        if source is None:
            return
        follower = self.followers.pop(worker)
        self.rungs.forget(worker)
        self.tokenizer.forget(worker)
        key = source.endpoint, source.bind
        subscription = self._subscriptions[key]
        subscription.leave(source.topic.encode(), follower)
        if not subscription.followers:
            del self._subscriptions[key]
            subscription.stop()

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._subscriptions.values()), self.tokenizer.close())
        self._context.destroy(linger=0)
