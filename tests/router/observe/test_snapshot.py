"""The numbers of several processes become one: sums, and sums that never fall when one ends."""

from hypothesis import given
from hypothesis import strategies as st

from router.observe.snapshot import Snapshot, decode, encode

NAMES = st.sampled_from(["requests", "seconds", "cached"])
LABELS = st.tuples(st.sampled_from(["m", "n"]), st.sampled_from(["a", "b", "c"]))
NUMBERS = st.lists(st.integers(0, 1000).map(float), min_size=1, max_size=4)
SERIES = st.dictionaries(LABELS, NUMBERS, max_size=4)
SNAPSHOTS = st.builds(
    Snapshot,
    sums=st.dictionaries(NAMES, SERIES, max_size=3),
    gauges=st.dictionaries(st.sampled_from(["in_flight", "queued"]), SERIES, max_size=2),
    worker_at=st.just({"cached": 1}),
)


def merged(*snapshots: Snapshot) -> Snapshot:
    whole = Snapshot()
    for each in snapshots:
        whole.add(each)
    return whole


def test_series_add_up_place_by_place() -> None:
    one = Snapshot({"c": {("m",): [1]}, "h": {(): [1, 2, 0.5]}}, {"in_flight": {("a",): [3]}})
    other = Snapshot({"c": {("m",): [2], ("n",): [5]}, "h": {(): [0, 1, 0.25]}}, {"in_flight": {("a",): [1]}})
    whole = merged(one, other)
    assert whole.sums == {"c": {("m",): [3], ("n",): [5]}, "h": {(): [1, 3, 0.75]}}
    assert whole.gauges == {"in_flight": {("a",): [4]}}
    assert (whole.total("c"), whole.total("in_flight"), whole.total("no such")) == (8, 4, 0)


def test_what_has_ended_counts_on_in_the_sums_and_not_in_the_gauges() -> None:
    whole = Snapshot()
    whole.add_sums(Snapshot({"c": {(): [2]}}, {"in_flight": {("a",): [9]}}))
    assert (whole.sums, whole.gauges) == ({"c": {(): [2]}}, {})


def test_a_worker_that_left_takes_its_series_with_it() -> None:
    whole = Snapshot({"cached": {("m", "a"): [1], ("m", "b"): [2], (): [3]}, "c": {("a",): [4]}}, {}, {"cached": 1})
    whole.keep({"b"})
    assert whole.sums == {"cached": {("m", "b"): [2]}, "c": {("a",): [4]}}


def test_the_workers_are_those_with_a_gauge() -> None:
    assert Snapshot(gauges={"in_flight": {("a",): [0], (): [1]}}).workers() == {"a"}


@given(SNAPSHOTS)
def test_it_travels_unchanged(snapshot: Snapshot) -> None:
    assert decode(encode(snapshot)) == snapshot


@given(st.lists(SNAPSHOTS, max_size=4))
def test_merging_is_a_sum_in_any_order_and_changes_no_part(snapshots: list[Snapshot]) -> None:
    before = [encode(each) for each in snapshots]
    whole, backwards = merged(*snapshots), merged(*reversed(snapshots))
    assert whole == backwards
    for name in ("requests", "seconds", "cached"):
        for labels, numbers in whole.sums.get(name, {}).items():
            parts = [each.sums.get(name, {}).get(labels, []) for each in snapshots]
            assert len(numbers) == max(map(len, parts))
            assert sum(numbers) == sum(map(sum, parts))
    assert [encode(each) for each in snapshots] == before


@given(SNAPSHOTS, SNAPSHOTS, SNAPSHOTS)
def test_counting_on_and_ending_never_lower_a_sum(living: Snapshot, more: Snapshot, gone: Snapshot) -> None:
    """A scrape, then more is counted, then that process ends: no series falls and none goes."""
    ended = Snapshot()
    ended.add_sums(gone)
    shown = merged(ended, living)
    counted = merged(living, more)
    later = merged(ended, counted)
    ended.add_sums(counted)
    last = merged(ended)
    for before, after in ((shown, later), (later, last)):
        for name, series in before.sums.items():
            for labels, numbers in series.items():
                now = after.sums[name][labels]
                assert all(a <= b for a, b in zip(numbers, now, strict=False))
                assert len(now) >= len(numbers)
