"""Each worker in turn."""

from collections import Counter

from router.contracts import Policy, PolicyTools
from router.policies.round_robin import Options, build
from tests.support.fleets import Look, Stage, ask_of, chat, named, ring_of

ASK = ask_of(b"x" * 500)


def fresh() -> Policy:
    return build(Options(), PolicyTools(ring_of([]), None))


def first(policy: Policy, names: list[str]) -> str:
    return next(iter(policy.order(ASK, [Look(name) for name in names], 0.0))).worker


def test_each_worker_has_its_turn() -> None:
    stage = Stage(3, "round_robin")
    assert [stage.serve(chat("hi")).seat.id for _ in range(7)] == ["w0", "w1", "w2", "w0", "w1", "w2", "w0"]


def test_a_worker_that_joins_or_leaves_skips_nobody() -> None:
    policy = fresh()
    got = [first(policy, ["b", "d"]), first(policy, ["a", "b", "c", "d"]), first(policy, ["a", "d"])]
    assert got == ["b", "c", "d"]


def test_the_others_follow_in_turn() -> None:
    policy = fresh()
    first(policy, named(4))
    assert [each.worker for each in policy.order(ASK, [Look(name) for name in named(4)], 0.0)] == [
        "w1",
        "w2",
        "w3",
        "w0",
    ]


def test_load_does_not_matter() -> None:
    stage = Stage(4, "round_robin")
    stage.fleet.seats["w1"].load.charge(1e9, 0.0, streaming=True)
    assert set(Counter(stage.serve(chat("hi")).seat.id for _ in range(8)).values()) == {2}
