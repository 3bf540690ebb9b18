"""The default: the ring proposes, a cost decides."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.contracts import Policy, PolicyTools, Ranked
from router.core.price import HOMEWARD
from router.core.slo import Slo
from router.policies.prefix_cost import Options, build
from router.types import Reason
from tests.support.fleets import Look, ask_of, named, ring_of

RING = ring_of(named(8))
TEXT = b"\xffTuser\xfe" + b"a long beginning " * 240  # 4,088 bytes, 1,022 tokens
TOKENS = len(TEXT) / 4
EQUAL = 0.01 * TOKENS  # costs no further apart are ties
APART = EQUAL + 1


def policy(**options: float) -> Policy:
    return build(Options(**options), PolicyTools(RING, None))


def promising(looks: list[Look], *, keep: bool = True, slo: Slo | None = None, **ask: Any) -> list[Ranked]:
    """The order where the first token is promised in 300 ms, and half a millisecond for each token to compute."""
    made = build(Options(keep_slo=keep), PolicyTools(RING, None, slo or Slo()))
    return list(made.order(ask_of(TEXT, **ask), looks, 0.0))


def order(looks: list[Look], *, options: dict[str, float] | None = None, **ask: object) -> list[Ranked]:
    return list(policy(**(options or {})).order(ask_of(TEXT, **ask), looks, 0.0))  # type: ignore[arg-type]


def idle(**special: Look) -> list[Look]:
    return [special.get(name, Look(name)) for name in named(8)]


def test_a_prompt_nobody_knows_goes_home_when_all_are_idle() -> None:
    ranked = order(idle())
    assert [each.worker for each in ranked] == list(RING.walk(ask_of(TEXT).key.value))
    assert {each.reason for each in ranked} == {Reason.COLD}


def test_a_prompt_nobody_knows_goes_where_the_least_waits() -> None:
    for least in named(8):
        looks = [Look(name, waiting=0.0 if name == least else APART) for name in named(8)]
        assert order(looks)[0].worker == least


@pytest.mark.parametrize("least", named(8))
def test_a_prompt_nobody_knows_goes_home_while_home_costs_one_percent_more_at_most(least: str) -> None:
    looks = [Look(name, waiting=0.0 if name == least else EQUAL - 1) for name in named(8)]
    ranked = order(looks)
    assert ranked[0].worker == RING.home(ask_of(TEXT).key.value)
    assert len({each.worker for each in ranked}) == 8


def test_a_prompt_nobody_knows_goes_where_less_came_together() -> None:
    looks = [Look(name, traffic=100.0 if name == "w3" else 10_000.0) for name in named(8)]
    assert order(looks)[0].worker == "w3"


def test_a_cold_cost_is_the_wait_and_the_prompt_by_its_share_of_the_traffic() -> None:
    looks = [Look(name, traffic=200.0 if name == "w0" else 100.0, waiting=7.0) for name in named(8)]
    costs = {each.worker: each.cost for each in order(looks)}
    mean = 900.0 / 8
    assert costs["w0"] == pytest.approx(7.0 + TOKENS * 200.0 / mean)
    assert costs["w1"] == pytest.approx(7.0 + TOKENS * 100.0 / mean)


@pytest.mark.parametrize("holder", named(8))
def test_the_holder_costs_least_while_nothing_waits(holder: str) -> None:
    ranked = order(idle(), held={holder: 3840})
    assert ranked[0].worker == holder
    assert ranked[0].expected == 960.0
    assert ranked[0].reason == (Reason.HOME if holder == RING.home(ask_of(TEXT).key.value) else Reason.WARM)


def test_the_deeper_holder_costs_less() -> None:
    assert [each.worker for each in order(idle(), held={"w2": 1024, "w5": 3840})][:2] == ["w5", "w2"]


def test_a_token_to_compute_costs_four_that_wait() -> None:
    """A holder may wait for four times what it saves before a lesser holder is cheaper."""
    saved = 3840 / 4 - 1024 / 4
    near = {"w2": 1024, "w5": 3840}
    assert order(idle(w5=Look("w5", in_flight=1, waiting=4 * saved - APART)), held=near)[0].worker == "w5"
    assert order(idle(w5=Look("w5", in_flight=1, waiting=4 * saved + APART)), held=near)[0].worker == "w2"


def test_holders_whose_costs_are_one_percent_apart_are_equal() -> None:
    saved = 3840 / 4 - 1024 / 4
    near = {"w2": 1024, "w5": 3840}
    nearest = RING.nearest(ask_of(TEXT).prefix.hashes[0], near)
    for off in (1 - EQUAL, -1, 0, 1, EQUAL - 1):
        assert order(idle(w5=Look("w5", in_flight=1, waiting=4 * saved + off)), held=near)[0].worker == nearest


@pytest.mark.parametrize("holder", named(8))
def test_of_equal_costs_a_holder_s_goes_first(holder: str) -> None:
    free = {"factor": 0.0, "hot_factor": 0.0}
    assert order(idle(), held={holder: 3840}, options=free)[0].worker == holder


@pytest.mark.parametrize(("options", "factor"), [({}, 0.5), ({"hot_factor": 1.0}, 1.0), ({"hot_factor": 2.0}, 2.0)])
def test_within_a_hot_prefix_a_token_to_compute_costs_half_of_one_that_waits_or_what_it_is_told(
    options: dict[str, float], factor: float
) -> None:
    near = {"w2": 1024, "w5": 3840}
    saved = factor * (3840 / 4 - 1024 / 4)
    looks = idle(w5=Look("w5", in_flight=1, waiting=saved + APART))
    assert order(looks, held=near, hot_depth=3840, options=options)[0].worker == "w2"
    looks = idle(w5=Look("w5", in_flight=1, waiting=saved - APART))
    assert order(looks, held=near, hot_depth=3840, options=options)[0].worker == "w5"


def test_a_hot_prefix_stays_on_its_holder_while_nothing_waits_there() -> None:
    assert order(idle(), held={"w5": 3840}, hot_depth=3840)[0].worker == "w5"


def test_at_least_five_percent_of_a_prompt_is_computed() -> None:
    full = len(TEXT) // 256 * 256
    ranked = order(idle(), held={"w5": len(TEXT)}, options={"smoothing": 0.0})
    assert full
    assert ranked[0].cost == pytest.approx(4 * 0.05 * TOKENS)


def test_tokens_nobody_holds_go_where_less_came_together_once_much_was_sent() -> None:
    held = {"w2": 1024, "w5": 1024}
    for busy, other in (("w2", "w5"), ("w5", "w2")):
        looks = [Look(name, traffic=200_000.0 if name == busy else 100_000.0) for name in named(8)]
        assert order(looks, held=held)[0].worker == other


def test_a_tail_short_of_a_rung_does_not_part_equal_holders() -> None:
    """What is beyond the deepest rung that anybody holds counts as unheld only where it reaches a further rung."""
    for busy in ("w2", "w5"):
        looks = [Look(name, traffic=200_000.0 if name == busy else 100_000.0) for name in named(8)]
        ranked = order(looks, held={"w2": 3840, "w5": 3840})
        assert ranked[0].cost == ranked[1].cost
        assert {ranked[0].worker, ranked[1].worker} == {"w2", "w5"}


def test_equal_holders_are_always_asked_in_the_ring_order_of_the_first_rung() -> None:
    ask = ask_of(TEXT, held={"w2": 3840, "w5": 3840, "w7": 3840})
    nearest = RING.nearest(ask.prefix.hashes[0], {"w2", "w5", "w7"})
    for looks in (idle(), idle()[::-1]):
        assert next(iter(policy().order(ask, looks, 0.0))).worker == nearest


def test_twice_the_weight_bears_twice_the_wait() -> None:
    looks = [Look("w0", weight=2.0, waiting=1500.0), Look("w1", waiting=800.0)]
    assert order(looks)[0].worker == "w0"
    looks = [Look("w0", weight=2.0, waiting=1700.0), Look("w1", waiting=800.0)]
    assert order(looks)[0].worker == "w1"


def test_a_holder_that_cannot_be_used_does_not_count() -> None:
    ranked = order(idle(), held={"gone": 3840})
    assert {each.reason for each in ranked} == {Reason.COLD}
    assert {each.expected for each in ranked} == {0.0}


def test_a_worker_that_holds_nothing_and_is_chosen_for_its_idleness_is_a_spill_or_home() -> None:
    busy = Look("w5", in_flight=9, waiting=1e6)
    ranked = order(idle(w5=busy), held={"w5": 3840})
    assert ranked[0].worker != "w5"
    assert ranked[0].reason in (Reason.SPILL, Reason.HOME)
    assert ranked[-1].worker == "w5"


@pytest.mark.parametrize("held", [{}, {"w5": 3840}])
@pytest.mark.parametrize("smoothing", [0.0, 16.0])
def test_traffic_that_has_faded_to_nearly_nothing_is_none(held: dict[str, int], smoothing: float) -> None:
    """Half-lives later it is the least number there is, which no prompt can be divided by."""

    def asked(traffic: float) -> tuple[str, dict[str, float]]:
        looks = [Look(name, traffic=traffic if name < "w4" else 0.0) for name in named(8)]
        ranked = order(looks, held=held, options={"smoothing": smoothing})
        return ranked[0].worker, {each.worker: each.cost for each in ranked}

    chosen, costs = asked(0.0)
    for traffic in (5e-324, 2.2e-311, 1e-300):
        assert asked(traffic) == (chosen, pytest.approx(costs))


def test_costs_never_fall_along_the_order() -> None:
    looks = [Look(name, waiting=at * 37.0 % 11, traffic=at * 1000.0) for at, name in enumerate(named(8))]
    for held in ({}, {"w1": 1024, "w3": 3840, "w6": 64}):
        first, *rest = [each.cost for each in order(looks, held=held)]
        assert first <= rest[0] + EQUAL
        assert all(after >= before for before, after in itertools.pairwise(rest))


# Speeds.


def test_a_wait_is_half_as_long_on_a_worker_twice_as_fast() -> None:
    looks = [Look("w0", speed=2.0, waiting=1500.0), Look("w1", waiting=800.0)]
    assert order(looks)[0].worker == "w0"
    looks = [Look("w0", speed=2.0, waiting=1700.0), Look("w1", waiting=800.0)]
    assert order(looks)[0].worker == "w1"


def test_a_slow_holder_is_left_when_a_fast_worker_computes_it_sooner() -> None:
    holder = Look("w5", speed=0.04)
    assert order(idle(w5=Look("w5")), held={"w5": 3840})[0].worker == "w5"
    assert order(idle(w5=holder), held={"w5": 3840})[0].worker != "w5"


# Ties of a hot prefix.


def test_of_equal_holders_of_a_hot_prefix_the_one_with_the_least_in_flight_is_first() -> None:
    for least in ("w2", "w5", "w7"):
        looks = idle(**{name: Look(name, in_flight=3 if name != least else 2) for name in ("w2", "w5", "w7")})
        held = {"w2": 3840, "w5": 3840, "w7": 3840}
        assert order(looks, held=held, hot_depth=1024)[0].worker == least


def test_of_equal_holders_of_a_hot_prefix_with_equally_many_in_flight_the_home_is_first_whatever_was_sent() -> None:
    held = {"w2": 3840, "w5": 3840, "w7": 3840}
    nearest = RING.nearest(ask_of(TEXT).prefix.hashes[0], held)
    for most in held:
        looks = idle(**{name: Look(name, traffic=2000.0 if name != most else 3000.0) for name in held})
        assert order(looks, held=held, hot_depth=1024)[0].worker == nearest


def test_holders_of_a_hot_prefix_that_are_equal_in_all_are_asked_in_the_ring_order_too() -> None:
    ask = ask_of(TEXT, held={"w2": 3840, "w5": 3840, "w7": 3840}, hot_depth=1024)
    nearest = RING.nearest(ask.prefix.hashes[0], {"w2", "w5", "w7"})
    assert [next(policy().order(ask, looks, 0.0)).worker for looks in (idle(), idle()[::-1])] == [nearest, nearest]


# The promise on the time to first token. The holder has 62 tokens to compute, for which 331 ms are allowed.


def warm(waiting: float, others: float = 0.0, pace: float | None = 10_000.0) -> list[Look]:
    looks = [Look(name, waiting=others, pace=10_000.0) for name in named(8)]
    return [Look("w5", waiting=waiting, pace=pace) if look.id == "w5" else look for look in looks]


def test_a_warm_worker_that_would_break_the_promise_is_left_when_another_keeps_it() -> None:
    assert promising(warm(3000.0), held={"w5": 3840})[0].worker == "w5"
    assert order(warm(3500.0), held={"w5": 3840})[0].worker == "w5"
    assert promising(warm(3500.0), held={"w5": 3840})[0].worker != "w5"
    assert promising(warm(3500.0), held={"w5": 3840})[-1].worker == "w5"


def test_a_warm_worker_is_kept_when_nobody_keeps_the_promise() -> None:
    assert promising(warm(3500.0, others=3400.0), held={"w5": 3840})[0].worker == "w5"


def test_the_promise_is_not_kept_where_that_is_turned_off() -> None:
    assert promising(warm(3500.0), held={"w5": 3840}, keep=False)[0].worker == "w5"


def test_of_workers_of_unknown_pace_nothing_is_foreseen() -> None:
    looks = [Look(name, waiting=3500.0 if name == "w5" else 0.0) for name in named(8)]
    assert promising(looks, held={"w5": 3840})[0].worker == "w5"


def test_of_those_that_keep_the_promise_the_least_costly_is_first() -> None:
    looks = [*warm(3500.0, others=400.0)[:7], Look("w7", pace=10_000.0, waiting=0.0)]
    assert promising(looks, held={"w5": 3840})[0].worker == "w7"
    assert promising(looks, held={"w5": 3840, "w2": 3072})[0].worker == "w2"


paced = st.builds(
    Look,
    st.sampled_from(named(8)),
    waiting=st.floats(0, 20_000),
    pace=st.floats(500, 50_000),
    traffic=st.floats(0, 1e6),
)


@given(
    st.lists(paced, min_size=1, max_size=8, unique_by=lambda look: look.id),
    st.dictionaries(st.sampled_from(named(8)), st.sampled_from([64, 1024, 3840]), max_size=4),
)
def test_the_promise_changes_the_first_only_for_one_that_keeps_it(looks: list[Look], held: dict[str, int]) -> None:
    def keeps(worker: str) -> bool:
        look = next(each for each in looks if each.id == worker)
        seconds = (look.waiting + TOKENS - held.get(worker, 0) / 4) / look.load.pace  # type: ignore[operator]
        return seconds <= Slo().allowed(ask_of(TEXT, held=held))

    plain, promised = order(looks, held=held), promising(looks, held=held)
    assert sorted(each.worker for each in promised) == sorted(look.id for look in looks)
    if promised[0].worker != plain[0].worker:
        assert keeps(promised[0].worker) or not any(keeps(look.id) for look in looks)


def test_of_idle_workers_one_too_slow_for_the_promise_is_left() -> None:
    """Nobody holds the prompt and nothing waits, so all cost the same."""
    for slow in named(8):
        looks = [Look(name, pace=1000.0 if name == slow else 10_000.0) for name in named(8)]
        assert promising(looks)[0].worker != slow


# One gateway of several that do not share what they know.


def test_the_home_is_trusted_with_what_nobody_here_sent_it() -> None:
    home = RING.home(ask_of(TEXT).key.value)
    ranked = order(idle(), trust=0.3)
    assert (ranked[0].worker, ranked[0].reason) == (home, Reason.HOME)
    assert ranked[0].expected == pytest.approx(0.3 * TOKENS)
    assert ranked[1].cost - ranked[0].cost == pytest.approx(4 * HOMEWARD * 0.3 * TOKENS)
    assert {each.expected for each in ranked[1:]} == {0.0}


def test_a_trusted_home_may_wait_for_what_it_may_save_and_no_longer() -> None:
    home = RING.home(ask_of(TEXT).key.value) or ""
    saved = 4 * HOMEWARD * 0.3 * TOKENS
    assert order(idle(**{home: Look(home, waiting=saved - APART)}), trust=0.3)[0].worker == home
    assert order(idle(**{home: Look(home, waiting=saved + APART)}), trust=0.3)[0].worker != home


def test_a_known_holder_is_kept_while_the_home_is_trusted_little_and_left_for_one_trusted_much() -> None:
    home = RING.home(ask_of(TEXT).key.value)
    holder = next(name for name in named(8) if name != home)
    assert order(idle(), trust=0.3, held={holder: 3840})[0].worker == holder
    looks = [Look(name, waiting=400.0) if name == holder else Look(name) for name in named(8)]
    assert order(looks, trust=0.9, held={holder: 3840})[0].worker == home
