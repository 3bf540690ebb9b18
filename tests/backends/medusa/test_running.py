"""Who waits, who runs and what became of it."""

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.block_pool import Stored
from backends.contract import Chat, Turn, Usage
from backends.medusa.running import News, Run, Running
from tests.support.tiny_worker import bytewise, holds_nothing, run_of, running_of, tokens_of, told

PROMPT = list(range(40))
END = bytewise().end


def test_a_run_hears_of_its_prompt_then_of_tokens_then_of_its_end() -> None:
    running, run = running_of(prefill=16), run_of(PROMPT, 5)
    news = told(running, run)
    assert news[0].prefilled == Usage(40)
    assert [one.end is not None for one in news] == [False] * (len(news) - 1) + [True]
    assert sum(len(one.pieces) for one in news) == 5
    assert news[-1].end is not None
    assert (news[-1].end.reason, news[-1].end.usage) == ("length", Usage(40, 5))
    assert holds_nothing(running)


def test_an_end_token_is_counted_and_not_shown() -> None:
    said = tokens_of(running_of(), run_of(PROMPT, 12))
    place = next(place for place, token in enumerate(said) if token not in said[:place] and place > 2)
    news = told(running_of(), run := run_of(PROMPT, 12, ends=(said[place],)))
    assert news[-1].end is not None
    assert (news[-1].end.reason, news[-1].end.usage.completion_tokens) == ("stop", place + 1)
    assert run.made == sum(len(one.pieces) for one in news)


def test_log_probabilities_come_one_a_token_where_they_were_asked_for() -> None:
    news = told(running_of(), run_of(PROMPT, 6, logprobs=2))
    for one in news:
        assert one.logprobs is not None
        assert len(one.logprobs) == len(one.pieces)
        assert all(len(each.top) == 2 and each.logprob <= 0 for each in one.logprobs)
    assert all(one.logprobs is None for one in told(running_of(), run_of(PROMPT, 6)))


def test_the_next_turn_of_a_conversation_finds_prompt_and_answer_in_the_cache() -> None:
    running, first = running_of(block_tokens=4), run_of(PROMPT, 9)
    said = tokens_of(running, first)
    again = run_of([*PROMPT, *said, 1, 2, 3], 3)
    told(running, again)
    assert again.usage.cached_tokens == 48  # of 49 the last one said was never computed


def said_and_scored(running: Running, run: Run) -> tuple[list[int], torch.Tensor]:
    """The tokens, and the log probabilities of the five likeliest of each."""
    scored = [each for news in told(running, run) for each in news.logprobs or ()]
    return [one.token_id for one in scored], torch.tensor([[value for _, value in one.top] for one in scored])


@pytest.mark.parametrize("fresh", [1, 3, 30])
def test_warm_equals_cold(fresh: int) -> None:
    running, prompt = running_of(length=256), [*PROMPT, *([7, 99, 3] * 10)[:fresh]]
    told(running, run_of([*PROMPT, 200], 6))
    tokens, scores = said_and_scored(running, warm := run_of(prompt, 20, logprobs=5))
    expected, reference = said_and_scored(running_of(length=256), cold := run_of(prompt, 20, logprobs=5))
    assert (warm.usage.cached_tokens, cold.usage.cached_tokens) == (40, 0)
    assert tokens == expected
    torch.testing.assert_close(scores, reference, atol=1e-4, rtol=0)


def test_warm_equals_cold_in_the_real_model_whose_answer_was_decoded_with_guesses(model: Any, vocabulary: Any) -> None:
    """The second turn of a conversation: prompt blocks, and blocks of an answer."""
    one, other = (running_of(llama=model, length=320, block_tokens=16, prefill=128) for _ in range(2))
    turns = [Turn("user", "Count from one to nine, twice. " * 3)]
    first = run_of(vocabulary.chat(Chat(turns)), 48)
    told(one, first)
    assert first.row is not None
    prompt = [*first.request.prompt, *first.row.output[:-1], *vocabulary.encode(" and so on")]
    tokens, scores = said_and_scored(one, warm := run_of(prompt, 12, logprobs=5))
    expected, reference = said_and_scored(other, run_of(prompt, 12, logprobs=5))
    assert warm.usage.cached_tokens > len(first.request.prompt)
    assert tokens == expected
    torch.testing.assert_close(scores, reference, atol=1e-4, rtol=0)


def test_a_salt_separates() -> None:
    running = running_of()
    told(running, run_of(PROMPT, 2, root=1))
    told(running, other := run_of(PROMPT, 2, root=2))
    assert other.usage.cached_tokens == 0


def test_who_finds_no_seat_waits_and_comes_in_order() -> None:
    running, runs = running_of(rows=2), [run_of([place] * 20, 4 + place) for place in range(4)]
    for run in runs:
        running.submit(run)
    news = list(running.turn().news)
    assert (running.stats().running, running.stats().waiting) == (2, 2)
    news += told(running)
    assert [one.run for one in news if one.prefilled is not None] == runs
    assert running.stats().peak_running == 2
    assert holds_nothing(running)


