"""Sections: unknown names are errors, a name without a value is one left out."""

import pytest
from pydantic import ValidationError

from router.sections.part import Part


class Pantry(Part):
    jars: int = 3


def test_a_name_without_a_value_has_its_default() -> None:
    assert Pantry.model_validate({"jars": None}).jars == 3


def test_an_unknown_name_is_an_error_even_without_a_value() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Pantry.model_validate({"jugs": None})


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Pantry().jars = 4  # type: ignore[misc]
