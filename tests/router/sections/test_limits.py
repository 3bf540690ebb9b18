"""Limits: what is left out is unlimited where that is safe, and bounded where it is not."""

import pytest
from pydantic import ValidationError

from router.sections.limits import HealthSettings, Limits, Timeouts


def test_there_is_no_limit_on_the_whole_of_a_request_unless_one_is_set() -> None:
    assert Timeouts().total_seconds is None
    assert Timeouts(total_seconds=3).total_seconds == 3


def test_no_caller_is_limited_unless_a_rate_is_set() -> None:
    assert Limits().caller.requests_per_minute is None
    assert Limits().caller.prompt_tokens_per_minute is None


@pytest.mark.parametrize("name", ["connect_seconds", "first_byte_seconds", "idle_seconds", "total_seconds"])
@pytest.mark.parametrize("seconds", [0, -1, 1e9, float("nan")])
def test_a_time_is_positive_and_at_most_a_day(name: str, seconds: float) -> None:
    with pytest.raises(ValidationError):
        Timeouts.model_validate({name: seconds})


def test_looking_for_stalls_can_be_switched_off() -> None:
    assert HealthSettings(stall_seconds=0).stall_seconds == 0
