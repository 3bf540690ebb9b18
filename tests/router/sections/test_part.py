"""Sections: unknown names are errors, a name without a value is one left out."""

import pytest
from pydantic import ValidationError

from router.sections.auth import ApiKey
from router.sections.part import Part
from router.sections.workers import WorkerSettings
from router.settings import Settings


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


def test_its_text_shows_no_secret() -> None:
    worker = WorkerSettings(url="http://u:s3cret@w:1", api_key="s3cret")
    key = ApiKey(sha256="5" * 64)
    share = Settings(share="redis://:s3cret@h/0?password=s3cret").share
    assert share == "redis://:s3cret@h/0?password=s3cret"
    shown = repr(worker) + str(key) + repr(Settings(share=share, admin_token="s3cret"))
    assert "s3cret" not in shown
    assert "5" * 64 not in shown
    assert "http://********@w:1" in shown
    assert "redis://********@h/0?password=********" in shown
