"""Each worker in turn."""

from collections import Counter

import pytest

from router.contracts import PolicyTools
from router.policies.round_robin import Options, build
from tests.support.fleets import Look, Stage, ask_of, chat, named, ring_of

POLICY = build(Options(), PolicyTools(ring_of([]), None))


def order(turn: int, names: list[str]) -> list[str]:
    ask = ask_of(b"x" * 500, turn=turn)
    return [each.worker for each in POLICY.order(ask, [Look(name) for name in names], 0.0)]


def test_each_worker_has_its_turn() -> None:
    stage = Stage(3, "round_robin")
    assert [stage.serve(chat("hi")).seat.id for _ in range(7)] == ["w0", "w1", "w2", "w0", "w1", "w2", "w0"]


def test_the_turn_is_the_request_s_and_looking_takes_none() -> None:
    stage = Stage(3, "round_robin")
    for at in range(7):
        assert {stage.look(chat("hi")) for _ in range(5)} == {f"w{at % 3}"}
        assert stage.serve(chat("hi")).seat.id == f"w{at % 3}"


@pytest.mark.parametrize("turn", [0, 1, 5, 10**9])
def test_one_ask_has_one_order_and_its_neighbour_begins_one_further(turn: int) -> None:
    assert order(turn, named(4)) == order(turn, named(4))
    assert order(turn + 1, named(4))[0] == order(turn, named(4))[1]


def test_the_names_decide_and_not_the_order_they_are_given_in() -> None:
    assert order(1, ["c", "a", "b"]) == order(1, ["a", "b", "c"]) == ["b", "c", "a"]


def test_from_the_moment_a_worker_joins_or_leaves_everybody_has_a_turn_in_as_many_requests() -> None:
    for since in range(12):
        for names in (["b", "d"], ["a", "b", "c", "d"], ["a", "d"]):
            assert sorted(order(turn, names)[0] for turn in range(since, since + len(names))) == names


def test_the_others_follow_in_turn() -> None:
    assert order(1, named(4)) == ["w1", "w2", "w3", "w0"]
    assert order(6, named(4)) == ["w2", "w3", "w0", "w1"]


def test_load_does_not_matter() -> None:
    stage = Stage(4, "round_robin")
    stage.fleet.seats["w1"].load.charge(1e9, 0.0, streaming=True)
    assert set(Counter(stage.serve(chat("hi")).seat.id for _ in range(8)).values()) == {2}
