"""Every source file has its own test, and every test in the mirrored rooms has its source."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
HOUSES = ("router", "backends")
NO_TWIN = {"__init__.py", "__main__.py"}


def sources() -> list[Path]:
    found = [path for house in HOUSES for path in (ROOT / house).rglob("*.py")]
    return sorted(path for path in found if path.name not in NO_TWIN)


def mirrored() -> list[Path]:
    return sorted(path for house in HOUSES for path in (TESTS / house).rglob("test_*.py"))


def twin_of(source: Path) -> Path:
    place = source.relative_to(ROOT)
    return TESTS / place.parent / f"test_{place.name.lstrip('_')}"


@pytest.mark.parametrize("source", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_source_file_has_a_test_of_its_own(source: Path) -> None:
    assert twin_of(source).exists(), f"{twin_of(source).relative_to(ROOT)} is missing"


@pytest.mark.parametrize("test", mirrored(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_in_the_mirrored_rooms_has_its_source(test: Path) -> None:
    assert test in {twin_of(source) for source in sources()}
