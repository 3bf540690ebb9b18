"""How much a worker's prefix cache holds: told, or learnt from what it delivers."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.room import BARREN, LEAST_EXPECTED, OWN_SHARE, Room

tokens = st.floats(0, 1e6)
answers = st.lists(st.tuples(tokens, tokens, tokens, tokens), max_size=40)


def learnt(**more: float) -> Room:
    """A room that was learnt to be smaller than what was computed."""
    room = Room()
    room.learn(**{"age": 8000.0, "expected": 1000.0, "delivered": 0.0, "computed": 10_000.0, **more})
    return room


def test_unknown_room_is_infinite() -> None:
    assert Room().tokens == inf
    assert not Room().is_barren


def test_a_prefix_found_gone_says_that_the_room_is_smaller_than_all_that_was_computed() -> None:
    assert learnt().tokens == pytest.approx(9000.0)


def test_prefixes_found_gone_again_and_again_shrink_it_further() -> None:
    room = learnt()
    for _ in range(10):
        before = room.tokens
        room.learn(8000.0, 1000.0, 100.0, 20_000.0)
        assert room.tokens == pytest.approx(0.9 * before)


def test_a_prefix_that_was_there_beyond_the_room_says_that_it_is_larger() -> None:
    room = learnt()
    room.learn(15_000.0, 0.0, 1000.0, 20_000.0)
    assert room.tokens == 15_000.0


def test_a_prefix_that_was_there_near_the_room_s_end_lets_it_grow_a_little() -> None:
    room = learnt()
    room.learn(0.6 * room.tokens, 1000.0, 1000.0, 20_000.0)
    assert room.tokens == pytest.approx(9000.0 * 1.05)


def test_a_young_prefix_that_was_there_says_nothing() -> None:
    room = learnt()
    room.learn(100.0, 1000.0, 1000.0, 20_000.0)
    assert room.tokens == pytest.approx(9000.0)


def test_a_prefix_just_sent_may_be_missing_since_it_is_still_being_computed() -> None:
    room = Room()
    room.learn(100.0, 1000.0, 0.0, 10_000.0)
    assert room.tokens == inf


def test_a_few_tokens_say_little() -> None:
    room = Room()
    room.learn(8000.0, LEAST_EXPECTED - 1, 0.0, 10_000.0)
    assert room.tokens == inf


def test_half_and_more_of_a_prefix_is_neither_gone_nor_there() -> None:
    assert learnt(delivered=600.0).tokens == inf


@pytest.mark.parametrize("room", [1000.0, 50_000.0])
def test_it_finds_the_true_room_of_a_cache(room: float) -> None:
    """Prefixes of all ages are asked for; those sent longer ago than the cache has room for are gone. It settles a
    little high, where as much is found there as is found gone."""
    found = Room()
    for at in range(4000):
        age = (at * 7919 % 1000) / 1000 * 2 * room
        expected = 500.0 if age <= found.tokens else 0.0
        found.learn(age, expected, 500.0 if age <= room else 0.0, 2 * room + at)
    assert found.tokens == pytest.approx(room, rel=0.3)


def test_of_a_told_room_a_share_is_left_to_answers_and_running_requests() -> None:
    room = Room()
    room.tell(1000.0)
    assert room.tokens == OWN_SHARE * 1000.0
    assert 0.5 < OWN_SHARE < 1.0


@given(tokens, answers)
def test_what_the_engine_told_is_never_changed(told: float, answers: list[tuple[float, float, float, float]]) -> None:
    room = Room()
    room.learn(8000.0, 1000.0, 0.0, 10_000.0)
    room.tell(told)
    for answer in answers:
        room.learn(*answer)
        assert room.tokens == OWN_SHARE * told


@given(answers)
def test_a_room_is_always_something(answers: list[tuple[float, float, float, float]]) -> None:
    room = Room()
    for answer in answers:
        room.learn(*answer)
        assert room.tokens >= 1.0
        assert room.tokens == room.tokens


def test_a_worker_that_never_delivers_is_held_to_cache_nothing_until_it_delivers_once() -> None:
    room = Room()
    for at in range(BARREN):
        assert room.is_barren is False, at
        room.learn(5.0, 1000.0, 0.0, 1000.0)
    assert room.is_barren
    room.learn(5.0, 0.0, 0.0, 1000.0)
    assert room.is_barren
    room.learn(5.0, 0.0, 16.0, 1000.0)
    assert not room.is_barren


def test_one_delivery_now_and_then_is_enough() -> None:
    room = Room()
    for _ in range(5):
        for _ in range(BARREN - 1):
            room.learn(5.0, 1000.0, 0.0, 1000.0)
        room.learn(5.0, 1000.0, 32.0, 1000.0)
    assert not room.is_barren


def test_where_nothing_was_expected_nothing_proves_nothing() -> None:
    room = Room()
    for _ in range(10 * BARREN):
        room.learn(5.0, LEAST_EXPECTED - 1, 0.0, 1000.0)
    assert not room.is_barren


def test_a_worker_that_told_its_room_may_cache_nothing_too() -> None:
    room = Room()
    room.tell(1000.0)
    for _ in range(BARREN):
        room.learn(5.0, 1000.0, 0.0, 1000.0)
    assert room.is_barren


def test_a_room_shows_itself() -> None:
    room = Room()
    room.tell(1000.0 / OWN_SHARE)
    assert repr(room) == "<Room 1000>"
    for _ in range(BARREN):
        room.learn(5.0, 1000.0, 0.0, 1000.0)
    assert repr(room) == "<Room 1000, caches nothing>"
