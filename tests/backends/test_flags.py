"""Values of options."""

import argparse

import pytest

from backends.flags import Flags, number, text, whole


def test_bad_values_are_noted_and_parsing_goes_on() -> None:
    complaints: list[str] = []
    parser = argparse.ArgumentParser()
    flags = Flags(parser, complaints)
    flags.add("--a", whole(1), "a")
    flags.add("--b", number(), "b", 2.0)
    flags.switch("--c", "c")
    found = parser.parse_args(["--a", "0", "--b", "x", "--c"])
    assert len(complaints) == 2
    assert complaints[0] == "--a: expected a whole number of at least 1, got '0'"
    assert found.c


def test_defaults_stay_and_help_names_them() -> None:
    parser = argparse.ArgumentParser()
    Flags(parser, []).add("--b", number(), "100% of b", 2.0)
    assert parser.parse_args([]).b == 2.0
    assert "100% of b (default 2.0)" in parser.format_help()


@pytest.mark.parametrize("value", ["", "x", "1.5", "-1", "11"])
def test_whole_numbers_have_bounds(value: str) -> None:
    assert whole(0, 10)("10") == 10
    with pytest.raises(ValueError, match="at least 0 and at most 10"):
        whole(0, 10)(value)


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-inf", "-1", "0"])
def test_numbers_are_finite_and_above_their_limit(value: str) -> None:
    assert number()("0") == 0
    with pytest.raises(ValueError, match="above 0"):
        number(above=0)(value)


def test_a_text_is_not_empty() -> None:
    assert text("a") == "a"
    with pytest.raises(ValueError, match="not empty"):
        text("")
