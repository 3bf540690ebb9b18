"""What chat and text completions share."""

import pytest

from backends.contract import Usage
from backends.openai import Body, StreamOptions, usage_object
from backends.wire import ApiError


def test_the_fields_reach_the_job() -> None:
    body = Body(cache_salt="s", temperature=0.5, top_p=0.9, seed=3, ignore_eos=True)
    (job,) = body.jobs("m", [1], 4, 2)
    assert (job.model, job.salt, job.max_tokens) == ("m", "s", 4)
    assert (job.temperature, job.top_p, job.seed, job.logprobs) == (0.5, 0.9, 3, 2)
    assert job.ignore_eos


def test_each_choice_is_a_job_with_a_seed_of_its_own() -> None:
    assert [job.seed for job in Body(n=3, seed=5).jobs("m", [1], 4)] == [5, 6, 7]
    assert [job.seed for job in Body(n=2).jobs("m", [1], 4)] == [None, None]
    assert len(Body(n=None).jobs("m", [1], 4)) == 1


@pytest.mark.parametrize("n", [0, -1, 17])
def test_too_few_and_too_many_choices_are_refused(n: int) -> None:
    with pytest.raises(ApiError, match="`n` must be a whole number of 1 to 16"):
        Body(n=n).jobs("m", [1], None)


def test_stream_options_without_a_stream_are_refused() -> None:
    with pytest.raises(ApiError, match="stream=True"):
        Body(stream_options=StreamOptions()).jobs("m", [1], None)


def test_usage_is_sent_where_it_was_asked_for() -> None:
    assert not Body().with_usage
    assert not Body(stream_options=StreamOptions()).with_usage
    assert Body(stream_options=StreamOptions(include_usage=True)).with_usage


def test_the_total_is_the_sum_and_cached_tokens_are_a_part_of_the_prompt() -> None:
    assert usage_object(Usage(10, 2, 8)) == {
        "prompt_tokens": 10,
        "total_tokens": 12,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
