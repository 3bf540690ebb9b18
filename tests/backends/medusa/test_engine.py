"""The engine's laws, with its real thread: what the loop hears, when, and what is given back."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from backends.block_pool import Stored
from backends.contract import Chat, Job, JobRefusedError, Turn
from backends.medusa.engine import MedusaEngine
from tests.support.tiny_worker import tiny_engine

Eventually = Callable[[Callable[[], Any]], Awaitable[None]]
Start = Callable[..., MedusaEngine]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Engines of the tiny network, closed at the end."""
    engines: list[MedusaEngine] = []
    yield lambda listener=None, **running: engines.append(tiny_engine(listener, **running)) or engines[-1]
    for engine in engines:
        engine.close()
    assert not any(thread.name == "medusa" for thread in threading.enumerate())


def job(**fields: Any) -> Job:
    return Job(model="tiny", **({"prompt": list(range(40)), "max_tokens": 6, "ignore_eos": True} | fields))


async def test_a_sink_hears_in_order_and_on_the_loops_thread(
    start: Start, listener: Any, eventually: Eventually
) -> None:
    threads: set[int] = set()
    engine, sink = start(), listener()
    tokens = sink.tokens
    sink.tokens = lambda *heard: (threads.add(threading.get_ident()), tokens(*heard))
    engine.start(job(logprobs=1), sink)
    assert sink.heard == []
    await eventually(lambda: sink.end is not None)
    assert (sink.heard[0], sink.heard[-1]) == ("prefilled", "finished")
    assert set(sink.heard[1:-1]) == {"tokens"}
    assert (len(sink.pieces), len(sink.logprobs), sink.end.usage.completion_tokens) == (6, 6, 6)
    assert threads == {threading.get_ident()}


async def test_nobody_is_called_from_start_and_abort_and_nobody_after_its_abort(
    start: Start, listener: Any, eventually: Eventually
) -> None:
    engine, gone, stays = start(), listener(), listener()
    first = engine.start(job(), gone)
    engine.start(job(), stays)
    first.abort()
    first.abort()
    assert gone.heard == stays.heard == []
    await eventually(lambda: stays.end is not None)
    assert gone.heard == []


async def test_a_sink_may_abort_itself_and_others_and_start_more(
    start: Start, listener: Any, eventually: Eventually
) -> None:
    engine, one, other, third = start(), listener(), listener(), listener()

    class Cutting:
        def prefilled(self, usage: Any) -> None: ...

        def tokens(self, pieces: Any, logprobs: Any = None) -> None:
            one.tokens(pieces)
            mine.abort()
            theirs.abort()
            engine.start(job(), third)

        def finished(self, end: Any) -> None:
            one.finished(end)

        def failed(self) -> None: ...

    mine = engine.start(job(max_tokens=50), Cutting())
    theirs = engine.start(job(prompt=[3] * 20, max_tokens=100), other)
    await eventually(lambda: third.end is not None)
    assert one.heard == ["tokens"]
    assert other.end is None
    await eventually(lambda: engine.stats().running == 0)


@pytest.mark.parametrize("phase", ["waiting", "prompt", "decoding"])
async def test_an_abort_frees_seat_and_blocks_whatever_the_phase(
    start: Start, listener: Any, eventually: Eventually, phase: str
) -> None:
    engine = start(rows=1, prefill=1)
    sink, others = listener(), [listener()] if phase == "waiting" else []
    before = [engine.start(job(max_tokens=100), other) for other in others]
    sequence = engine.start(job(max_tokens=100), sink)
    reached = {
        "waiting": lambda: engine.stats().running == 1 and engine.stats().waiting == 1,
        "prompt": lambda: engine.stats().running == 1,
        "decoding": lambda: sink.pieces,
    }
    await eventually(reached[phase])
    for one in (*before, sequence):
        one.abort()
    await eventually(lambda: engine.stats().running == engine.stats().waiting == 0)
    assert engine.stats().kv_usage == 0
    assert engine.stats().finished == {"abort": 1 + len(before)}


async def test_who_is_not_taken_in_yet_counts_as_waiting(start: Start, listener: Any) -> None:
    engine = start()
    for place in range(3):
        engine.start(job(prompt=[place] * 8), listener())
    assert (engine.stats().running, engine.stats().waiting) == (0, 3)


async def test_many_at_once_say_what_each_says_alone(start: Start, listener: Any, eventually: Eventually) -> None:
    prompts = [[place, *range(20)] for place in range(9)]

    async def said(together: bool) -> list[str]:
        engine, sinks = start(), [listener() for _ in prompts]
        for sink, prompt in zip(sinks, prompts, strict=True):
            engine.start(job(prompt=prompt, max_tokens=12), sink)
            if not together:
                await eventually(lambda sink=sink: sink.end is not None)
        await eventually(lambda: all(sink.end is not None for sink in sinks))
        return [sink.text for sink in sinks]

    assert await said(together=True) == await said(together=False)


