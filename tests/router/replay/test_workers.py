"""The model of a worker: its cache, its queue, its times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.item import BLOCK
from router.replay.workers import Cache, SimulatedWorker, Timing
from tests.support.replays import item, paths, request

TIMING = Timing()


def worker(blocks: int = 100, **more: object) -> SimulatedWorker:
    return SimulatedWorker("w0", blocks * BLOCK, TIMING, **more)  # type: ignore[arg-type]


def cached(*prompts: list[int], blocks: int = 100) -> Cache:
    cache = Cache(blocks * BLOCK)
    for names in prompts:
        cache.touch(names, item(names).ends)
    return cache


# The cache.


def test_a_prompt_finds_the_blocks_it_has_in_common() -> None:
    assert cached([1, 2, 3]).match(item([1, 2, 9])) == 2 * BLOCK


def test_at_least_one_token_is_always_computed() -> None:
    assert cached([1, 2]).match(item([1, 2])) == 2 * BLOCK - 1


def test_nothing_in_common_is_no_hit() -> None:
    assert cached([1, 2]).match(item([3])) == 0


def test_what_is_promised_counts_where_it_is_asked_for() -> None:
    assert cached([1]).match(item([1, 2, 3]), {2}) == 2 * BLOCK


def test_the_least_recently_used_prompt_leaves_first_and_its_leaves_before_its_root() -> None:
    cache = cached([1, 2], [3, 4], [5], blocks=4)
    assert (2 in cache, 1 in cache, 4 in cache) == (False, True, True)


def test_a_prompt_larger_than_the_cache_leaves_its_beginning() -> None:
    cache = cached([1, 2, 3], blocks=2)
    assert (1 in cache, 2 in cache, 3 in cache) == (True, True, False)


def test_entries_of_different_sizes_are_counted_in_tokens() -> None:
    cache = Cache(100)
    cache.touch([1, 2], [10, 90])
    cache.touch([3], [20])
    assert (cache.tokens, len(cache), 2 in cache) == (30, 2, False)


@given(st.lists(paths, max_size=30), st.integers(1, 12))
def test_the_cache_is_bounded_and_closed_under_prefixes(prompts: list[list[int]], blocks: int) -> None:
    cache = Cache(blocks * BLOCK)
    before = {name: names[:at] for names in prompts for at, name in enumerate(names)}
    for names in prompts:
        cache.touch(names, item(names).ends)
        assert cache.tokens == len(cache) * BLOCK <= blocks * BLOCK
        for name, earlier in before.items():
            assert name not in cache or all(each in cache for each in earlier)


@given(st.lists(paths, max_size=20), paths, st.integers(1, 12))
def test_a_hit_is_the_longest_cached_beginning(prompts: list[list[int]], asked: list[int], blocks: int) -> None:
    cache = cached(*prompts, blocks=blocks)
    known = next((at for at, name in enumerate(asked) if name not in cache), len(asked))
    assert cache.match(item(asked)) == min(known * BLOCK, len(asked) * BLOCK - 1)


# Prefill and decode.


def test_prefill_alone_is_a_start_and_the_tokens_cached_ones_twenty_times_faster() -> None:
    assert TIMING.alone(20_000) == pytest.approx(1.005)
    assert TIMING.alone(0, 20_000) == pytest.approx(0.055)


def test_a_running_decode_slows_prefill_by_a_fiftieth() -> None:
    slow = worker()
    slow.decodes = 5
    assert slow.prefill_seconds(1000, 0) == pytest.approx(TIMING.alone(1000) * 1.1)


def test_a_prefill_slows_a_decode_by_half() -> None:
    busy = worker()
    busy.decodes = 1
    assert busy.decode_seconds(100) == pytest.approx(1.24)
    busy.enqueue(request([1]))
    busy.start(0.0)
    assert busy.decode_seconds(100) == pytest.approx(1.86)


def test_a_worker_of_half_the_speed_takes_twice_as_long() -> None:
    assert worker(speed=0.5).prefill_seconds(1000, 0) == pytest.approx(2 * TIMING.alone(1000))
    assert worker(speed=0.5).decode_seconds(100) == pytest.approx(2 * worker().decode_seconds(100))


def test_one_prefill_at_a_time_first_come_first_served() -> None:
    one, other = request([1]), request([2])
    busy = worker()
    busy.enqueue(one)
    busy.enqueue(other)
    end = busy.start(0.0)
    assert busy.current is one
    assert busy.start(0.0) is None
    assert busy.waiting == 2
    busy.first_token()
    assert busy.start(end or 0.0) is not None
    assert (busy.current, busy.waiting, busy.decodes) == (other, 1, 1)


def test_whoever_waits_behind_the_same_beginning_profits() -> None:
    one, other = request([1, 2]), request([1, 2, 3])
    busy = worker()
    busy.enqueue(one)
    busy.enqueue(other)
    busy.start(0.0)
    busy.first_token()
    busy.start(1.0)
    assert (one.hit, other.hit) == (0, 2 * BLOCK)


def test_a_first_token_without_a_prefill_is_nothing() -> None:
    idle = worker()
    idle.first_token()
    assert (idle.decodes, idle.start(0.0)) == (0, None)


# Foresight, and leaving.


def test_with_foresight_the_queue_is_known_in_seconds_and_in_blocks() -> None:
    seen = worker(foresight=True)
    for names in ([1], [2]):
        seen.enqueue(request(names))
    seen.start(0.0)
    assert seen.wait(0.0) == pytest.approx(2 * TIMING.alone(BLOCK))
    assert seen.expected_hit(item([2, 3])) == BLOCK


def test_without_foresight_a_queue_promises_nothing() -> None:
    blind = worker()
    blind.enqueue(request([1]))
    assert blind.expected_hit(item([1, 2])) == 0


@pytest.mark.parametrize("foresight", [False, True])
def test_a_worker_that_leaves_hands_over_what_has_no_first_token(foresight: bool) -> None:
    gone = worker(foresight=foresight)
    waiting = [request([1]), request([1, 2])]
    for each in waiting:
        gone.enqueue(each)
    gone.start(0.0)
    assert gone.leave() == waiting
    assert (gone.alive, gone.waiting, gone.wait(0.0), gone.expected_hit(item([1]))) == (False, 0, 0.0, 0)
    assert [each.worker for each in waiting] == [None, None]


def test_it_shows_itself() -> None:
    assert repr(worker()) == "<SimulatedWorker w0, 0 waiting, 0 decoding>"
