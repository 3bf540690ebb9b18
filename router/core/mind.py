"""The mind: reads a prompt, asks the policy, remembers what it sent where.

`weigh` and `choose` only look; `commit` is what changes: it charges the worker and writes the holders table. So
`explain` is the same code without the last step, and a retry weighs nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from router.contracts import Ask, Policy, Ranked, Truth, Usage
from router.core.choose import Choice, choose
from router.core.fading import Fading
from router.core.fingerprint import fingerprint, seed_of
from router.core.fleet import Fleet, Seat
from router.core.holders import Holders
from router.core.ladder import Ladder
from router.core.lengths import Lengths
from router.core.load import LEAST_WORK, SILENT, Lease
from router.core.steps import Text, last_rung, noted, steps_after
from router.core.strangers import Strangers
from router.prompt import IDS, Prompt
from router.types import Fingerprint, Key, News

NO_KEY: Final = Key(0, 0, 0)
FIRST_WORK: Final = 1000.0  # tokens that a request is charged with, and how quickly the mean follows
MEAN_STEP: Final = 0.02
MOSTLY: Final = 0.5
PACES_A_LOOK: Final = 16
MOST_SEEDS: Final = 4096
LONGEST_REMEMBERED: Final = 512


class Caller:
    """What comes with a request besides its prompt: who asks, in which session, with which id for its prefix."""

    tenant: str | None = None
    session: str | None = None
    prefix_id: str | None = None


class Mind:
    """`alone`: no other gateway sends to these workers, or those that do share what they know."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        ladder: Ladder | None = None,
        holders: Holders | None = None,
        *,
        alone: bool = True,
    ) -> None:
        self.fleet = fleet
        self.policy = policy
        self.ladder = Ladder() if ladder is None else ladder
        self.holders = Holders() if holders is None else holders
        self.outbox: list[News] | None = None  # what others should hear, where there are any; whoever sends empties it
        self.truth: Truth | None = None
        self.lengths = Lengths()
        self._fading = Fading()
        self._turn = self._paces = 0
        self._mean_work = FIRST_WORK
        self._strangers = None if alone else Strangers()
        self._seeds: dict[tuple[str | None, ...], int] = {}
        self._tellers: dict[str, tuple[frozenset[str], float]] = {}  # replica -> the workers it named, and until when

    def weigh(
        self, prompt: Prompt, caller: Caller, body: bytes = b"", *, native: bool = False, count: bool = True
    ) -> Ask:
        """Hash the prompt and look up who holds it. With `count` the ladder counts it as recent traffic."""
        parts = (prompt.model, caller.tenant, prompt.cache_salt, prompt.cache_key, caller.prefix_id)
        seed = self._seeds.get(parts)
        if seed is None:
            seed = self._remember_seed(parts)
        text = prompt.text
        kind = prompt.model, text.startswith(IDS)
        prefix = fingerprint(text, seed, self.lengths.bytes_a_token(kind))
        ask = self.weigh_prefix(prefix, seed, text, count=count)
        ask.text, ask.session, ask.native, ask.body = text, caller.session, native, body
        ask.kind, ask.length = kind, len(text)
        return ask

    def weigh_prefix(self, prefix: Fingerprint, seed: int = 0, text: Text = b"", *, count: bool = True) -> Ask:
        """The same for a prompt whose fingerprint is known. Without its text, as in the replay of a log, rungs are all
        there is to tell how far two prompts begin alike."""
        turn = self._turn
        self._turn = turn + count
        if not prefix.tokens:
            return Ask(prefix, NO_KEY, {}, seed, turn=turn)
        workers = len(self.fleet.seats)
        ages: dict[str, float] = {}
        held, deepest = self.holders.look(prefix, ages)
        key = self.ladder.note(prefix, workers, deepest) if count else self.ladder.look(prefix, workers)
        steps = None
        if text and 0 <= deepest <= last_rung(prefix):
            steps = steps_after(prefix, deepest, text)
            if steps is not None:
                self.holders.look_further(steps, held, ages)
        if self.truth is not None:
            self.truth.overrule(prefix, held)
        hashes = noted(prefix, steps, text)
        trust = 0.0 if self._strangers is None else self._strangers.trust
        return Ask(prefix, key, held, seed, turn=turn, ages=ages, hashes=hashes, trust=trust)

    def choose(self, ask: Ask, model: str | None, tried: Sequence[str], now: float) -> Choice | None:
        """The worker for this request now, or None when no usable worker fits."""
        fleet = self.fleet
        return choose(self.policy, ask, fleet.candidates(model), fleet.seats, tried, now)

    def commit(self, ask: Ask, choice: Choice, now: float, *, streaming: bool) -> Lease:
        """The request goes there: charge it, and remember that it will hold the prefix."""
        seat = choice.seat
        tokens = ask.prefix.tokens or 1.0  # so that requests with nothing to hash take turns
        new = tokens - choice.expected
        least = LEAST_WORK * tokens
        if new < least:
            new = least
        if new < 1.0:
            new = 1.0
        if now >= self._fading.next_at:
            self.fleet.fade(0.5 ** self._fading.halvings(now), now)
        seat.load.carry(tokens)
        self.holders.note(ask.hashes, seat.id, new)
        if self.outbox is not None:
            self.outbox.append(News(seat.id, tokens, new, ask.hashes))
        if self.truth is not None:
            self.truth.sent(ask, seat, now)
        self._mean_work += MEAN_STEP * (new - self._mean_work)
        if self._strangers is not None and _is_unknown(ask):
            self._strangers.sent(home=self.fleet.ring.home(ask.key.value) == seat.id)
        lease = ask.lease = seat.load.charge(new, now, streaming=streaming)
        return lease

    def learn(self, ask: Ask, choice: Choice, usage: Usage, now: float) -> None:
        """The answer is over: what the worker reported corrects what is believed of lengths, paces and caches."""
        prefix, seat = ask.prefix, choice.seat
        if usage.prompt is not None:
            self.lengths.learn(ask.kind, ask.length, usage.prompt)
        if usage.cached is not None:
            expected = choice.expected
            if self._strangers is not None:
                known = ask.held.get(seat.id, 0) / prefix.bytes_a_token
                expected = min(expected, known)  # what was only trusted in says nothing of the cache's room
                if usage.prompt and _is_unknown(ask) and self.fleet.ring.home(ask.key.value) == seat.id:
                    self._strangers.found((usage.cached - known) / max(usage.prompt - known, 1.0))
            self.holders.learn(seat.id, ask.ages.get(seat.id), expected, usage.cached)
        lease = ask.lease
        if lease is not None and lease.prefill_seconds is not None:
            self._learn_pace(seat, prefix.tokens, lease.tokens, usage, lease.prefill_seconds)

    def _learn_pace(self, seat: Seat, prompt: float, computed: float, usage: Usage, seconds: float) -> None:
        """Only from prompts that were mostly computed: reading much from a cache takes time that tells nothing."""
        if usage.prompt is not None and usage.cached is not None:
            prompt, computed = float(usage.prompt), float(usage.prompt - usage.cached)
        if computed < MOSTLY * prompt:
            return
        seat.load.learn_pace(computed, seconds)
        self._paces += 1
        if self._paces % PACES_A_LOOK == 0:
            self.fleet.set_speeds()

    def failed(self, ask: Ask, seat: Seat, now: float) -> None:
        """A request failed there, which made the worker look idle: it is not."""
        seat.load.penalise(ask.prefix.tokens, now)

    def hear_queue(self, seat: Seat, waiting: int, now: float, lasting: float) -> None:
        """The worker says how many requests wait there, whoever sent them."""
        load, work = seat.load, self._mean_work
        if self._strangers is not None:
            load.apart = True
            work = self._strangers.looked(load.waiting, load.charged)
        load.hear_queue(waiting, work, now, lasting)

    def hear(self, news: News) -> None:
        """Another process or replica sent this: the worker holds it. Of workers unknown here nothing is kept."""
        seat = self.fleet.seats.get(news.worker)
        if seat is not None:
            seat.load.carry(news.tokens)
            self.holders.note(news.hashes, news.worker, news.computed)
            if self.truth is not None:
                self.truth.heard(news)

    def loads(self, now: float) -> list[tuple[str, int, float]]:
        """What other replicas should know of this one's load: worker, requests and tokens waiting there, where any."""
        return [
            (seat.id, seat.load.waiting, round(seat.load.left(now), 1))
            for seat in self.fleet.seats.values()
            if seat.load.waiting
        ]

    def hear_loads(self, teller: str, loads: Iterable[tuple[str, int, float]], until: float) -> None:
        """All that another replica has waiting now; it counts until then. Only the workers that it names now or
        named before are looked at: of many replicas each has requests at few of many workers."""
        told = {worker: (waiting, charged) for worker, waiting, charged in loads}
        for worker in told.keys() | self._tellers.pop(teller, (frozenset(), until))[0]:
            seat = self.fleet.seats.get(worker)
            if seat is not None:
                waiting, charged = told.get(worker, (0, 0.0))
                seat.load.hear_replica(teller, waiting, charged, until)
        if told:
            silent = [name for name, (_, last) in self._tellers.items() if last < until - SILENT]
            for name in silent:
                del self._tellers[name]
            self._tellers[teller] = frozenset(told), until

    def rank(self, ask: Ask, model: str | None, now: float) -> list[Ranked]:
        """The whole order, for explanations."""
        return list(self.policy.order(ask, self.fleet.candidates(model), now))

    def lost(self, seat: Seat) -> None:
        """The worker's process went away, and its cache with it."""
        self.holders.forget(seat.id)
        if self.truth is not None:
            self.truth.lost(seat.id)

    def left(self, seat: Seat) -> None:
        """The worker is known no more."""
        self.holders.remove(seat.id)

    def _remember_seed(self, parts: tuple[str | None, ...]) -> int:
        seed = seed_of(*parts)
        if sum(len(part) for part in parts if part) <= LONGEST_REMEMBERED:
            if len(self._seeds) >= MOST_SEEDS:
                self._seeds.clear()
            self._seeds[parts] = seed
        return seed


def _is_unknown(ask: Ask) -> bool:
    """Nobody is known to hold this prompt as far as its key."""
    return bool(ask.prefix.tokens) and max(ask.held.values(), default=0) < max(ask.key.depth, 1)
