"""The engine contract, run over every engine that starts without downloads."""

from collections.abc import Callable
from typing import Any

import pytest

from backends.contract import Chat, Engine, Job, Turn


@pytest.fixture(params=["mock"])
def engine(request: pytest.FixtureRequest, engine_of: Callable[..., Engine]) -> Engine:
    return {"mock": engine_of}[request.param]()


def prompt(engine: Engine) -> list[int]:
    return engine.tokenizer.chat(Chat([Turn("user", "What is a tide?")]))


def test_a_sink_hears_in_order_and_not_before_start_returned(engine: Engine, listener: Any, fake_time: Any) -> None:
    sink = listener()
    engine.start(Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3), sink)
    assert sink.heard == []
    fake_time.pass_to(600)
    assert sink.heard[0] == "prefilled"
    assert sink.heard[-1] == "finished"
    assert set(sink.heard[1:-1]) == {"tokens"}


def test_starting_and_aborting_others_calls_no_sink(engine: Engine, listener: Any, fake_time: Any) -> None:
    """Not even when the first one's tokens are long due: the face may still be preparing its answer."""
    first, second = listener(), listener()
    job = Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3)
    engine.start(job, first)
    fake_time.moment += 600
    engine.start(job, second).abort()
    assert first.heard == []
    fake_time.pass_to(1200)
    assert first.heard[-1] == "finished"
    assert second.heard == []


def test_an_aborted_sequence_is_never_heard_of_again(engine: Engine, listener: Any, fake_time: Any) -> None:
    sink = listener()
    sequence = engine.start(Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3), sink)
    sequence.abort()
    sequence.abort()
    fake_time.pass_to(600)
    assert sink.heard == []
    assert engine.stats().running == engine.stats().waiting == 0


def test_usage_counts_what_was_asked_and_said(engine: Engine, listener: Any, fake_time: Any) -> None:
    sink, ids = listener(), prompt(engine)
    engine.start(Job(model=engine.models[0], prompt=ids, max_tokens=3), sink)
    fake_time.pass_to(600)
    assert sink.end.usage.prompt_tokens == len(ids)
    assert sink.end.usage.completion_tokens == len(sink.pieces)


def test_the_next_turn_hits_this_one_unless_the_salt_differs(engine: Engine, listener: Any, fake_time: Any) -> None:
    first, again, salted = listener(), listener(), listener()
    ids = engine.tokenizer.chat(Chat([Turn("user", "What is a tide? " * 20)]))
    for moment, sink, salt in ((600, first, None), (1200, again, None), (1800, salted, "s")):
        engine.start(Job(model=engine.models[0], prompt=ids, max_tokens=1, salt=salt), sink)
        fake_time.pass_to(moment)
    assert first.usage.cached_tokens == salted.usage.cached_tokens == 0
    assert 0 < again.usage.cached_tokens < len(ids)


def test_closing_leaves_nothing_running(engine: Engine, listener: Any) -> None:
    engine.start(Job(model=engine.models[0], prompt=prompt(engine)), listener())
    engine.close()
    assert engine.stats().running == 0


def test_a_sink_may_end_its_own_sequence_and_others_go_on(engine: Engine, listener: Any, fake_time: Any) -> None:
    class Leaving(type(listener())):  # type: ignore[misc]
        sequence: Any = None

        def tokens(self, pieces: Any, logprobs: Any = None) -> None:
            super().tokens(pieces, logprobs)
            self.sequence.abort()

    leaving, other = Leaving(), listener()
    job = Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3)
    leaving.sequence = engine.start(job, leaving)
    engine.start(job, other)
    fake_time.pass_to(600)
    assert leaving.heard == ["prefilled", "tokens"]
    assert other.heard[-1] == "finished"
    assert engine.stats().running == engine.stats().waiting == 0


@pytest.mark.parametrize("wanted", [0, 2])
def test_log_probabilities_come_with_every_piece_where_asked_for(
    engine: Engine, listener: Any, fake_time: Any, wanted: int
) -> None:
    if not engine.has_logprobs:
        pytest.skip("this engine has none")
    asked, plain = listener(), listener()
    for sink, logprobs in ((asked, wanted), (plain, None)):
        engine.start(Job(model=engine.models[0], prompt=prompt(engine), max_tokens=3, logprobs=logprobs), sink)
    fake_time.pass_to(600)
    assert len(asked.logprobs) == len(asked.pieces)
    assert plain.logprobs == []
    for entry in asked.logprobs:
        assert entry.logprob <= 0
        assert len(entry.top) <= wanted
        assert [logprob for _, logprob in entry.top] == sorted((logprob for _, logprob in entry.top), reverse=True)
    said = b"".join(engine.tokenizer.token_bytes(entry.token_id) for entry in asked.logprobs)
    assert said.decode() == asked.text == plain.text


def test_the_bytes_of_a_texts_tokens_are_the_text(engine: Engine) -> None:
    text = "A tide: Grüße, 潮 and 🌊."
    ids = engine.tokenizer.encode(text)
    assert b"".join(map(engine.tokenizer.token_bytes, ids)).decode() == text == engine.tokenizer.decode(ids)


def test_ids_that_stand_for_nothing_are_no_error(engine: Engine) -> None:
    engine.tokenizer.decode([2**40, 2**63 - 1])
