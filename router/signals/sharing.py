"""What processes and replicas tell each other: which worker was sent which prefix, and what waits there.

The mind leaves its news in an outbox; 20 ms after the first one all of them go out as one batch, on every channel. A
batch is the MessagePack array `[version, teller, [news...], [loads...]]`. Loads go to other machines only, whenever
they changed, and while something waits at least a few times a second: the processes of one machine share a table of
them. What comes in is checked and told to the mind, which passes over
workers it does not know. All of it is best effort: what is lost, late or told twice makes a decision worse, and no
request ever waits for it or fails by it.

Why a timer armed by the first news, and not one that always runs: an idle gateway then does nothing at all, and the
price is one look at the list's length a request. Measured for prompts of 46 hashes (256 KB), on one core: 0.1 us a
request for the outbox, 0.3 us a news to encode, 1.2 us to decode and check, 0.4 us for what the mind does with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import msgspec

from router.contracts import Channel
from router.core.mind import Mind
from router.core.steps import MOST_NOTED
from router.types import News

log = logging.getLogger("router")

VERSION = 2
PAUSE = 0.02  # seconds that news wait for company; far less than a prefill, after which the worker holds the prefix
MOST_NEWS = 256  # a batch: about 100 KB
MOST_WAITING = 8192  # news kept between two batches, more than a process can decide on in that time
MOST_BYTES = 1 << 20  # a batch taken in
MOST_TOKENS = 1e8  # a prompt; more is no number to believe
MOST_SUM = 1e12  # tokens waiting at one worker
ANEW = 1.0  # seconds after which a prefix is told again by its hashes, in case somebody came late or missed it
MOST_TOLD = 16_384  # prefixes remembered as told
BELIEVED, REPEATED = 1.0, 0.3  # seconds that loads count, and after which they are told again though unchanged
MOST_LOADS, MOST_REQUESTS = 4096, 1_000_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str, list[News], list[tuple[str, int, float]]]).decode


class Outbox(list[News]):
    """The list that the mind appends to; `wake` is called when it is empty no more."""

    def __init__(self, wake: Callable[[], object]) -> None:
        super().__init__()
        self._wake = wake
        self.dropped = 0

    def append(self, news: News) -> None:
        size = len(self)
        if not size:
            self._wake()
        elif size >= MOST_WAITING:
            self.dropped += 1
            return
        list.append(self, news)


class Sharing:
    """Between the mind and its channels. A channel is built with `receive` as its callback, then joins.

    sent, received: news, counted once however many channels there are; those of warm prefixes are one sum a worker
    garbage: batches, and news in them, that were no news
    """

    def __init__(self, mind: Mind, clock: Callable[[], float]) -> None:
        self._mind = mind
        self._clock = clock
        self._teller = token_hex(8)
        self._channels: list[Channel] = []
        self._far: list[Channel] = []
        self._known: set[tuple[str, int]] = set()  # what the others were told lately: a worker, a prefix's last hash
        self._anew_at = 0.0
        self._told: list[tuple[str, int, float]] = []  # the loads, as they were last told
        self._told_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.outbox = mind.outbox = Outbox(self._arm)
        self.sent = self.received = self.garbage = self.failed = 0

    @property
    def dropped(self) -> int:
        """News that there was no room for, and batches that a channel refused."""
        return self.outbox.dropped + self.failed

    def join(self, channel: Channel, *, far: bool = False) -> None:
        """From now on this channel is told everything too. `far`: it leads to other machines."""
        self._channels.append(channel)
        if far:
            self._far.append(channel)

    def receive(self, batch: bytes) -> None:
        """A batch came in, on any channel. Must be called on the event loop's thread; takes any bytes."""
        try:
            version, teller, items, loads = _decode(batch) if len(batch) <= MOST_BYTES else (0, "", [], [])
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            version = 0
        if version != VERSION or len(items) > MOST_NEWS or len(loads) > MOST_LOADS:
            self.garbage += 1
            return
        hear = self._mind.hear
        for news in items:
            if _credible(news):
                hear(news)
                self.received += 1
            else:
                self.garbage += 1
        if teller and all(0 <= many <= MOST_REQUESTS and 0.0 <= tokens <= MOST_SUM for _, many, tokens in loads):
            self._mind.hear_loads(teller, loads, self._clock() + BELIEVED)

    def flush(self) -> None:
        """Send what waits, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = self._thinned(self.outbox)
        self.outbox.clear()
        for start in range(0, len(waiting), MOST_NEWS):
            some = waiting[start : start + MOST_NEWS]
            self._send(self._channels, _encode((VERSION, "", some, [])))
            self.sent += len(some)
        if self._far:
            self._tell_loads()

    async def close(self) -> None:
        """Say the last, then close every channel."""
        self._mind.outbox = None
        self.flush()
        self._far = []
        if self._timer is not None:
            self._timer.cancel()
        channels, self._channels = self._channels, []
        closed: list[Any] = await asyncio.gather(*(each.close() for each in channels), return_exceptions=True)
        for wrong in closed:
            if isinstance(wrong, Exception):
                log.warning("a channel to other gateways did not close well (%s)", type(wrong).__name__)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self.flush)

    def _thinned(self, many: list[News]) -> list[News]:
        """Without the hashes of what the others were just told: a warm prefix goes to the same worker again and again,
        and only its tokens are news then. Those are told in one sum a worker, as all that is done with them is to add
        them up."""
        now, known = self._clock(), self._known
        if now >= self._anew_at or len(known) > MOST_TOLD:
            known.clear()
            self._anew_at = now + ANEW
        thinned: list[News] = []
        sums: dict[str, tuple[float, float]] = {}
        for news in many:
            worker, hashes = news.worker, news.hashes
            if hashes:
                told = worker, hashes[-1]
                if told not in known:
                    known.add(told)
                    thinned.append(news)
                    continue
            tokens, computed = sums.get(worker, (0.0, 0.0))
            if tokens and tokens + news.tokens > MOST_TOKENS:  # nobody would believe more of one news
                thinned.append(News(worker, tokens, computed, []))
                tokens = computed = 0.0
            sums[worker] = tokens + news.tokens, computed + news.computed
        thinned += [News(worker, tokens, computed, []) for worker, (tokens, computed) in sums.items()]
        return thinned

    def _tell_loads(self) -> None:
        """Tell them where they changed, and look again soon while something waits."""
        now = self._clock()
        loads = self._mind.loads(now)
        if loads != self._told or (loads and now - self._told_at >= REPEATED):
            self._told, self._told_at = loads, now
            self._send(self._far, _encode((VERSION, self._teller, [], loads[:MOST_LOADS])))
        if loads:
            self._arm()

    def _send(self, channels: list[Channel], batch: bytes) -> None:
        for channel in channels:
            try:
                channel.send(batch)
            except Exception:  # a channel must not raise; one that does takes nothing else with it
                self.failed += 1
                log.debug("a channel to other gateways refused a batch", exc_info=True)


def _credible(news: News) -> bool:
    """Numbers of other processes go into sums that are never reset: infinities and the like would stay there.

    False for a NaN too, as all comparisons with it are.
    """
    return 0.0 <= news.tokens <= MOST_TOKENS and 0.0 <= news.computed <= MOST_TOKENS and len(news.hashes) <= MOST_NOTED