async def test_a_seed_fixes_a_sampled_answer_whoever_else_runs(
    start: Start, listener: Any, eventually: Eventually
) -> None:
    engine, sinks = start(), [listener() for _ in range(3)]
    for sink, seed in zip(sinks, (5, 5, 6), strict=True):
        engine.start(job(temperature=1.5, seed=seed, max_tokens=20), sink)
    await eventually(lambda: all(sink.end is not None for sink in sinks))
    assert sinks[0].text == sinks[1].text != sinks[2].text


async def test_the_next_turn_hits_this_one_under_either_name_unless_the_salt_differs(
    start: Start, listener: Any, eventually: Eventually
) -> None:
    engine, cached = start(), []
    for fields in ({}, {}, {"salt": "s"}, {"salt": "s"}, {"salt": ""}):
        engine.start(job(**fields), sink := listener())
        await eventually(lambda sink=sink: sink.end is not None)
        cached.append(sink.usage.cached_tokens)
    assert cached == [0, 36, 0, 36, 0]
    assert engine.stats().hit_tokens == 72


async def test_a_step_that_fails_is_told_without_what_was_said_and_serving_goes_on(
    start: Start, listener: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    engine, lost, fine = start(), listener(), listener()
    step, failing = engine._running.batch.step, [True]

    def broken() -> Any:
        if failing.pop() if failing else False:
            raise MemoryError("a secret prompt")
        return step()

    monkeypatch.setattr(engine._running.batch, "step", broken)
    with caplog.at_level(logging.ERROR):
        engine.start(job(), lost)
        await eventually(lambda: lost.heard)
    assert lost.heard == ["failed"]
    assert "MemoryError" in caplog.text
    assert "secret" not in caplog.text
    engine.start(job(), fine)
    await eventually(lambda: fine.end is not None)


async def test_a_sink_that_fails_is_given_up_and_the_others_hear_theirs(
    start: Start, listener: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a secret answer")

    engine, bad, good = start(), listener(), listener()
    monkeypatch.setattr(bad, "tokens", broken)
    with caplog.at_level(logging.ERROR):
        engine.start(job(max_tokens=100), bad)
        engine.start(job(), good)
        await eventually(lambda: good.end is not None and engine.stats().running == 0)
    assert bad.heard == ["prefilled"]
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text
    assert engine.stats().finished == {"abort": 1, "length": 1}


async def test_a_job_that_cannot_be_is_refused_at_once(start: Start, listener: Any) -> None:
    engine = start()
    with pytest.raises(JobRefusedError):
        engine.start(job(embed=True), listener())
    assert engine.stats().waiting == 0


async def test_the_caches_events_are_told_on_the_loop(start: Start, listener: Any, eventually: Eventually) -> None:
    events: list[Any] = []
    engine = start(listener=lambda event: events.append((event, threading.get_ident())))
    engine.start(job(max_tokens=1), sink := listener())
    await eventually(lambda: sink.end is not None)
    ((event, thread),) = events
    assert isinstance(event, Stored)
    assert event.token_ids == list(range(40))
    assert thread == threading.get_ident()


async def test_without_work_the_thread_sleeps(
    start: Start, listener: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    engine.start(job(), sink := listener())
    await eventually(lambda: sink.end is not None)
    reports: list[Any] = []
    monkeypatch.setattr(engine, "_hear", reports.append)
    await asyncio.sleep(0.05)
    assert reports == []
    assert engine._thread.is_alive()


async def test_closing_ends_everything_and_twice_is_once(start: Start, listener: Any, eventually: Eventually) -> None:
    engine, sinks = start(), [listener() for _ in range(6)]
    for sink in sinks:
        engine.start(job(prompt=[1] * 30, max_tokens=100), sink)
    await eventually(lambda: engine.stats().running)
    engine.close()
    engine.close()
    heard = [list(sink.heard) for sink in sinks]
    assert (engine.stats().running, engine.stats().waiting, engine.stats().kv_usage) == (0, 0, 0)
    with pytest.raises(JobRefusedError):
        engine.start(job(), listener())
    await asyncio.sleep(0)
    assert [sink.heard for sink in sinks] == heard


async def test_it_is_an_engine_with_names_and_a_tokenizer(start: Start) -> None:
    engine = start()
    assert (engine.models, engine.max_model_len, engine.has_logprobs) == (("tiny", "other"), 160, True)
    assert engine.tokenizer.decode(engine.tokenizer.chat(Chat([Turn("user", "hi")]))).count("hi") == 1
    assert "0 running" in repr(engine)
    assert "vllm:spec_decode_num_drafts_total" in engine.metrics()
