"""A channel to other gateways over one capped Redis stream.

Every gateway appends its batches to the stream and reads everybody's. Who starts reads the stream from its beginning
first, so that a restarted gateway knows what the others knew. Batches of the gateway itself are passed over, and those
of its family too (the processes of one machine, which tell each other directly) unless they are from before its start.

Redis may be absent, slow, full, restarted or lost half way: then batches wait for a moment, the oldest are dropped, and
it is tried again with growing delays. Nobody waits for that. One line in the log says that it was lost, one that it is
back; neither shows the address's password.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from random import Random
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from router.clock import monotonic

log = logging.getLogger("router")

MOST_ENTRIES = 4096  # kept in the stream, about; at 20 ms a batch and full load the last eighty seconds of one gateway
MOST_WAITING = 128  # batches that wait to be sent: some seconds of them
PAGE = 16  # entries read, or written, at a time: between two pages requests have their turn
BLOCK = 5.0  # seconds that a read waits for news
FIRST_DELAY, MOST_DELAY = 0.1, 5.0  # seconds between two tries; doubled each time, and half of it is left to chance
SENDER, FAMILY, BATCH = b"s", b"f", b"b"
BEGINNING = b"0-0"


class RedisChannel:
    """Connects by itself, again and again, until it is closed. To be built on a running event loop.

    group: gateways with the same one hear each other
    family: gateways with the same one hear each other elsewhere too; empty: it has none
    patience: seconds until a Redis that does not answer counts as lost
    sent, received, dropped, garbage: batches
    """

    def __init__(
        self,
        url: str,
        on_batch: Callable[[bytes], None],
        group: str = "prefix_router",
        family: str = "",
        *,
        patience: float = 1.0,
        dice: Random | None = None,
    ) -> None:
        self._redis = _Library(url, patience)
        self._url = url
        self._shown = without_credentials(url)
        self._on_batch = on_batch
        self._key = f"{group}:news"
        self._sender = token_hex(8).encode()
        self._family = family.encode()
        self._patience = patience
        self._dice = dice or Random()  # noqa: S311 - when to try again is no secret
        self._waiting: deque[bytes] = deque()
        self._something = asyncio.Event()
        self._place = self._start = BEGINNING  # the latest entry read; the latest there was at the start
        self._began = self._told = self._refused = self._closed = self.connected = False
        self.sent = self.received = self.dropped = self.garbage = 0
        self._task = asyncio.create_task(self._run(), name="news over redis")

    def send(self, batch: bytes) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(batch)
        self._something.set()

    async def close(self) -> None:
        self._closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.connected = False

    # Coming and going.

    async def _run(self) -> None:
        delay = FIRST_DELAY
        while True:
            began = monotonic()
            try:
                async with self._redis.client() as reader, self._redis.client() as writer:
                    await self._find_place(reader)
                    if not self._refused:
                        self._well()
                    await self._both(reader, writer)
            except Exception as wrong:  # whatever Redis or its library comes up with, requests must not notice
                if self._closed:  # a task group that failed just then took the cancellation for its own
                    return
                self._lost(wrong)
            if monotonic() - began > MOST_DELAY:  # it was well for a while; one that fails at once is left alone
                delay = FIRST_DELAY
            await asyncio.sleep(delay * (0.5 + 0.5 * self._dice.random()))
            delay = min(delay * 2, MOST_DELAY)

    def _well(self) -> None:
        self.connected = True
        if self._told:
            log.info("%s is back: news are shared with other gateways again", self._shown)
        self._told = False

    def _lost(self, wrong: Exception) -> None:
        self.connected = False
        if not self._told:
            self._told = True
            cause = _first_of(wrong)
            log.warning(
                "%s cannot be used (%s: %s): other gateways are not heard until it is back",
                self._shown, type(cause).__name__, str(cause)[:200].replace(self._url, self._shown),
            )  # fmt: skip

    async def _both(self, reader: Any, writer: Any) -> None:
        """Read and write until one of them fails, which ends the other."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(reader), name="news come in")
            group.create_task(self._write(writer), name="news go out")

    async def _find_place(self, client: Any) -> None:
        """Go on after the latest entry read, unless the stream is not the one it was read from."""
        async with asyncio.timeout(self._patience):
            newest = await client.execute_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            await client.execute_command("XREAD", "COUNT", 1, "STREAMS", self._key, "$")
        latest = newest[0][0] if newest else BEGINNING
        if _order(latest) < _order(self._place):
            self._place = BEGINNING  # begun anew, with a clock that is behind
        if not self._began:
            self._began, self._start = True, latest

    # What goes out, what comes in.

    async def _write(self, client: Any) -> None:
        while True:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(PAGE, len(self._waiting)))]
                try:
                    await self._append(client, some)
                except BaseException as wrong:
                    self.dropped += len(some)  # not sent again: they may have arrived
                    self._refused = isinstance(wrong, self._redis.refusals)
                    raise
                self.sent += len(some)
                if self._refused:
                    self._refused = False
                    self._well()
            self._something.clear()
            await self._something.wait()

    async def _append(self, client: Any, batches: list[bytes]) -> None:
        pipeline = client.pipeline(transaction=False)
        for batch in batches:
            pipeline.execute_command(
                "XADD", self._key, "MAXLEN", "~", MOST_ENTRIES, "*",
                SENDER, self._sender, FAMILY, self._family, BATCH, batch,
            )  # fmt: skip
        async with asyncio.timeout(self._patience):
            await pipeline.execute()

    async def _read(self, client: Any) -> None:
        block = int(BLOCK * 1000)
        while True:
            async with asyncio.timeout(BLOCK + self._patience):
                answer = await client.execute_command(
                    "XREAD", "COUNT", PAGE, "BLOCK", block, "STREAMS", self._key, self._place
                )
            for _, entries in answer or ():
                for name, fields in entries:
                    self._place = name
                    self._take(name, fields)
            await asyncio.sleep(0)

    def _take(self, name: bytes, fields: dict[bytes, bytes]) -> None:
        batch = fields.get(BATCH)
        if batch is None or SENDER not in fields:
            self.garbage += 1
            return
        relative = bool(self._family) and fields.get(FAMILY) == self._family
        if fields[SENDER] == self._sender or (relative and _order(name) > _order(self._start)):
            return
        self.received += 1
        try:
            self._on_batch(batch)
        except Exception:
            log.debug("a batch from another gateway could not be taken in", exc_info=True)


