"""The rules of choosing told plainly: every worker is looked at, and all are sorted. What is fast must say the same."""

from collections.abc import Iterable, Sequence
from itertools import chain

from router.contracts import Ask, Candidate, Promise, Ranked
from router.core.load import GRACE, MOST_DONE, PENALTY_HALF_LIFE, Load
from router.core.ring import Ring
from router.types import Reason


def wait(load: Load, now: float) -> float:
    """What waits at a worker: all that is charged less what is done of the first, what others have, and the penalty."""
    waits = load.charged
    oldest = load.oldest()
    if load.pace is not None and oldest is not None and not load.apart:
        done = (now - load._head_since) * load.pace
        waits -= min(max(done, 0.0), MOST_DONE * oldest.tokens)
    waits += load.charged_elsewhere
    waits += load.queued if now < load.queue_until else 0.0
    for _, charged, until in load.remote.values():
        waits += charged if now < until else 0.0
    if load.pace is not None and load._due:
        late = now - next(iter(load._due.values())) - GRACE
        waits = max(waits, late * load.pace) if late > 0 else waits
    penalty = load.penalty * 0.5 ** ((now - load._penalised_at) / PENALTY_HALF_LIFE)
    return waits + (penalty if penalty >= 1.0 else 0.0)


def requests(c: Candidate) -> float:
    return (c.load.in_flight + c.load.elsewhere) / c.weight


def by_work(candidates: Iterable[Candidate], now: float, reason: str = Reason.LOAD) -> list[Ranked]:
    order = sorted((c.wait(now) / c.speed, requests(c), c.load.traffic / c.weight, c.id) for c in candidates)
    return [Ranked(worker, reason, 0.0, waits) for waits, _, _, worker in order]


def by_requests(candidates: Iterable[Candidate], reason: str = Reason.LOAD) -> list[Ranked]:
    order = sorted((requests(c), c.load.traffic / c.weight, c.id) for c in candidates)
    return [Ranked(worker, reason, 0.0, in_flight) for in_flight, _, worker in order]


def prefix_bounded(ask: Ask, candidates: Sequence[Candidate], now: float, ring: Ring) -> list[Ranked]:
    """With a bound of 1.25, and a key of at most 1024 bytes."""
    prefix = ask.prefix
    if not prefix.tokens or not candidates:
        return by_work(candidates, now)
    at = max((at for at, depth in enumerate(prefix.depths) if depth <= 1024), default=0)
    key, depth = (prefix.hashes[at], prefix.depths[at]) if prefix.hashes else (prefix.whole, 0)
    walk = in_ring_order(candidates, ring, key)
    limit = 1.25 * sum(c.wait(now) for c in walk) / len(walk) + depth / prefix.bytes_a_token
    fits = [c for c in walk if not c.load.in_flight + c.load.elsewhere or c.wait(now) / c.speed <= limit]
    ranked = [Ranked(c.id, Reason.HOME if c is walk[0] else Reason.SPILL, 0.0, c.wait(now)) for c in fits]
    return ranked + by_work([c for c in walk if c not in fits], now, Reason.SPILL)


def prefix_aware(candidates: Sequence[Candidate], ring: Ring, key: int) -> list[Ranked]:
    """With a threshold of 3 requests; `key` is what the prompt's beginning hashes to."""
    home, *_ = in_ring_order(candidates, ring, key)
    kept = Ranked(home.id, Reason.HOME, 0.0, requests(home))
    others = by_requests([c for c in candidates if c is not home], Reason.SPILL)
    full = home.load.in_flight + home.load.elsewhere >= 3
    freer = [each for each in others if each.cost < kept.cost] if full else []
    return [*freer, kept, *others[len(freer) :]]


