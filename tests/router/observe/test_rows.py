"""A row gathers what one kind of request adds to, and begins anew once it was read."""

import pytest

from router.observe.rows import Row

COUNTS = ("count", "predicted", "prompt", "cached", "unreported", "reported", "saved")


def test_a_row_begins_with_nothing() -> None:
    row = Row("/v1/chat/completions", "m", "a", "home")
    assert (row.path, row.model, row.worker, row.reason) == ("/v1/chat/completions", "m", "a", "home")
    assert row.codes == {}
    assert [getattr(row, name) for name in COUNTS] == [0] * len(COUNTS)


def test_a_cleared_row_keeps_its_kind_and_no_number() -> None:
    row = Row("/v1/completions", "m", None, None)
    row.codes[200] = 3
    for name in COUNTS:
        setattr(row, name, 7)
    read = row.codes
    row.clear()
    assert (row.path, row.model, row.worker, row.reason) == ("/v1/completions", "m", None, None)
    assert row.codes == {}
    assert read == {200: 3}, "who still reads the old numbers has them"
    assert [getattr(row, name) for name in COUNTS] == [0] * len(COUNTS)


def test_two_rows_share_nothing() -> None:
    one, other = Row("/", "m", "a", "home"), Row("/", "m", "a", "home")
    one.codes[200] = 1
    assert other.codes == {}


def test_a_row_has_no_room_for_anything_else() -> None:
    with pytest.raises(AttributeError):
        Row("/", "m", "a", "home").prompt_text = "hi"  # type: ignore[attr-defined]
