"""Command-line values that complain together.

argparse stops at the first bad value. Here a bad value is noted and parsing goes on, so that one try shows all faults.
"""

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Flags:
    """Adds options to a parser; what was wrong is in `complaints` once the parser has run."""

    def __init__(self, parser: argparse.ArgumentParser, complaints: list[str]) -> None:
        self._parser = parser
        self._complaints = complaints

    def add(self, name: str, parse: Callable[[str], T], help_text: str, default: Any = None, **more: Any) -> None:
        """An option; `parse` raises ValueError with what was expected."""

        def checked(text: str) -> T | None:
            try:
                return parse(text)
            except ValueError as error:
                self._complaints.append(f"{name}: {error}, got {text!r}")
                return None

        shown = f"{help_text} (default {default})" if default not in (None, 0, []) else help_text
        self._parser.add_argument(name, type=checked, default=default, help=shown.replace("%", "%%"), **more)

    def switch(self, name: str, help_text: str) -> None:
        self._parser.add_argument(name, action="store_true", help=help_text)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    wanted = f"expected a whole number of at least {low}" + (f" and at most {high}" if high is not None else "")

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(wanted) from None
        if value < low or (high is not None and value > high):
            raise ValueError(wanted)
        return value

    return parse


def number(*, above: float | None = None) -> Callable[[str], float]:
    """A finite number of at least 0, or above a limit."""
    wanted = f"expected a number above {above:g}" if above is not None else "expected a number of at least 0"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(wanted) from None
        fits = value > above if above is not None else value >= 0
        if not fits or value == float("inf"):
            raise ValueError(wanted)
        return value

    return parse


def text(value: str) -> str:
    if not value:
        raise ValueError("expected a text that is not empty")
    return value