class _Library:
    """What this file needs of the Redis library, which only those who share have: clients that fail at once, since
    trying again is ours. ImportError without the library, ValueError for an address it cannot read."""

    def __init__(self, url: str, patience: float) -> None:
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import ResponseError
        except ImportError:
            raise ImportError("sharing over Redis needs redis: pip install 'prefix-router[redis]'") from None
        self.refusals = ResponseError
        self._patience = patience

        def make() -> Any:
            # Its own `socket_timeout` stays off: it waits by `asyncio.wait_for`, which in Python 3.11 may take a
            # cancellation for an answer. Times are limited here instead.
            return Redis.from_url(
                url, protocol=2, decode_responses=False, retry=Retry(NoBackoff(), 0), max_connections=1,
                socket_timeout=None, socket_connect_timeout=patience,
            )  # fmt: skip

        self._make = make
        make()  # a bad address is told at once

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        client = self._make()
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(self._patience):
                    await client.connection_pool.disconnect()


def without_credentials(url: str) -> str:
    """The address as it may be shown: no user, no password, no query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _first_of(wrong: BaseException) -> BaseException:
    """Of failures that came together, the first."""
    while isinstance(wrong, BaseExceptionGroup):
        wrong = wrong.exceptions[0]
    return wrong


def _order(name: bytes) -> tuple[int, int]:
    """Entry names are `milliseconds-number`."""
    milliseconds, _, number = name.partition(b"-")
    return int(milliseconds), int(number or 0)
