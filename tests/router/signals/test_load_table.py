"""The shared array: sums of the others' rows, whatever workers each knows and whatever stands in the memory."""

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.signals.load_table import (
    COUNT,
    FIELDS,
    IDS,
    MOST_WORKERS,
    NUMBERS,
    ROW_WORDS,
    SEAL,
    STALE_SECONDS,
    Row,
    clear,
    credible,
    table_bytes,
)

NOW = 1000.0


def rows(processes: int) -> tuple[memoryview, list[Row]]:
    memory = memoryview(bytearray(table_bytes(processes)))
    return memory, [Row(memory, each, processes) for each in range(processes)]


def test_each_hears_the_sum_of_the_others() -> None:
    _, (one, two, three) = rows(3)
    for at, row in enumerate((one, two, three), 1):
        row.name(["a", "b"])
        row.write([at, at, at * 100.0, 0.0, 0.0, 0.5], NOW, busy=True)
    assert one.read(NOW) == [5, 5, 500.0, 0, 0, 1.0]
    assert three.read(NOW) == [3, 3, 300.0, 0, 0, 1.0]


def test_nobody_has_written() -> None:
    _, (one, _two) = rows(2)
    one.name(["a"])
    assert one.read(NOW) is None
    assert not one.anyone_busy(NOW)


@pytest.mark.parametrize("theirs", [["b", "a"], ["c", "a", "x", "b"], ["b", "a", "d"]])
def test_workers_are_matched_by_id_wherever_they_stand(theirs: list[str]) -> None:
    _, (one, two) = rows(2)
    one.name(["a", "b", "new"])
    two.name(theirs)
    two.write([float(ord(each[0])) for each in theirs for _ in range(FIELDS)], NOW, busy=True)
    assert one.read(NOW) == [97.0] * 3 + [98.0] * 3 + [0.0] * 3


def test_a_worker_that_came_or_went_is_followed() -> None:
    _, (one, two) = rows(2)
    for row in (one, two):
        row.name(["a", "b"])
        row.write([1.0] * 6, NOW, busy=True)
    one.name(["b"])
    assert one.read(NOW) == [1.0] * 3
    two.name(["c", "b"])
    two.write([7.0] * 3 + [2.0] * 3, NOW, busy=True)
    assert one.read(NOW) == [2.0] * 3


def test_numbers_of_a_new_list_begin_at_nothing() -> None:
    _, (one, two) = rows(2)
    one.name(["a"])
    two.name(["b"])
    two.write([9.0, 9.0, 9.0], NOW, busy=True)
    two.name(["a"])
    assert one.read(NOW) == [0.0] * 3


def test_a_process_that_has_not_written_for_a_second_counts_as_nothing() -> None:
    _, (one, two) = rows(2)
    for row in (one, two):
        row.name(["a"])
    two.write([1.0] * 3, NOW, busy=True)
    assert one.anyone_busy(NOW + STALE_SECONDS / 2)
    assert not one.anyone_busy(NOW + STALE_SECONDS + 0.01)
    assert one.read(NOW + STALE_SECONDS + 0.01) is None


def test_the_row_of_a_process_that_ended_is_cleared_and_its_successor_writes_there_again() -> None:
    memory, (one, two) = rows(2)
    for row in (one, two):
        row.name(["a"])
        row.write([1.0] * 3, NOW, busy=True)
    clear(memory, 1)
    assert one.read(NOW) is None
    assert not one.anyone_busy(NOW)
    assert two.read(NOW) == [1.0] * 3
    successor = Row(memory, 1, 2)
    successor.name(["a"])
    successor.write([4.0] * 3, NOW, busy=False)
    assert one.read(NOW) == [4.0] * 3
    assert not one.anyone_busy(NOW)


def test_numbers_that_did_not_change_need_not_be_written_again() -> None:
    _, (one, two) = rows(2)
    for row in (one, two):
        row.name(["a"])
    two.write([1.0] * 3, NOW, busy=True)
    two.write((), NOW + 5, busy=True)
    assert one.read(NOW + 5) == [1.0] * 3


def test_a_list_that_is_being_written_is_passed_over() -> None:
    memory, (one, two) = rows(2)
    one.name(["a", "b"])
    two.name(["b", "a"])
    two.write([1.0] * 6, NOW, busy=True)
    words = memory.cast("B").cast("Q")
    words[ROW_WORDS + IDS] = 12345  # no more what the seal says
    assert one.read(NOW) is None
    words[ROW_WORDS + SEAL] = 0
    assert one.read(NOW) is None


def test_workers_beyond_the_bound_are_not_shared() -> None:
    _, (one, two) = rows(2)
    ids = [f"w{each}" for each in range(MOST_WORKERS + 5)]
    for row in (one, two):
        row.name(ids)
    two.write([1.0] * (FIELDS * len(ids)), NOW, busy=True)
    assert one.read(NOW) == [1.0] * (FIELDS * MOST_WORKERS)


@pytest.mark.parametrize(("found", "taken"), [(3.0, 3.0), (-1.0, 0.0), (nan, 0.0), (inf, 0.0), (1e300, 0.0)])
def test_only_what_a_load_can_be_is_credible(found: float, taken: float) -> None:
    assert credible(found) == taken


IDS_LISTS = st.lists(st.text(min_size=1, max_size=8), max_size=6, unique=True)


@given(mine=IDS_LISTS, theirs=IDS_LISTS, count=st.integers(0, 2**64 - 1), garbage=st.binary(min_size=8, max_size=160),
       at=st.sampled_from([0, SEAL, COUNT, IDS, NUMBERS]))  # fmt: skip
def test_whatever_stands_in_a_row_reading_it_never_raises(
    mine: list[str], theirs: list[str], count: int, garbage: bytes, at: int
) -> None:
    memory, (one, two) = rows(2)
    one.name(mine)
    two.name(theirs)
    two.write([1.0] * (FIELDS * len(theirs)), NOW, busy=True)
    plain = memory.cast("B")
    start = 8 * (ROW_WORDS + at)
    plain[start : start + len(garbage)] = garbage
    read = one.read(NOW)
    assert read is None or len(read) == FIELDS * len(mine)
    plain.cast("Q")[ROW_WORDS + COUNT] = count
    read = one.read(NOW)
    assert all(isfinite(credible(each)) for each in read or [])
    one.anyone_busy(NOW)


@given(lists=st.lists(IDS_LISTS, min_size=2, max_size=4), number=st.integers(1, 9))
def test_every_reader_hears_of_its_workers_and_no_others(lists: list[list[str]], number: int) -> None:
    _, all_rows = rows(len(lists))
    for row, ids in zip(all_rows, lists, strict=True):
        row.name(ids)
        row.write([float(number)] * (FIELDS * len(ids)), NOW, busy=True)
    for own, row in enumerate(all_rows):
        others = [ids for at, ids in enumerate(lists) if at != own]
        expected = [float(number * sum(name in ids for ids in others)) for name in lists[own] for _ in range(FIELDS)]
        assert row.read(NOW) == expected