def prefix_cost(ask: Ask, candidates: Sequence[Candidate], now: float, ring: Ring, slo: Promise | None) -> list[Ranked]:
    if not ask.prefix.tokens or not candidates:
        return by_work(candidates, now)
    tokens, bytes_a_token = ask.prefix.tokens, ask.prefix.bytes_a_token
    mean = max(sum(c.load.traffic for c in candidates) / len(candidates), 1.0)
    deepest = max((ask.held.get(c.id, 0) for c in candidates), default=0)
    cold = not (deepest or ask.trust)
    if cold:
        costs = [(c.wait(now) + tokens / mean * c.load.traffic) / c.speed for c in candidates]
    else:
        costs = _warm(ask, candidates, now, ring, mean, deepest)
    if slo is not None:
        _keep(slo.allowed(ask), ask, candidates, costs, now)
    bar = min(costs) + 0.01 * tokens
    first = candidates[_first(ask, candidates, costs, bar, ring)].id
    rank = {worker: at for at, worker in enumerate(ring.walk(ask.key.value))}
    order = sorted(range(len(costs)), key=lambda at: (candidates[at].id != first, costs[at], rank[candidates[at].id]))
    ranked = []
    for c, cost in ((candidates[at], costs[at]) for at in order):
        depth = ask.held.get(c.id, 0)
        expected, reason = depth / bytes_a_token, Reason.WARM if depth else Reason.SPILL
        if c.id == ring.home(ask.key.value):
            expected, reason = expected + ask.trust * (tokens - expected), Reason.HOME
        ranked.append(Ranked(c.id, Reason.COLD, 0.0, cost) if cold else Ranked(c.id, reason, expected, cost))
    return ranked


def in_ring_order(candidates: Sequence[Candidate], ring: Ring, key: int) -> list[Candidate]:
    by_id = {c.id: c for c in candidates}
    return [by_id[worker] for worker in ring.walk(key) if worker in by_id]


def _warm(ask: Ask, candidates: Sequence[Candidate], now: float, ring: Ring, mean: float, deepest: int) -> list[float]:
    tokens, bytes_a_token = ask.prefix.tokens, ask.prefix.bytes_a_token
    hot, base = ask.key.hot_depth / bytes_a_token, 16.0 * tokens
    next_rung = next((depth for depth in ask.prefix.depths if depth > deepest), None)
    unheld = tokens - next_rung / bytes_a_token if next_rung is not None and not ask.trust else 0.0
    costs = []
    for c in candidates:
        cached = ask.held.get(c.id, 0) / bytes_a_token
        if ask.trust and c.id == ring.home(ask.key.value):
            cached += min(1.5 * ask.trust, 1.0) * (tokens - cached)
        new = max(tokens - cached, 0.05 * tokens)
        cost = c.wait(now) + 4.0 * new + unheld / (mean + base) * (c.load.traffic + base)
        cost -= 3.5 * min(new, hot - cached) if cached < hot else 0.0
        costs.append(cost / c.speed)
    return costs


def _keep(allowed: float, ask: Ask, candidates: Sequence[Candidate], costs: list[float], now: float) -> None:
    """The promise on the first token: where it is broken by one of the least costly, and kept by some."""
    paces = [c.load.pace for c in candidates if c.load.pace is not None]
    bar = min(costs) + 0.01 * ask.prefix.tokens
    breaking = [
        at
        for at, c in enumerate(candidates)
        if paces
        and (c.wait(now) + ask.prefix.tokens - ask.held.get(c.id, 0) / ask.prefix.bytes_a_token)
        / (c.load.pace or max(paces))
        > allowed
    ]
    if any(costs[at] <= bar for at in breaking) and len(breaking) < len(costs):
        more = max(costs) + ask.prefix.tokens
        for at in breaking:
            costs[at] += more


def _first(ask: Ask, candidates: Sequence[Candidate], costs: Sequence[float], bar: float, ring: Ring) -> int:
    ties = [at for at, cost in enumerate(costs) if cost <= bar]
    if ask.key.hot_depth:
        least = min(requests(candidates[at]) for at in ties)
        ties = [at for at in ties if requests(candidates[at]) == least]
    holding = [at for at in ties if candidates[at].id in ask.held]
    key = ask.prefix.hashes[0] if holding else ask.key.value
    names = {candidates[at].id: at for at in holding or ties}
    return next(names[worker] for worker in chain(ring.walk(key), names) if worker in names)
