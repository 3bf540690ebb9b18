"""The mind: reads a prompt, asks the policy, remembers what it sent where.

`weigh` and `choose` only look; `commit` is what changes: it charges the worker and writes the holders table. So
`explain` is the same code without the last step, and a retry weighs nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.contracts import Ask, Policy, Ranked
from router.core.choose import Choice, choose
from router.core.fingerprint import fingerprint, seed_of
from router.core.fleet import Fleet, Seat
from router.core.holders import Holders
from router.core.ladder import Ladder
from router.core.load import Lease, Traffic
from router.prompt import Prompt
from router.types import Key

NO_KEY = Key(0, 0, 0)
MOST_SEEDS, LONGEST_REMEMBERED = 4096, 512


class Caller:
    """What comes with a request besides its prompt: who asks, in which session, with which id for its prefix."""

    tenant: str | None = None
    session: str | None = None
    prefix_id: str | None = None


class Mind:
    def __init__(self, fleet: Fleet, policy: Policy, ladder: Ladder | None = None, holders: Holders | None = None):
        self.fleet = fleet
        self.policy = policy
        self.ladder = Ladder() if ladder is None else ladder
        self.holders = Holders() if holders is None else holders
        self._traffic = Traffic()
        self._turn = 0
        self._seeds: dict[tuple[str | None, ...], int] = {}

    def weigh(
        self, prompt: Prompt, caller: Caller, body: bytes = b"", *, native: bool = False, count: bool = True
    ) -> Ask:
        """Hash the prompt and look up who holds it. With `count` the ladder counts it as recent traffic."""
        parts = (prompt.model, caller.tenant, prompt.cache_salt, prompt.cache_key, caller.prefix_id)
        seed = self._seeds.get(parts)
        if seed is None:
            seed = self._remember_seed(parts)
        prefix = fingerprint(prompt.text, seed)
        turn = self._turn
        self._turn = turn + count
        workers = len(self.fleet.seats)
        key = (self.ladder.note if count else self.ladder.look)(prefix, workers) if prompt.text else NO_KEY
        held = self.holders.look(prefix) if prefix.hashes else {}
        return Ask(prefix, key, held, seed, prompt.text, caller.session, native, body, turn)

    def choose(self, ask: Ask, model: str | None, tried: Sequence[str], now: float) -> Choice | None:
        """The worker for this request now, or None when no usable worker fits."""
        fleet = self.fleet
        return choose(self.policy, ask, fleet.candidates(model), fleet.seats, tried, now)

    def commit(self, ask: Ask, choice: Choice, now: float, *, streaming: bool) -> Lease:
        """The request goes there: charge it, and remember that it will hold the prefix."""
        seat = choice.seat
        tokens = ask.prefix.tokens
        new = max(tokens - choice.expected, 1.0)
        if now >= self._traffic.next_at:
            self._fade(now)
        seat.load.traffic += tokens
        if ask.prefix.hashes:
            self.holders.note(ask.prefix, seat.id, new)
        return seat.load.charge(new, now, streaming=streaming)

    def _fade(self, now: float) -> None:
        factor: float = 0.5 ** self._traffic.halvings(now)
        for seat in self.fleet.seats.values():
            seat.load.traffic *= factor

    def rank(self, ask: Ask, model: str | None, now: float) -> list[Ranked]:
        """The whole order, for explanations."""
        return list(self.policy.order(ask, self.fleet.candidates(model), now))

    def lost(self, seat: Seat) -> None:
        """The worker's process went away, and its cache with it."""
        self.holders.forget(seat.id)

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
