"""The promise on the time to first token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.slo import Slo
from tests.support.fleets import ask_of

TEXT = b"p" * 4096


def test_the_promise_is_a_fixed_part_and_an_allowance_for_each_token() -> None:
    slo = Slo(first_token=0.2, per_uncached_token=0.001)
    assert slo.allowed(ask_of(TEXT)) == pytest.approx(0.2 + 1.024)
    assert slo.allowed(ask_of(b"")) == 0.2


def test_what_somebody_holds_earns_no_allowance() -> None:
    slo = Slo(first_token=0.2, per_uncached_token=0.001)
    assert slo.allowed(ask_of(TEXT, held={"w0": 1024, "w1": 2048})) == pytest.approx(0.2 + 0.512)


def test_three_hundred_milliseconds_and_half_of_one_a_token_are_promised_unless_told_otherwise() -> None:
    assert Slo().allowed(ask_of(TEXT)) == pytest.approx(0.3 + 0.512)


@given(st.integers(0, 4096), st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 4096)))
def test_the_fixed_part_is_always_allowed_and_more_held_never_allows_more(length: int, held: dict[str, int]) -> None:
    held = {worker: min(depth, length) for worker, depth in held.items()}
    slo = Slo()
    allowed = slo.allowed(ask_of(TEXT[:length], held=held))
    assert slo.first_token <= allowed <= slo.allowed(ask_of(TEXT[:length]))
