"""The key is the shallowest rung that is not hot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import DEPTHS, fingerprint
from router.core.ladder import Ladder
from router.types import Fingerprint, Key
from tests.support.strategies import fingerprints

HEAD = b"h" * 2000


def with_tail(number: int, head: bytes = HEAD) -> Fingerprint:
    return fingerprint(head + f"{number:08}".encode() * 300, 0)


def test_a_prompt_never_seen_is_keyed_by_its_first_rung() -> None:
    key = Ladder().note(with_tail(0), 8)
    assert (key.depth, key.hot_depth) == (64, 0)
    assert key.value == with_tail(0).hashes[0]


def test_a_prefix_is_not_hot_before_it_was_seen_often_enough() -> None:
    ladder = Ladder(least=8)
    keys = [ladder.note(with_tail(at), 1000) for at in range(8)]
    assert {key.depth for key in keys} == {64}


def test_a_hot_head_is_passed_and_the_key_lies_where_prompts_part() -> None:
    ladder = Ladder()
    for at in range(200):
        ladder.note(with_tail(at), 8)
    key = ladder.note(with_tail(1), 8)
    deepest_shared = max(depth for depth in DEPTHS if depth <= len(HEAD))
    assert key.hot_depth == deepest_shared
    assert key.depth == next(depth for depth in DEPTHS if depth > len(HEAD))


def test_prompts_with_one_hot_head_get_many_keys() -> None:
    ladder = Ladder()
    for at in range(200):
        ladder.note(with_tail(at), 8)
    assert len({ladder.look(with_tail(at), 8).value for at in range(100)}) == 100


def test_a_prefix_with_its_fair_share_or_less_stays_its_own_key() -> None:
    """Sixty-four equal groups over eight workers: each has an eighth of the bar."""
    ladder = Ladder()
    heads = [bytes([65 + at]) * 2000 for at in range(64)]
    for at in range(2000):
        key = ladder.note(with_tail(at, heads[at % 64]), 8)
    assert key.depth == 64


@pytest.mark.parametrize(("each", "hot"), [(2, True), (3, True), (5, False), (8, False)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_prefix_is_hot_from_a_quarter_of_a_worker_s_equal_part_of_the_traffic_on(
    each: int, hot: bool, workers: int
) -> None:
    """One request in `each * workers` begins with it."""
    ladder = Ladder()
    for at in range(900):
        ours = at % (each * workers) == 0
        ladder.note(with_tail(at, HEAD if ours else f"{at:06}".encode() * 400), workers)
    assert (ladder.look(with_tail(901), workers).hot_depth > 0) is hot


def test_when_all_rungs_are_hot_the_deepest_is_the_key() -> None:
    ladder = Ladder()
    for _ in range(100):
        key = ladder.note(with_tail(0), 8)
    prompt = with_tail(0)
    assert key == Key(prompt.hashes[-1], prompt.depths[-1], prompt.depths[-1])


def test_a_prefix_cools_when_others_come() -> None:
    ladder = Ladder(window=100)
    for at in range(100):
        ladder.note(with_tail(at), 8)
    assert ladder.look(with_tail(0), 8).hot_depth > 0
    for at in range(2000):
        ladder.note(fingerprint(f"{at:06}".encode() * 50, 0), 8)
    assert ladder.look(with_tail(0), 8).hot_depth == 0


def test_a_prompt_too_short_for_any_rung_is_its_own_key() -> None:
    ladder = Ladder()
    short = fingerprint(b"hi", 3)
    assert ladder.note(short, 8) == Key(short.whole, 0, 0)
    assert len(ladder) == 0


def test_no_worker_is_no_trouble() -> None:
    assert Ladder().note(with_tail(0), 0).depth == 64


@given(st.lists(fingerprints(), min_size=1, max_size=25), st.integers(1, 12), st.sampled_from([1000, 7]))
def test_looking_agrees_with_noting_and_counts_nothing(prompts: list[Fingerprint], workers: int, window: int) -> None:
    ladder = Ladder(window=window, least=2)
    for prompt in prompts:
        size = len(ladder)
        expected = ladder.look(prompt, workers)
        assert ladder.look(prompt, workers) == expected
        assert len(ladder) == size
        assert ladder.note(prompt, workers) == expected


@given(st.lists(fingerprints(), max_size=60), st.integers(1, 12))
def test_the_key_is_the_first_rung_past_the_hot_depth(prompts: list[Fingerprint], workers: int) -> None:
    ladder = Ladder(window=16, least=1)
    for prompt in prompts:
        key = ladder.note(prompt, workers)
        if not prompt.hashes:
            assert key == Key(prompt.whole, 0, 0)
            continue
        at = prompt.depths.index(key.depth)
        assert prompt.hashes[at] == key.value
        assert key.hot_depth == (prompt.depths[at - 1] if at else 0) or at == len(prompt.depths) - 1


@pytest.mark.parametrize("window", [10, 100, 1000])
def test_the_memory_is_bounded_by_the_window(window: int) -> None:
    ladder = Ladder(window=window)
    for at in range(20 * window):
        ladder.note(fingerprint(f"{at % 777:05} {at:07}".encode() * 400, 0), 8)
        assert len(ladder) <= 3 * window
