"""The schedule: who runs when, with time handed in."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.mock.schedule import Schedule, Step
from backends.mock.timing import CostModel

COST = CostModel(prefill_tokens_per_second=100, decode_tokens_per_second=10)


class Plan(Schedule[str]):
    """A schedule that returns what it played. Every sequence has 100 tokens to compute, one second, unless told."""

    def __init__(self, costs: dict[str, int] | None = None, max_running: int = 8, cost: CostModel = COST) -> None:
        self.heard: list[Step[str]] = []
        super().__init__(cost, max_running, lambda name, _: (costs or {}).get(name, 100), self.heard.append)

    def steps(self, now: float) -> list[Step[str]]:
        self.heard.clear()
        self.advance(now)
        return list(self.heard)


schedule = Plan


def played(plan: Plan, until: float) -> list[tuple[float, str]]:
    """Who made a token when."""
    found: list[tuple[float, str]] = []
    while (due := plan.due()) is not None and due <= until:
        found += [(round(due, 6), step.sequence) for step in plan.steps(due) for _ in range(step.tokens)]
    return found


def test_a_lone_sequence_prefills_then_makes_a_token_each_step() -> None:
    plan = schedule()
    plan.submit("a", 3, 0.0)
    assert played(plan, 9) == [(1.0, "a"), (1.1, "a"), (1.2, "a")]
    assert plan.running == plan.waiting == 0
    assert plan.due() is None


def test_prefill_is_first_come_first_served_one_at_a_time() -> None:
    """The second waits for the first one's prefill though there is room for both."""
    plan = schedule()
    plan.submit("a", 1, 0.0)
    plan.submit("b", 1, 0.0)
    assert (plan.running, plan.waiting) == (1, 1)
    assert played(plan, 9) == [(1.0, "a"), (2.0, "b")]


def test_nobody_starts_while_the_places_are_taken() -> None:
    plan = schedule(max_running=1)
    plan.submit("a", 11, 0.0)
    plan.submit("b", 1, 0.0)
    assert played(plan, 9)[-1] == (3.0, "b")


def test_two_decode_in_step_and_slower() -> None:
    """The step that began alone goes on at the pace of two: 0.1 s alone, 0.101 s together."""
    plan = schedule({"b": 5})
    plan.submit("a", 5, 0.0)
    plan.submit("b", 2, 1.0)
    assert [name for _, name in played(plan, 9)] == ["a", "b", "a", "b", "a", "a", "a"]
    plan = schedule({"b": 5})
    plan.submit("a", 5, 0.0)
    plan.submit("b", 2, 1.0)
    times = [when for when, name in played(plan, 9) if name == "a"]
    assert times[1] == pytest.approx(1.0 + 0.05 + 0.05 * 1.01)


def test_a_sequence_of_no_tokens_ends_with_its_prefill() -> None:
    plan = schedule()
    plan.submit("a", 0, 0.0)
    assert plan.steps(1.0) == [Step("a", prefilled=True, tokens=0, over=True)]


def test_without_time_everything_happens_at_once() -> None:
    plan = schedule(cost=CostModel(time_scale=0))
    plan.submit("a", 3, 5.0)
    plan.submit("b", 2, 5.0)
    assert Counter(step.sequence for step in plan.steps(5.0)) == {"a": 3, "b": 2}


@pytest.mark.parametrize("moment", [0.5, 1.05])
def test_leaving_makes_room_for_the_next(moment: float) -> None:
    """In prefill and in decoding alike."""
    plan = schedule(max_running=1)
    plan.submit("a", 9, 0.0)
    plan.submit("b", 1, 0.0)
    plan.advance(moment)
    plan.cancel("a", moment)
    assert (plan.running, plan.waiting) == (1, 0)
    assert played(plan, 9) == [(pytest.approx(moment + 1), "b")]


def test_one_that_waits_can_leave_too() -> None:
    plan = schedule()
    plan.submit("a", 1, 0.0)
    plan.submit("b", 1, 0.0)
    plan.cancel("b", 0.5)
    assert played(plan, 9) == [(1.0, "a")]


def test_one_without_room_is_asked_again_when_somebody_leaves() -> None:
    """Nobody behind it overtakes meanwhile; told that nothing else runs, it gets in."""
    asked: list[tuple[str, bool]] = []

    def admit(name: str, alone: bool) -> int | None:
        asked.append((name, alone))
        return None if name == "big" and not alone else 100

    made: list[str] = []
    plan: Schedule[str] = Schedule(COST, 8, admit, lambda step: made.append(step.sequence))
    for name in ("a", "big", "c"):
        plan.submit(name, 2, 0.0)
    plan.advance(9.0)
    assert made == ["a", "a", "big", "big", "c", "c"]
    assert ("big", False) in asked
    assert ("big", True) in asked
    assert plan.running == plan.waiting == 0


jobs = st.lists(
    st.tuples(st.floats(0, 5), st.integers(0, 200), st.integers(0, 12), st.one_of(st.none(), st.floats(0, 8))),
    max_size=8,
)


def drive(work: list[tuple[float, int, int, float | None]], stops: list[float], places: int) -> list[tuple[str, int]]:
    """Runs arrivals, departures and extra looks in order; what each sequence made."""
    plan = schedule({str(place): tokens for place, (_, tokens, _, _) in enumerate(work)}, places)
    moments = [(when, "in", place) for place, (when, _, _, _) in enumerate(work)]
    moments += [(gone, "out", place) for place, (_, _, _, gone) in enumerate(work) if gone is not None]
    moments += [(stop, "look", 0) for stop in stops]
    steps: list[Step[str]] = []
    inside: set[int] = set()
    for moment, what, place in sorted(moments):
        steps += plan.steps(moment)
        if what == "in":
            inside.add(place)
            plan.submit(str(place), work[place][2], moment)
        elif what == "out" and place in inside:
            plan.cancel(str(place), moment)
        assert plan.running <= places
        assert plan.running or not plan.waiting
    steps += plan.steps(1e9)
    assert plan.running == plan.waiting == 0
    return [(step.sequence, step.tokens) for step in steps]


@given(jobs, st.lists(st.floats(0, 10), max_size=6), st.integers(1, 4))
def test_looking_more_often_changes_nothing(
    work: list[tuple[float, int, int, float | None]], stops: list[float], places: int
) -> None:
    """The law that makes a late timer harmless; on the way: places are kept, and nothing waits for nothing."""
    few, many = Counter[str](), Counter[str]()
    for name, tokens in drive(work, [], places):
        few[name] += tokens
    for name, tokens in drive(work, stops, places):
        many[name] += tokens
    uncut = [str(place) for place, (_, _, _, gone) in enumerate(work) if gone is None]
    for name in uncut:
        assert few[name] == many[name] == work[int(name)][2]
