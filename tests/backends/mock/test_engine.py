"""The mock engine on fake time."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contract import Job, JobRefusedError
from backends.mock.engine import MockEngine, Shape, Time
from backends.mock.timing import CostModel
from backends.prefix_cache import PrefixCache


def job(prompt: Any = range(100), **fields: Any) -> Job:
    return Job(model="m", prompt=list(prompt), **fields)


def test_time_to_first_token_is_prefill_and_then_one_token_a_step(
    engine_of: Any, listener: Any, fake_time: Any
) -> None:
    engine, sink = engine_of(), listener()
    engine.start(job(max_tokens=4), sink)
    fake_time.pass_to(9)
    assert sink.times == pytest.approx([1.0, 1.1, 1.2, 1.3])
    assert sink.end.reason == "length"
    assert (sink.end.usage.prompt_tokens, sink.end.usage.completion_tokens) == (100, 4)


def test_a_cached_beginning_is_not_computed_again(engine_of: Any, listener: Any, fake_time: Any) -> None:
    """96 of 100 tokens are cached: four are left, 0.04 seconds."""
    engine, first, second = engine_of(), listener(), listener()
    engine.start(job(max_tokens=1), first)
    fake_time.pass_to(10)
    engine.start(job(max_tokens=1), second)
    fake_time.pass_to(20)
    assert second.times == pytest.approx([10.04])
    assert second.usage.cached_tokens == 96


def test_one_that_waits_behind_its_twin_hits_what_the_twin_computed(
    engine_of: Any, listener: Any, fake_time: Any
) -> None:
    """The cache is asked when a prefill starts, not when a request comes."""
    engine, first, second = engine_of(), listener(), listener()
    engine.start(job(max_tokens=1), first)
    engine.start(job(max_tokens=1), second)
    fake_time.pass_to(9)
    assert second.times == pytest.approx([1.04])


def test_the_last_token_is_not_in_the_cache_but_all_before_it_are(
    engine_of: Any, listener: Any, fake_time: Any
) -> None:
    """A token's keys and values are computed by the step after it."""
    engine, sink = engine_of(), listener()
    engine.start(job(range(300, 308), max_tokens=5), sink)
    fake_time.pass_to(5)
    said = engine.tokenizer.encode(sink.text)
    again = listener()
    engine.start(job([*range(300, 308), *said, 7], max_tokens=1), again)
    fake_time.pass_to(9)
    assert len(said) == 5
    assert again.usage.cached_tokens == 12


def test_without_a_limit_the_answer_ends_by_itself(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine, sink = engine_of(), listener()
    engine.start(job(), sink)
    fake_time.pass_to(60)
    assert sink.end.reason == "stop"
    assert len(sink.pieces) == 16


def test_an_answer_of_its_own_length_fits_the_model(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine, sink = engine_of(max_model_len=103), listener()
    engine.start(job(), sink)
    fake_time.pass_to(60)
    assert len(sink.pieces) == 3


def test_an_embedding_is_a_prefill_and_a_vector(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine, sink = engine_of(), listener()
    engine.start(job(embed=True), sink)
    fake_time.pass_to(9)
    assert sink.heard == ["prefilled", "finished"]
    assert sum(value * value for value in sink.end.vector) == pytest.approx(1.0)


def test_an_empty_prompt_is_refused(engine_of: Any, listener: Any) -> None:
    with pytest.raises(JobRefusedError):
        engine_of().start(job([]), listener())


@pytest.mark.parametrize("moment", [0.0, 0.5, 1.5, 2.5])
def test_abort_gives_everything_back_in_every_phase(
    moment: float, engine_of: Any, listener: Any, fake_time: Any
) -> None:
    """Waiting behind another (0), in prefill (0.5 and 1.5, for one of the two), decoding (2.5)."""
    engine, sinks = engine_of(), [listener(), listener()]
    handles = [engine.start(job(range(start, start + 100), max_tokens=50), sinks[start // 500]) for start in (0, 500)]
    fake_time.pass_to(moment)
    for handle in handles:
        handle.abort()
        handle.abort()
    heard = [list(sink.heard) for sink in sinks]
    fake_time.pass_to(60)
    assert [sink.heard for sink in sinks] == heard
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
    assert stats.finished == {"abort": 2}


def test_an_abort_lets_the_next_one_in_at_once(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine, sink = engine_of(max_running=1), listener()
    first = engine.start(job(max_tokens=50), listener())
    engine.start(job(range(500, 600), max_tokens=1), sink)
    fake_time.pass_to(2.0)
    first.abort()
    fake_time.pass_to(9)
    assert sink.times == pytest.approx([3.0])


def test_a_full_cache_makes_the_next_one_wait(engine_of: Any, listener: Any, fake_time: Any) -> None:
    """25 blocks a prompt, 30 in all: the second is let in when the first is done, though places are free."""
    engine, sink = engine_of(blocks=30), listener()
    engine.start(job(max_tokens=1), listener())
    engine.start(job(range(500, 600), max_tokens=1), sink)
    assert engine.stats().waiting == 1
    fake_time.pass_to(9)
    assert sink.times == pytest.approx([2.0])


def test_a_prompt_larger_than_the_cache_runs_when_it_is_alone(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine, sink = engine_of(blocks=5), listener()
    engine.start(job(max_tokens=9), sink)
    fake_time.pass_to(9)
    assert sink.end is not None
    assert engine.stats().kv_usage == 0


def test_closing_aborts_what_runs(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine = engine_of()
    engine.start(job(max_tokens=50), listener())
    engine.close()
    assert engine.stats().running == 0
    assert "0 running" in repr(engine)


def test_no_time_still_means_not_before_start_returned(engine_of: Any, listener: Any, fake_time: Any) -> None:
    engine, sink = engine_of(scale=0), listener()
    engine.start(job(max_tokens=3), sink)
    assert sink.heard == []
    fake_time.pass_to(0)
    assert sink.heard == ["prefilled", "tokens", "finished"]


arrivals = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 60), st.integers(1, 9), st.booleans()), max_size=10)


@settings(max_examples=50)
@given(arrivals)
def test_everything_returns_to_zero(work: list[tuple[float, int, int, bool]]) -> None:
    """Whatever comes, goes or is too large: nothing is held in the end and every sequence has one end."""
    timers: list[Callable[[], None]] = []

    class Alarm:
        def cancel(self) -> None:
            timers.clear()

    moment = 0.0

    def later(_: float, callback: Callable[[], None]) -> Alarm:
        timers.append(callback)
        return Alarm()

    cost = CostModel(prefill_tokens_per_second=100, decode_tokens_per_second=10)
    engine = MockEngine(Shape(cost=cost, max_running=2), PrefixCache(8, 4), Time(lambda: moment, later))

    class Quiet:
        prefilled = tokens = finished = staticmethod(lambda *_: None)

    for when, length, count, leaves in sorted(work):
        moment = when
        handle = engine.start(job(range(length), max_tokens=count), Quiet())
        if leaves:
            handle.abort()
    while timers:
        moment += 0.5
        timers.pop()()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
    assert sum(stats.finished.values()) == len(work)
    assert stats.peak_running <= 2
