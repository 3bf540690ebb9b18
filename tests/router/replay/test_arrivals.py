"""When requests come."""

from hypothesis import given
from hypothesis import strategies as st

from router.replay.arrivals import Arrivals, spread
from tests.support.replays import dice, line, rows


def arrivals(*lines: object, copies: int = 1, seed: int = 0) -> Arrivals:
    return Arrivals(rows(*lines), dice(seed)("arrivals"), copies)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30).map(sorted))
def test_ties_are_spread_and_nobody_overtakes_a_later_stamp(stamps: list[int]) -> None:
    found = spread([float(at) for at in stamps], dice()("ties"))
    assert found == sorted(found)
    begin = found[0]
    assert begin == 0.0
    following = {at: min((later for later in stamps if later > at), default=at + 3) for at in stamps}
    for at, moved in zip(stamps, found, strict=True):
        assert moved <= following[at] - stamps[0] + 1e-9


def test_stamps_without_ties_stay() -> None:
    assert spread([2.0, 3.0, 7.0], dice()("ties")) == [0.0, 1.0, 5.0]


def test_a_plain_trace_is_played_faster() -> None:
    found = arrivals(line(0, [1]), line(6, [2])).at(3.0)
    assert [(each.due, each.opens, each.following) for each in found] == [(0, True, None), (2, True, None)]


def test_requests_are_new_in_every_run_and_prompts_are_not() -> None:
    drawn = arrivals(line(0, [1]))
    (one,), (other,) = drawn.at(1.0), drawn.at(1.0)
    assert one is not other
    assert one.item is other.item


def test_a_session_starts_sooner_and_keeps_its_pauses() -> None:
    found = arrivals(line(0, [9]), line(4, [1], session="a"), line(7, [1, 2], session="a")).at(2.0)
    assert [each.due for each in found] == [0.0, 2.0, 5.0]
    _, first, second = found
    assert (first.opens, first.following, second.opens) == (True, second, False)


def test_copies_of_a_session_start_anywhere_and_have_blocks_of_their_own() -> None:
    lines = (line(0, [1], session="a"), line(5, [2], session="b"), line(6, [2, 3], session="b"))
    found = arrivals(*lines, copies=3).at(1.0)
    assert len(found) == 9
    assert [each.due for each in found] == sorted(each.due for each in found)
    assert len({each.item.names[0] for each in found}) == 6
    assert max(each.due for each in found if each.opens) <= 5.0


def test_other_dice_draw_other_times() -> None:
    lines = [line(0, [at]) for at in range(5)]
    assert [r.due for r in arrivals(*lines).at(1)] != [r.due for r in arrivals(*lines, seed=1).at(1)]


def test_copies_of_a_plain_trace_are_played_at_once_with_blocks_of_their_own() -> None:
    lines = [line(at, [at]) for at in range(10)]
    found = arrivals(*lines, copies=4).at(2.0)
    assert len(found) == 40
    assert [each.due for each in found] == sorted(each.due for each in found)
    assert max(each.due for each in found) <= 5.0, "a copy goes on at its beginning where it ends"
    assert all(each.opens for each in found)
    assert len({each.item.names[0] for each in found}) == 40
    begins = [[each.due for each in found if each.item.names[0] == name] for name in (0, 10, 20, 30)]
    assert len({each[0] for each in begins if each}) == len([each for each in begins if each])


def test_copies_of_a_single_prompt_come_at_one_moment() -> None:
    assert [each.due for each in arrivals(line(0, [1]), copies=3).at(1.0)] == [0.0, 0.0, 0.0]
