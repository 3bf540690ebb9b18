"""A replay from its plan to its figures."""

from collections.abc import Callable
from typing import Any

import pytest

from router.replay.item import BLOCK
from router.replay.rows import Row
from router.replay.simulate import Setup
from router.replay.trace import read
from router.replay_policies import entrants
from router.replay_run import Load, Plan, Runner
from tests.support.replays import conversations, written

SETUP = Setup(workers=2, room=30 * BLOCK)


class Watch:
    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, label: str, requests: int) -> Callable[[int], None] | None:
        self.begun.append(label)
        return None


def rows() -> list[Row]:
    return read(written(conversations(20, 6)).splitlines())


def runner(watch: Watch | None = None, **plan: Any) -> Runner:
    return Runner(rows(), Plan(**{"trace": "t", "setup": SETUP, **plan}), watch or Watch())


def loads(*specs: str, **plan: Any) -> list[Load]:
    return runner(**plan).loads(entrants(list(specs)))


def test_the_load_is_set_and_every_policy_gets_the_same_arrivals() -> None:
    (load,) = loads("prefix_cost", "random", busy=(0.4,))
    assert load.reached == pytest.approx(0.4, abs=0.05)
    assert list(load.policies) == ["prefix_cost", "random"]
    assert {outcome.figures.requests for outcome in load.policies.values()} == {108}


def test_affinity_pays() -> None:
    roomy = Setup(workers=2, room=100 * BLOCK)
    found = loads("reference", "prefix_cost", "random", busy=(0.4,), setup=roomy)[0].policies
    assert found["prefix_cost"].figures.hit_share > found["random"].figures.hit_share + 0.1
    assert found["reference"].figures.hit_share > found["random"].figures.hit_share + 0.1


def test_a_policy_compared_with_itself_is_equal() -> None:
    found = loads("prefix_cost", "prefix_cost:factor=4")[0].policies
    assert found["prefix_cost"].figures == found["prefix_cost:factor=4"].figures


def test_several_loads_are_several_rounds() -> None:
    found = loads("least_work", busy=(0.2, 0.5))
    assert [load.busy for load in found] == [0.2, 0.5]
    assert (found[0].scale or 0) < (found[1].scale or 0)


def test_seeds_give_a_mean_and_a_spread() -> None:
    outcome = loads("random", seeds=3)[0].policies["random"]
    low, high = outcome.spread["ttft_mean"]
    assert low < outcome.figures.ttft_mean < high
    assert outcome.figures.requests == 3 * 108
    assert len(outcome.times) == 108


def test_tenths_are_told() -> None:
    tenths = loads("random")[0].policies["random"].tenths
    assert len(tenths) == 10
    assert set(tenths[0]) == {"ttft_mean", "ttft_p99", "hit_share", "inside_target"}


def test_after_a_change_the_next_tenth_is_told() -> None:
    setup = Setup(workers=3, room=30 * BLOCK, change="leave")
    after = loads("prefix_cost", setup=setup)[0].policies["prefix_cost"].after
    assert after is not None
    assert after.requests == 12
    assert loads("prefix_cost")[0].policies["prefix_cost"].after is None


def test_the_load_is_that_of_one_replica_without_a_change() -> None:
    plain = loads("reference")[0]
    changed = loads("reference", setup=Setup(workers=2, room=30 * BLOCK, replicas=3, change="leave"))[0]
    assert plain.scale == changed.scale


def test_capacity_is_the_scale_that_is_still_good() -> None:
    watch = Watch()
    setup = Setup(workers=1, room=30 * BLOCK)
    load = runner(watch, setup=setup).capacities(entrants(["prefix_cost", "random"]))
    assert load.busy is None
    assert watch.begun == ["prefix_cost"] * 6 + ["random"] * 6
    for outcome in load.policies.values():
        assert outcome.capacity is not None
        assert outcome.capacity == 0 or outcome.figures.inside_target >= 0.95


def test_whoever_watches_hears_of_every_run() -> None:
    watch = Watch()
    runner(watch, seeds=2).loads(entrants(["random"]))
    assert set(watch.begun[:-2]) == {"setting the load"}
    assert watch.begun[-2:] == ["random", "random"]


def test_replicas_without_exchange_lose_hits() -> None:
    apart, shared = (
        loads("prefix_cost", setup=Setup(workers=4, room=30 * BLOCK, replicas=4, share=share))[0].policies[
            "prefix_cost"
        ]
        for share in (False, True)
    )
    assert shared.figures.hit_share >= apart.figures.hit_share


def test_a_load_may_be_a_multiple_of_the_traces_own_rate() -> None:
    watch = Watch()
    found = runner(watch, scales=(0.5, 1.0)).loads(entrants(["least_work"]))
    assert [(load.busy, load.scale, load.reached) for load in found] == [(None, 0.5, None), (None, 1.0, None)]
    assert watch.begun == ["least_work"] * 2, "nothing is set by a reference"
    slow, quick = (load.policies["least_work"].figures.busy for load in found)
    assert slow < quick


def test_copies_of_a_plain_trace_are_as_many_times_as_much_to_do() -> None:
    one, three = (
        loads("least_work", scales=(0.5,), copies=copies)[0].policies["least_work"].figures for copies in (1, 3)
    )
    assert three.requests == 3 * one.requests
    assert three.busy > 2 * one.busy
