"""Other systems' rules."""

from collections import Counter
from random import Random

from router.contracts import PolicyTools
from router.replay.peers import BoundedOptions, bounded_requests
from router.types import Reason
from tests.support.fleets import Look, ask_of, ring_of

NAMES = [f"w{at}" for at in range(4)]
TEXT = b"the same beginning " * 400


def order(loads: list[int], text: bytes = TEXT, bound: float = 1.25) -> list[tuple[str, str]]:
    policy = bounded_requests(BoundedOptions(bound=bound), PolicyTools(ring_of(NAMES), Random(1)))
    looks = [Look(name, in_flight=load) for name, load in zip(NAMES, loads, strict=True)]
    return [(ranked.worker, ranked.reason) for ranked in policy.order(ask_of(text), looks, 0.0)]


def test_an_idle_home_is_first() -> None:
    (home, reason), *_ = order([0, 0, 0, 0])
    assert reason == Reason.HOME
    assert Counter(worker for worker, _ in order([0, 0, 0, 0])) == Counter(NAMES)
    assert order([0, 0, 0, 0], TEXT + b"and another end")[0] == (home, reason)


def test_a_home_beyond_the_bound_is_last_but_for_others_beyond_it() -> None:
    home = order([0, 0, 0, 0])[0][0]
    loads = [5 if name == home else 1 for name in NAMES]
    found = order(loads)
    assert found[0] == (order([0, 0, 0, 0])[1][0], Reason.SPILL)
    assert found[-1] == (home, Reason.HOME)
    assert order(loads, bound=10.0)[0][0] == home


def test_short_prompts_and_no_workers() -> None:
    assert len(order([0, 0, 0, 0], b"hi")) == 4
    policy = bounded_requests(BoundedOptions(), PolicyTools(ring_of([]), Random(1)))
    assert list(policy.order(ask_of(TEXT), [], 0.0)) == []
