"""Rows of a trace."""

from router.replay.rows import Row, TraceError, in_time
from tests.support.replays import item


def test_each_copy_of_a_prompt_is_made_once() -> None:
    made: list[int] = []

    def make(copy: int) -> object:
        made.append(copy)
        return item([copy + 1])

    row = Row(0.0, None, make)  # type: ignore[arg-type]
    assert row.item() is row.item()
    assert row.item(1) is not row.item()
    assert made == [0, 1]


def test_rows_are_put_in_time_and_begin_at_zero() -> None:
    rows = in_time([Row(at, None, lambda copy: item([1])) for at in (7.0, 5.0, 6.5)])
    assert [row.at for row in rows] == [0.0, 1.5, 2.0]
    assert in_time([]) == []


def test_a_fault_names_its_line_if_it_is_in_one() -> None:
    assert str(TraceError(3, "not JSON")) == "line 3: not JSON"
    assert str(TraceError(0, "empty")) == "empty"
