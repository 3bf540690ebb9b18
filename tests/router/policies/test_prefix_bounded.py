"""Consistent hashing with bounded loads."""

from random import Random

import pytest

from router.contracts import Policy, PolicyTools, Ranked
from router.core.standing import SMALL
from router.policies.prefix_bounded import Options, build
from router.types import Reason
from tests.support import plain_rule
from tests.support.churn import Churn
from tests.support.fleets import Look, ask_of, named, ring_of

RING = ring_of(named(8))
TEXT = b"\xffTuser\xfe" + b"a long beginning " * 400


def policy(**options: float) -> Policy:
    return build(Options(**options), PolicyTools(RING, None))  # type: ignore[arg-type]


def order(looks: list[Look], text: bytes = TEXT, **options: float) -> list[Ranked]:
    return list(policy(**options).order(ask_of(text), looks, 0.0))


def walk(text: bytes = TEXT) -> list[str]:
    """The order on an idle fleet is the ring's."""
    return [each.worker for each in order([Look(name) for name in named(8)], text)]


def test_an_idle_fleet_is_asked_in_ring_order() -> None:
    ranked = order([Look(name) for name in named(8)])
    assert ranked[0].reason == Reason.HOME
    assert {each.reason for each in ranked[1:]} == {Reason.SPILL}
    prefix = ask_of(TEXT).prefix
    deepest = max(at for at, depth in enumerate(prefix.depths) if depth <= 1024)
    assert [each.worker for each in ranked] == list(RING.walk(prefix.hashes[deepest]))


def test_only_the_first_bytes_decide() -> None:
    assert walk(TEXT[:1500] + b"one") == walk(TEXT[:1500] + b"other " * 100)
    places = {tuple(walk(TEXT[:900] + bytes([at]) * 600)) for at in range(20)}
    assert len(places) > 1


def test_an_overloaded_home_is_passed_over_for_the_next_on_the_ring() -> None:
    first, second, *_ = walk()
    looks = [Look(name, in_flight=2, waiting=100_000.0 if name == first else 1000.0) for name in named(8)]
    ranked = order(looks)
    assert (ranked[0].worker, ranked[0].reason) == (second, Reason.SPILL)
    assert ranked[-1].worker == first


def test_a_home_within_the_bound_is_kept() -> None:
    first = walk()[0]
    looks = [Look(name, in_flight=2, waiting=1200.0 if name == first else 1000.0) for name in named(8)]
    assert order(looks)[0].worker == first


def test_the_tokens_that_a_move_would_recompute_are_part_of_the_bound() -> None:
    first = walk()[0]
    looks = [Look(name, in_flight=1, waiting=250.0 if name == first else 0.0) for name in named(8)]
    assert order(looks)[0].worker == first
    looks = [Look(name, in_flight=1, waiting=600.0 if name == first else 0.0) for name in named(8)]
    assert order(looks)[0].worker != first


def test_a_worker_with_nothing_in_flight_always_fits() -> None:
    first = walk()[0]
    looks = [
        Look(name, in_flight=0 if name == first else 1, waiting=1e9 if name == first else 0.0) for name in named(8)
    ]
    assert order(looks)[0].worker == first


def test_if_none_fits_the_least_loaded_comes_first_and_never_the_home_for_being_home() -> None:
    """With weights every worker can be beyond the bound of the mean."""
    short = b"\xffTuser\xfehi"
    looks = [Look(name, in_flight=5, weight=0.1, waiting=1000.0 + at) for at, name in enumerate(named(8))]
    ranked = order(looks, short)
    assert ranked[0].worker == "w0"
    assert {each.reason for each in ranked} == {Reason.SPILL}


def test_without_any_state_two_of_them_agree_forever() -> None:
    looks = [Look(name, in_flight=at % 3, waiting=at * 500.0) for at, name in enumerate(named(8))]
    for at in range(50):
        ask = ask_of(bytes([at]) * 1500)
        assert list(policy().order(ask, looks, 0.0)) == list(policy().order(ask, looks, 99.0))


def test_a_prompt_shorter_than_any_rung_has_a_place_too() -> None:
    assert walk(b"\xffTuser\xfehi") == walk(b"\xffTuser\xfehi")
    assert len({walk(f"q{at}".encode())[0] for at in range(40)}) > 4


@pytest.mark.parametrize("key_bytes", [64, 256, 1024, 4096])
def test_the_key_s_length_is_a_setting(key_bytes: int) -> None:
    head = TEXT[:key_bytes]
    places = {order([Look(name) for name in named(8)], head + bytes([at]) * 6000, key_bytes=key_bytes)[0].worker
              for at in range(20)}  # fmt: skip
    assert len(places) == 1


@pytest.mark.parametrize("workers", [3, SMALL, SMALL + 1, 50])
def test_whatever_happens_to_a_fleet_the_order_is_that_of_looking_at_everybody(workers: int) -> None:
    churn = Churn(Random(workers), workers, even=True)
    bounded = build(Options(), PolicyTools(churn.fleet.ring, None))
    for _ in range(300):
        churn.step()
        ask, candidates = churn.ask(), churn.fleet.candidates(None)
        expected = plain_rule.prefix_bounded(ask, [*candidates], churn.now, churn.fleet.ring)
        assert list(bounded.order(ask, candidates, churn.now)) == expected
        assert list(bounded.order(ask, [*candidates], churn.now)) == expected
