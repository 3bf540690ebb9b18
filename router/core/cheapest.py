"""The order by cost, without looking at everybody: the rule is told in `policies/prefix_cost.py`.

Those that hold something of the prompt, and its home, are looked at one by one. Of the others there are bounds: no
one costs less than it would with nothing waiting, and among many they come in an order of what they cost at least
(`standing.py`). So the first is found, and its equals, once no further one can cost as little. What is chosen is what
looking at everybody would choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice, takewhile
from math import inf
from typing import Final, TypeVar

from router.asks import Ask, Ranked
from router.contracts import Candidate, Promise, Ring
from router.core.balance import by_work, requests_for_weight
from router.core.candidates import Candidates
from router.core.price import EQUAL_SHARE, Price, Weights
from router.core.seat import Seat
from router.core.standing import SAFE, SMALL, Standing
from router.types import Reason

NEARLY: Final = SAFE * SAFE * SAFE  # a bound this near is not worth looking behind: less than rounding lies between
One = TypeVar("One", bound=Candidate)

FIRST: Final = 8  # of the ring are looked at before all that are equal are looked for
FEW: Final = 2  # holders among a small fleet: with more it is as soon to look at all at once
MANY: Final = 16  # equals of a hot prefix, after which it is sooner to go by their requests in flight


class Cheapest:
    """slo: the promise that the first keeps where one that keeps it is there; None for none."""

    def __init__(self, ring: Ring, weights: Weights, slo: Promise | None = None) -> None:
        self.ring = ring
        self.weights = weights
        self.slo = slo

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if not ask.prefix.tokens or not candidates:
            return by_work(candidates, now)
        held, trust = ask.held, ask.trust
        home = self.ring.home(ask.key.value) if trust else None
        deepest = 0
        found: tuple[Candidate, float] | None = None
        if isinstance(candidates, Candidates):
            standing = candidates.standing
            own: list[Seat] = []
            for worker, depth in held.items():
                seat = standing.by_id.get(worker)
                if seat is not None:
                    own.append(seat)
                    if depth > deepest:
                        deepest = depth
            price = Price(ask, self.weights, home, deepest, standing.traffic / standing.count)
            if standing.count > SMALL or 0 < len(own) <= FEW or trust:
                found = self._first(ask, price, standing, own, now)
        else:
            traffic = 0.0
            for c in candidates:
                traffic += c.load.traffic
                depth = held.get(c.id, 0)
                if depth > deepest:
                    deepest = depth
            price = Price(ask, self.weights, home, deepest, traffic / len(candidates))
        if found is None:
            found = self._first_of_all(ask, price, candidates, now)
        first, cost = found
        ranked = self._ranked(ask, price, first.id, cost)
        # Nearly every caller takes one: the rest is a generator not begun, since leaving a begun one raises in it.
        return chain((ranked,), self._rest(ask, price, candidates, first.id, now))

    def _rest(
        self, ask: Ask, price: Price, candidates: Sequence[Candidate], first: str, now: float
    ) -> Iterator[Ranked]:
        costs = self._costs(ask, price, candidates, now)
        for cost, equals in groupby(sorted(range(len(costs)), key=costs.__getitem__), key=costs.__getitem__):
            names = {candidates[at].id for at in equals}
            for worker in self.ring.in_order(ask.key.value, names) if len(names) > 1 else names:
                if worker != first:
                    yield self._ranked(ask, price, worker, cost)

    # Without looking at everybody.

    def _first(
        self, ask: Ask, price: Price, standing: Standing, own: list[Seat], now: float
    ) -> tuple[Candidate, float] | None:
        """Whoever goes first, and its cost; None where all must be looked at to say so. `own`: those that hold some."""
        home = None if price.home is None else standing.by_id.get(price.home)
        special = own if home is None or home in own else [*own, home]
        costs = price.at_each(special, now)
        cost = min(costs) if costs else inf
        bar = cost + price.band
        if price.others / standing.fastest > bar:  # nobody else comes near
            least = first = special[costs.index(cost)]
            if len(costs) > 1:
                first = self._settle(ask, [seat for seat, each in zip(special, costs, strict=True) if each <= bar])
                cost = costs[special.index(first)]
        elif standing.count <= SMALL or (own and price.cold):
            return None
        else:
            least, first = self._among_many(ask, price, standing, special, costs, now)
            cost = price.at(first, now)
        if self.slo is not None and not self._both_keep(self.slo.allowed(ask), ask, least, first, standing, now):
            return None
        return first, cost

    def _among_many(
        self, ask: Ask, price: Price, standing: Standing, special: list[Seat], costs: list[float], now: float
    ) -> tuple[Seat, Seat]:
        """The least costly, and the first of its equals. `costs`: of the special ones."""
        rising = standing.rising(price.others, price.slope, now)
        bound, seat = next(rising)
        least, cost = seat, inf
        if special:
            cost = min(costs)
            least = special[costs.index(cost)]
        found = list(zip(costs, special, strict=True))
        while bound < cost * NEARLY:
            if seat not in special:
                other = price.at(seat, now)
                found.append((other, seat))
                if other < cost:
                    least, cost = seat, other
            bound, seat = next(rising, (inf, seat))
        bar = cost + price.band
        ties = [each for other, each in found if other <= bar]
        left = MANY if ask.key.hot_depth else standing.count
        if not ask.key.hot_depth:
            if any(each.id in ask.held for each in ties):
                return least, self._settle(ask, ties)
            near = self._near(ask, price, standing, bar, now)
            if near is not None:
                return least, near
        while bound <= bar and left:
            left -= 1
            if seat not in special and price.at(seat, now) <= bar:
                ties.append(seat)
            bound, seat = next(rising, (inf, seat))
        if bound <= bar:
            return least, self._fewest(ask, price, standing, special, bar, now)
        return least, self._settle(ask, ties)

    def _near(
        self, ask: Ask, price: Price, standing: Standing, bar: float, now: float, requests: float | None = None
    ) -> Seat | None:
        """The first of the ring that costs no more than `bar`, with so many requests in flight, if it comes soon."""
        for worker in islice(self.ring.walk(ask.key.value), FIRST):
            seat = standing.by_id.get(worker)
            if (
                seat is not None
                and (requests is None or requests_for_weight(seat) == requests)
                and price.at(seat, now) <= bar
            ):
                return seat
        return None

    def _fewest(self, ask: Ask, price: Price, standing: Standing, special: list[Seat], bar: float, now: float) -> Seat:
        """Of many that cost no more than `bar`, the first of those with the fewest requests in flight."""
        rows = standing.by_requests().rows()
        begin = next(at for at, row in enumerate(rows) if price.at(row[4], now) <= bar)
        fewest = rows[begin][0]
        ties = [seat for seat in special if requests_for_weight(seat) == fewest and price.at(seat, now) <= bar]
        if not any(seat.id in ask.held for seat in ties):
            near = self._near(ask, price, standing, bar, now, fewest)
            if near is not None:
                return near
            run = takewhile(lambda row: row[0] == fewest, islice(rows, begin, None))
            ties = [row[4] for row in run if price.at(row[4], now) <= bar]
        return self._settle(ask, ties)

    def _both_keep(self, allowed: float, ask: Ask, least: Seat, first: Seat, standing: Standing, now: float) -> bool:
        """The promise. Where both keep it, to leave out those that break it would change nothing."""
        usual = 1.0  # of nobody who is asked
        if not (least.load.pace and first.load.pace):
            best = standing.best_pace()
            if best is None:
                return True
            usual = best
        if _seconds(ask, first, usual, now) > allowed:
            return False
        return least is first or _seconds(ask, least, usual, now) <= allowed

    def _settle(self, ask: Ask, ties: Sequence[One]) -> One:
        """Which of equal costs goes first."""
        if ask.key.hot_depth:
            loads = [requests_for_weight(c) for c in ties]
            least = min(loads)
            ties = [c for c, load in zip(ties, loads, strict=True) if load == least]
        holding = [c for c in ties if c.id in ask.held]
        if len(holding) == 1 or len(ties) == 1:
            return (holding or ties)[0]
        names = {c.id: c for c in holding or ties}
        nearest = self.ring.nearest(ask.prefix.hashes[0] if holding else ask.key.value, names)
        return names[nearest] if nearest is not None else ties[0]

    # By looking at everybody.

    def _first_of_all(
        self, ask: Ask, price: Price, candidates: Sequence[Candidate], now: float
    ) -> tuple[Candidate, float]:
        costs = self._costs(ask, price, candidates, now)
        bar = min(costs) + price.band
        ties = [at for at, cost in enumerate(costs) if cost <= bar]
        first = self._settle(ask, [candidates[at] for at in ties]) if len(ties) > 1 else candidates[ties[0]]
        return first, costs[candidates.index(first)]

    def _costs(self, ask: Ask, price: Price, candidates: Sequence[Candidate], now: float) -> list[float]:
        costs = price.at_each(candidates, now)
        if self.slo is not None:
            self._keep_promise(self.slo.allowed(ask), ask, candidates, costs, now)
        return costs

    def _keep_promise(
        self, allowed: float, ask: Ask, candidates: Sequence[Candidate], costs: list[float], now: float
    ) -> None:
        """Where the least costly worker would break the promise and others keep it, those that break it are out."""
        paces = [c.load.pace for c in candidates if c.load.pace is not None]
        if not paces:
            return
        usual = max(paces)  # of a worker whose own is not known yet
        bar = min(costs) + EQUAL_SHARE * ask.prefix.tokens
        if all(cost > bar or _seconds(ask, candidates[at], usual, now) <= allowed for at, cost in enumerate(costs)):
            return
        breaking = [at for at, c in enumerate(candidates) if _seconds(ask, c, usual, now) > allowed]
        if len(breaking) < len(costs):
            more = max(costs) + ask.prefix.tokens
            for at in breaking:
                costs[at] += more

    def _ranked(self, ask: Ask, price: Price, worker: str, cost: float) -> Ranked:
        if price.cold:
            return Ranked(worker, Reason.COLD, 0.0, cost)
        depth = ask.held.get(worker, 0)
        elsewhere = Reason.WARM if depth else Reason.SPILL
        expected = depth / ask.prefix.bytes_a_token
        if worker != self.ring.home(ask.key.value):
            return Ranked(worker, elsewhere, expected, cost)
        expected += ask.trust * (ask.prefix.tokens - expected)
        return Ranked(worker, Reason.HOME, expected, cost)


def _seconds(ask: Ask, candidate: Candidate, usual: float, now: float) -> float:
    """The time to first token to be expected there."""
    cached = ask.held.get(candidate.id, 0) / ask.prefix.bytes_a_token
    return (candidate.wait(now) + ask.prefix.tokens - cached) / (candidate.load.pace or usual)