def test_who_finds_no_room_in_the_cache_waits_until_another_leaves() -> None:
    running = running_of(blocks=12, block_tokens=4)
    first, second = run_of([1] * 40, 3), run_of([2] * 40, 3)
    running.submit(first)
    running.submit(second)
    running.turn()
    assert (running.stats().running, running.stats().waiting) == (1, 1)
    assert {one.run for one in told(running) if one.end} == {first, second}


def test_what_is_larger_than_the_cache_runs_all_the_same_and_without_a_cache_all_run_at_once() -> None:
    running, run = running_of(blocks=2), run_of(PROMPT, 3)
    assert told(running, run)[-1].end is not None
    none = running_of(blocks=0)
    none.submit(run_of(PROMPT, 3))
    none.submit(run_of([9, *PROMPT], 3))
    none.turn()
    assert none.stats().running == 2


def test_two_with_the_same_beginning_compute_it_once() -> None:
    """The second waits while the first one's prompt is computed."""
    running, first, second = running_of(prefill=8), run_of(PROMPT, 3), run_of([*PROMPT, 1], 3)
    told(running, first, second)
    assert second.usage.cached_tokens == 40
    assert running.stats().hit_tokens == 40


def test_it_does_not_wait_for_one_that_was_dropped() -> None:
    running, first, second = running_of(prefill=8), run_of(PROMPT, 3), run_of([*PROMPT, 1], 3)
    running.submit(first)
    running.submit(second)
    running.turn()
    assert running.stats().waiting == 1
    running.drop(first)
    assert told(running)[-1].end is not None
    assert second.usage.cached_tokens == 0


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 6], ids=lambda turns: f"after {turns}")
def test_dropping_gives_everything_back_in_every_phase_and_twice_is_once(turns: int) -> None:
    running, run = running_of(prefill=16), run_of(PROMPT, 30)
    running.submit(run)
    for _ in range(turns):
        running.turn()
    running.drop(run)
    running.drop(run)
    assert holds_nothing(running)
    assert running.stats().finished == {"abort": 1}


def test_an_aborted_prompt_leaves_nothing_that_could_be_hit() -> None:
    running, run = running_of(prefill=16), run_of(PROMPT, 3)
    running.submit(run)
    running.turn()
    running.drop(run)
    told(running, again := run_of(PROMPT, 3))
    assert again.usage.cached_tokens == 0


def test_a_long_prompt_does_not_stop_who_is_decoding() -> None:
    """The running row's tokens come between the parts of the prompt."""
    running, first, long = running_of(prefill=8, length=256), run_of(PROMPT, 60), run_of([5] * 64, 3)
    told(running, first, turns=8)
    assert first.made > 0
    running.submit(long)
    between = 0
    while not long.made:
        between += sum(one.run is first for one in running.turn().news)
    assert between >= 8


def fail_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pass through the network finds no memory."""
    forward, left = running.batch.model.forward, [MemoryError("a secret prompt")]

    def once(*args: Any) -> Any:
        if left:
            raise left.pop()
        return forward(*args)

    monkeypatch.setattr(running.batch.model, "forward", once)


def test_a_step_that_fails_ends_who_runs_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    running, runs = running_of(rows=2), [run_of([place] * 20, 4) for place in range(3)]
    for run in runs:
        running.submit(run)
    fail_once(running, monkeypatch)
    turn = running.turn()
    assert isinstance(turn.error, MemoryError)
    assert turn.news == [News(runs[0], failed=True), News(runs[1], failed=True)]
    assert [one.run for one in told(running) if one.end] == [runs[2]]
    assert running.stats().finished == {"error": 2, "length": 1}
    assert holds_nothing(running)


def test_events_are_those_of_the_cache() -> None:
    running = running_of(block_tokens=4)
    told(running, run_of(PROMPT, 1))
    (event,) = running.prefix.take_events()
    assert isinstance(event, Stored)
    assert event.token_ids == PROMPT


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), max_size=4),
    st.integers(0, 20),
)
def test_who_shares_a_step_with_whom_changes_nothing_and_everything_is_given_back(
    wanted: list[tuple[int, int, int]], drops: list[tuple[int, int]], blocks: int
) -> None:
    """Whatever joins and is dropped, and however small the cache is."""
    running = running_of(rows=3, blocks=blocks, prefill=8)
    runs = [run_of([first, *range(length)], most) for first, length, most in wanted]
    for run in runs:
        running.submit(run)
    dropped = Counter(place for place, _ in drops)
    for turn in range(9):
        for place, when in drops:
            if when == turn and place < len(runs):
                running.drop(runs[place])
        running.turn()
    told(running)
    assert holds_nothing(running)
    for place, run in enumerate(runs):
        if run.row is not None and place not in dropped:
            alone = run_of(run.request.prompt, run.request.most_tokens)
            assert run.row.output == tokens_of(running_of(), alone)
