"""The law of policies, held against every file in the room."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from router.contracts import Ask, Policy, PolicyTools, Ranked
from router.core.slo import Slo
from router.plugins import build_policy, policy_names
from router.types import Reason
from tests.support.fleets import Look, ask_of, named, ring_of
from tests.support.strategies import FEW

NAMES = policy_names()
REASONS = {Reason.HOME, Reason.WARM, Reason.SPILL, Reason.COLD, Reason.SESSION, Reason.LOAD}  # retry is the chooser's
LONG = b"\xffTuser\xfe" + b"a prompt with several rungs. " * 60
ASKS = {
    "long": ask_of(LONG),
    "held": ask_of(LONG, held={"w0": 1024, "w1": 64, "gone": 1536}),
    "hot": ask_of(LONG, held={"w1": 1024}, hot_depth=512),
    "short": ask_of(b"\xffTuser\xfehi"),
    "nothing": ask_of(b""),
    "trusting": ask_of(LONG, trust=0.3),
    "session": ask_of(LONG, session="s-1"),
    "native": ask_of(b"", native=True, body=b'{"inputs": "hello"}'),
}

looks = st.lists(
    st.builds(
        Look,
        st.sampled_from(named(12)),
        weight=st.sampled_from([0.1, 1.0, 3.0]),
        speed=st.sampled_from([None, 0.1, 0.5, 1.0, 10.0]),
        in_flight=st.integers(0, 2000),
        elsewhere=st.integers(0, 2000),
        pace=st.none() | st.floats(1.0, 1e6),
        traffic=st.floats(0, 1e9),
        waiting=st.floats(0, 1e9),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda look: look.id,
)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    text = draw(st.sampled_from([b"", b"hi", LONG[:65], LONG[:700], LONG]))
    held = draw(
        st.dictionaries(st.sampled_from([*named(12), "gone"]), st.sampled_from([64, 256, 512, 1536]), max_size=4)
    )
    held = {worker: depth for worker, depth in held.items() if depth <= len(text)}
    return ask_of(
        text,
        draw(st.integers(0, 3)),
        held=held,
        hot_depth=draw(st.sampled_from([0, 0, 64, 512, 5000])),
        session=draw(st.none() | st.sampled_from(["s", ""])),
        native=draw(st.booleans()),
        body=draw(st.sampled_from([b"", b"{}"])),
        trust=draw(st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0])),
    )


def built(name: str, seed: int = 7, workers: int = 12) -> Policy:
    return build_policy(name, {}, PolicyTools(ring_of(named(workers)), Random(seed), Slo()))


def test_the_policies_of_the_contract_are_there() -> None:
    assert set(NAMES) == {
        "prefix_cost", "prefix_bounded", "prefix_aware", "session", "least_work", "least_outstanding", "power_of_two",
        "round_robin", "random",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(ask=asks(), looks=looks)
def test_every_candidate_comes_exactly_once_and_nobody_else(name: str, ask: Ask, looks: list[Look]) -> None:
    ranked = list(built(name).order(ask, looks, 10.0))
    assert sorted(each.worker for each in ranked) == sorted(look.id for look in looks)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(ask=asks(), looks=looks)
def test_every_step_has_a_reason_and_finite_numbers(name: str, ask: Ask, looks: list[Look]) -> None:
    for each in built(name).order(ask, looks, 10.0):
        assert isinstance(each, Ranked)
        assert each.reason in REASONS
        assert abs(each.cost) < float("inf")
        assert 0 <= each.expected <= max(ask.prefix.tokens, 0.0)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(looks=looks, drawn=st.lists(asks(), min_size=1, max_size=4))
def test_the_order_is_a_function_of_its_arguments_and_of_the_dice(
    name: str, looks: list[Look], drawn: list[Ask]
) -> None:
    one, other = built(name), built(name)
    for ask in drawn:
        assert list(one.order(ask, looks, 1.0)) == list(other.order(ask, looks, 1.0))


@pytest.mark.parametrize("name", NAMES)
def test_asking_twice_without_dice_gives_the_same_order(name: str) -> None:
    """`order` does not write: who only looks (`explain`, a shadow policy) changes nothing."""
    dice = Random(7)
    before = dice.getstate()
    policy = build_policy(name, {}, PolicyTools(ring_of(named(12)), dice))
    looks = [Look(each) for each in named(12)]
    orders = [[each.worker for each in islice(policy.order(ASKS["long"], looks, 1.0), 3)] for _ in range(3)]
    if dice.getstate() == before:
        assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(ask=asks(), looks=looks)
def test_a_policy_writes_nothing(name: str, ask: Ask, looks: list[Look]) -> None:
    def facts() -> list[tuple[Any, ...]]:
        return [(c.id, c.weight, c.speed, *vars(c.load).values(), c.waiting) for c in looks]

    before, held = facts(), dict(ask.held)
    list(built(name).order(ask, looks, 10.0))
    assert facts() == before
    assert ask.held == held


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_one_candidate_is_enough(name: str, ask: Ask) -> None:
    ranked = list(built(name).order(ask, [Look("w5", in_flight=5000, waiting=1e9)], 0.0))
    assert [each.worker for each in ranked] == ["w5"]


@pytest.mark.parametrize("name", NAMES)
def test_no_candidate_gives_no_order(name: str) -> None:
    """`explain` asks for the order at any time, also when every worker has yet to start."""
    for ask in ASKS.values():
        assert list(built(name).order(ask, [], 0.0)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_with_nothing_to_hash_goes_by_load_alone(name: str) -> None:
    ranked = list(built(name).order(ASKS["nothing"], [Look(each) for each in named(5)], 0.0))
    assert {each.reason for each in ranked} == {Reason.LOAD}
    assert {each.expected for each in ranked} == {0.0}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_an_order_is_lazy(name: str, ask: Ask) -> None:
    """An iterator that has done nothing before it is asked, and may be dropped after the first."""
    touched: list[str] = []

    class Watched(Look):
        def wait(self, now: float, /) -> float:
            touched.append(self.id)
            return 0.0

    order = built(name).order(ask, [Watched(each) for each in named(12)], 0.0)
    assert isinstance(order, Iterator)
    if inspect.isgenerator(order):
        assert touched == []
    assert next(order).worker in named(12)
    assert len(touched) <= 3 * 12


@pytest.mark.parametrize("name", ["prefix_cost", "prefix_bounded", "prefix_aware", "session"])
def test_a_policy_with_affinity_is_blind_to_the_order_of_the_candidates(name: str) -> None:
    looks = [Look(each) for each in named(12)]
    for ask in ASKS.values():
        forth = [each.worker for each in built(name).order(ask, looks, 0.0)]
        assert [each.worker for each in built(name).order(ask, looks[::-1], 0.0)] == forth


@pytest.mark.parametrize("name", NAMES)
def test_options_are_frozen_and_forbid_the_unknown(name: str) -> None:
    options = import_module(f"router.policies.{name}").Options
    assert issubclass(options, BaseModel)
    assert options.model_config.get("frozen")
    with pytest.raises(ValidationError):
        options(no_such_option=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_default_and_says_what_it_is(name: str) -> None:
    for option, field in import_module(f"router.policies.{name}").Options.model_fields.items():
        assert not field.is_required(), option
        assert field.description, option


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_it_does(name: str) -> None:
    said = import_module(f"router.policies.{name}").__doc__
    assert said
    assert said.splitlines()[0].endswith((".", ":")) or len(said.splitlines()) > 2
