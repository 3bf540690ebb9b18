"""What a client may ask of the sampling."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.sampling import check_sampling, check_whole, seeds, stop_strings
from backends.wire import ApiError


@pytest.mark.parametrize("temperature", [None, 0, 0.0, 1, 2])
@pytest.mark.parametrize("top_p", [None, 0.001, 1])
def test_values_in_range_pass(temperature: Any, top_p: Any) -> None:
    check_sampling(temperature, top_p)


@pytest.mark.parametrize(
    ("temperature", "top_p", "field"),
    [
        (-0.1, None, "temperature"),
        (2.1, None, "temperature"),
        (float("nan"), None, "temperature"),
        (float("inf"), None, "temperature"),
        (None, 0, "top_p"),
        (None, 1.1, "top_p"),
        (None, float("nan"), "top_p"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(temperature: Any, top_p: Any, field: str) -> None:
    with pytest.raises(ApiError, match=f"`{field}` must be a number .* got ") as caught:
        check_sampling(temperature, top_p)
    assert (caught.value.status, caught.value.param) == (400, field)


@pytest.mark.parametrize("value", [0, 17, -(10**400), 10**400])
def test_a_whole_number_out_of_range_is_named_however_large(value: int) -> None:
    with pytest.raises(ApiError, match="`n` must be a whole number of 1 to 16"):
        check_whole("n", value, 1, 16)


@pytest.mark.parametrize(
    ("given_stop", "strings"), [(None, ()), ("a", ("a",)), ([], ()), (["a", "b"], ("a", "b")), ("a\nb", ("a\nb",))]
)
def test_a_stop_is_one_string_or_several(given_stop: Any, strings: Any) -> None:
    assert stop_strings(given_stop, "stop") == strings


@pytest.mark.parametrize("given_stop", ["", ["a", ""], list("abcde")])
def test_empty_stop_strings_and_too_many_are_refused(given_stop: Any) -> None:
    with pytest.raises(ApiError, match="at most 4 strings, none of them empty") as caught:
        stop_strings(given_stop, "stop")
    assert caught.value.param == "stop"


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 16))
def test_every_choice_has_a_seed_of_its_own_in_64_bits(seed: int, count: int) -> None:
    found = seeds(seed, count)
    assert found[0] == seed
    assert len(set(found)) == count
    assert all(one is not None and -(2**63) <= one < 2**63 for one in found)


def test_without_a_seed_nobody_has_one_and_too_large_a_seed_is_refused() -> None:
    assert seeds(None, 2) == [None, None]
    with pytest.raises(ApiError, match="`seed`"):
        seeds(2**63, 1)
