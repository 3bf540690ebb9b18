"""The threat model names tests that are there."""

import re

import pytest

from tests.support.deployment import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", TEXT)))
FILES = sorted(set(re.findall(r"`(test_\w+\.py)`", TEXT)))
SOURCES = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}


def test_it_names_some() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_it_names_is_there(name: str) -> None:
    assert any(re.search(rf"def {name}\b", text) for text in SOURCES.values())


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_it_names_is_there(name: str) -> None:
    assert any(path.name == name for path in SOURCES)
