"""What a job asks for, as the decoding core wants it."""

from typing import Any

import pytest

from backends.contract import Job, JobRefusedError
from backends.medusa.decoding import Request
from backends.medusa.jobs import Limits, request_of
from backends.medusa.sampling import Nucleus, Typical

LIMITS = Limits(max_model_len=20, vocabulary=100, end=7)


def asked(prompt: list[int] | None = None, limits: Limits = LIMITS, **fields: Any) -> Request:
    return request_of(Job(model="m", prompt=[1, 2] if prompt is None else prompt, **fields), limits, lambda: 42)


def test_an_answer_may_be_as_long_as_there_is_room() -> None:
    assert asked().most_tokens == 18
    assert asked(max_tokens=5).most_tokens == 5


def test_the_end_token_ends_it_unless_it_is_to_be_ignored() -> None:
    assert asked().ends == (7,)
    assert asked(ignore_eos=True).ends == ()


@pytest.mark.parametrize("temperature", [None, 0, 1e-9])
def test_without_a_temperature_worth_the_name_it_is_greedy(temperature: float | None) -> None:
    assert asked(temperature=temperature, top_p=0.5, seed=3).sampler is None


def test_sampling_takes_the_jobs_settings_and_a_seed_of_chance_where_it_has_none() -> None:
    own, other = asked(temperature=0.7, top_p=0.9, seed=3).sampler, asked(temperature=0.7).sampler
    assert isinstance(own, Nucleus)
    assert isinstance(other, Nucleus)
    assert (own.temperature, own.top_p, own.seed) == (0.7, 0.9, 3)
    assert (other.temperature, other.top_p, other.seed) == (0.7, 1.0, 42)


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1])
def test_every_seed_of_64_bits_will_do(seed: int) -> None:
    assert isinstance(asked(temperature=1.0, seed=seed).sampler, Nucleus)


def test_typical_acceptance_is_for_sampled_rows_of_a_worker_that_was_told_so() -> None:
    typical = Limits(max_model_len=20, vocabulary=100, end=7, typical=True)
    assert isinstance(asked(limits=typical, temperature=0.7).sampler, Typical)
    assert asked(limits=typical).sampler is None
    assert not isinstance(asked(temperature=0.7).sampler, Typical)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"embed": True}, "no embeddings"),
        ({"prompt": []}, "empty"),
        ({"prompt": [1, 100]}, "outside the vocabulary of 100"),
        ({"prompt": [1] * 20}, "no room"),
        ({"max_tokens": 0}, "no room"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(JobRefusedError, match=said):
        asked(**fields)


def test_log_probabilities_are_passed_on() -> None:
    assert asked(logprobs=3).logprobs == 3
    assert asked().logprobs is None
