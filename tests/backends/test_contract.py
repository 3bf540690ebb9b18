"""The engine contract, run over every engine that starts without downloads: the mock, and the worker with a real model
around a tiny network."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from backends.contract import Chat, Engine, Job, Turn
from tests.support.processes import until

LONG = 600.0  # seconds, in which all that was started ends


class OnFakeTime:
    """Drives the mock: its time is what passes."""

    def __init__(self, engine: Engine, fake_time: Any) -> None:
        self.engine, self._time = engine, fake_time

    def to_the_end(self) -> None:
        self._time.pass_to(self._time.moment + LONG)

    def without_a_turn(self) -> None:
        self._time.moment += LONG


class OnItsThread:
    """Drives an engine with a thread: what it has for the event loop is called here."""

    def __init__(self, engine: Engine, calls: "SimpleQueue[Callable[[], None]]") -> None:
        self.engine, self._calls = engine, calls

    def to_the_end(self) -> None:
        while self.engine.stats().running or self.engine.stats().waiting or not self._calls.empty():
            self._calls.get(timeout=60)()

    def without_a_turn(self) -> None:
        """Until the thread has told something that nobody has heard yet."""
        until(lambda: not self._calls.empty(), 60)


Driver = OnFakeTime | OnItsThread


@pytest.fixture(params=["mock", pytest.param("medusa", marks=pytest.mark.torch)])
def driver(request: pytest.FixtureRequest, engine_of: Callable[..., Engine], fake_time: Any) -> Iterator[Driver]:
    if request.param == "mock":
        yield OnFakeTime(engine_of(), fake_time)
        return
    from tests.support.tiny_worker import tiny_engine

    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    engine = tiny_engine(soon=lambda call, *told: calls.put(lambda: call(*told)), most=240, length=256)
    try:
        yield OnItsThread(engine, calls)
    finally:
        engine.close()


@pytest.fixture
def engine(driver: Driver) -> Engine:
    return driver.engine


def prompt(engine: Engine) -> list[int]:
    return engine.tokenizer.chat(Chat([Turn("user", "What is a tide?")]))


def test_a_sink_hears_in_order_and_not_before_start_returned(engine: Engine, listener: Any, driver: Driver) -> None:
    sink = listener()
    engine.start(Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3), sink)
    assert sink.heard == []
    driver.to_the_end()
    assert sink.heard[0] == "prefilled"
    assert sink.heard[-1] == "finished"
    assert set(sink.heard[1:-1]) == {"tokens"}


def test_starting_and_aborting_others_calls_no_sink(engine: Engine, listener: Any, driver: Driver) -> None:
    """Not even when the first one's tokens are long due: the face may still be preparing its answer."""
    first, second = listener(), listener()
    job = Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3)
    engine.start(job, first)
    driver.without_a_turn()
    engine.start(job, second).abort()
    assert first.heard == []
    driver.to_the_end()
    assert first.heard[-1] == "finished"
    assert second.heard == []


def test_an_aborted_sequence_is_never_heard_of_again(engine: Engine, listener: Any, driver: Driver) -> None:
    sink = listener()
    sequence = engine.start(Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3), sink)
    sequence.abort()
    sequence.abort()
    driver.to_the_end()
    assert sink.heard == []
    assert engine.stats().running == engine.stats().waiting == 0


def test_usage_counts_what_was_asked_and_said(engine: Engine, listener: Any, driver: Driver) -> None:
    sink, ids = listener(), prompt(engine)
    engine.start(Job(model=engine.models[0], prompt=ids, max_tokens=3), sink)
    driver.to_the_end()
    assert sink.end.usage.prompt_tokens == len(ids)
    assert sink.end.usage.completion_tokens == len(sink.pieces)


def test_the_next_turn_hits_this_one_unless_the_salt_differs(engine: Engine, listener: Any, driver: Driver) -> None:
    first, again, salted = listener(), listener(), listener()
    ids = engine.tokenizer.chat(Chat([Turn("user", "What is a tide? " * 5)]))
    for sink, salt in ((first, None), (again, None), (salted, "s")):
        engine.start(Job(model=engine.models[0], prompt=ids, max_tokens=1, salt=salt), sink)
        driver.to_the_end()
    assert first.usage.cached_tokens == salted.usage.cached_tokens == 0
    assert 0 < again.usage.cached_tokens < len(ids)


def test_closing_leaves_nothing_running(engine: Engine, listener: Any) -> None:
    engine.start(Job(model=engine.models[0], prompt=prompt(engine)), listener())
    engine.close()
    assert engine.stats().running == 0


def test_a_sink_may_end_its_own_sequence_and_others_go_on(engine: Engine, listener: Any, driver: Driver) -> None:
    class Leaving(type(listener())):  # type: ignore[misc]
        sequence: Any = None

        def tokens(self, pieces: Any, logprobs: Any = None) -> None:
            super().tokens(pieces, logprobs)
            self.sequence.abort()

    leaving, other = Leaving(), listener()
    job = Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3)
    leaving.sequence = engine.start(job, leaving)
    engine.start(job, other)
    driver.to_the_end()
    assert leaving.heard == ["prefilled", "tokens"]
    assert other.heard[-1] == "finished"
    assert engine.stats().running == engine.stats().waiting == 0


@pytest.mark.parametrize("wanted", [0, 2])
def test_log_probabilities_come_with_every_piece_where_asked_for(
    engine: Engine, listener: Any, driver: Driver, wanted: int
) -> None:
    if not engine.has_logprobs:
        pytest.skip("this engine has none")
    asked, plain = listener(), listener()
    for sink, logprobs in ((asked, wanted), (plain, None)):
        engine.start(Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3, logprobs=logprobs), sink)
    driver.to_the_end()
    assert len(asked.logprobs) == len(asked.pieces)
    assert plain.logprobs == []
    for entry in asked.logprobs:
        assert entry.logprob <= 0
        assert len(entry.top) <= wanted
        assert [logprob for _, logprob in entry.top] == sorted((logprob for _, logprob in entry.top), reverse=True)
    said = b"".join(engine.tokenizer.token_bytes(entry.token_id) for entry in asked.logprobs)
    assert said.decode(errors="replace") == asked.text == plain.text


def test_the_bytes_of_a_texts_tokens_are_the_text(engine: Engine) -> None:
    text = "A tide: Grüße, 潮 and 🌊."
    ids = engine.tokenizer.encode(text)
    assert b"".join(map(engine.tokenizer.token_bytes, ids)).decode() == text == engine.tokenizer.decode(ids)


def test_ids_that_stand_for_nothing_are_no_error(engine: Engine) -> None:
    engine.tokenizer.decode([2**40, 2**63 - 1])
