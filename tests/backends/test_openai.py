"""What chat and text completions share."""

import pytest

from backends.contract import Usage
from backends.openai import Body, StreamOptions, usage_object
from backends.wire import ApiError


def test_the_fields_reach_the_job() -> None:
    job = Body(cache_salt="s", temperature=0.5, seed=3, ignore_eos=True).job("m", [1], 4)
    assert (job.model, job.salt, job.max_tokens, job.temperature, job.seed) == ("m", "s", 4, 0.5, 3)
    assert job.ignore_eos


def test_stream_options_without_a_stream_are_refused() -> None:
    with pytest.raises(ApiError, match="stream=True"):
        Body(stream_options=StreamOptions()).job("m", [1], None)


def test_the_total_is_the_sum_and_cached_tokens_are_a_part_of_the_prompt() -> None:
    assert usage_object(Usage(10, 2, 8)) == {
        "prompt_tokens": 10,
        "total_tokens": 12,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
