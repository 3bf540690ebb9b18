"""The ring: nearest first, each worker once, and nothing moves that need not."""

from random import Random
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uhashring import HashRing

from router.core import ring as ring_module
from router.core.ring import Ring
from tests.support.fleets import named, ring_of
from tests.support.strategies import keys

members = st.lists(st.integers(0, 99).map("w{}:8000".format), min_size=1, max_size=8, unique=True)
SPREAD = [(at * 0x9E3779B97F4A7C15) % 2**64 for at in range(10_000)]


@given(members, keys, st.randoms(use_true_random=False))
def test_the_order_in_which_workers_were_learned_never_matters(names: list[str], key: int, dice: object) -> None:
    shuffled = list(names)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert list(ring_of(names).walk(key)) == list(ring_of(shuffled).walk(key))


@given(members, keys)
def test_a_walk_meets_each_worker_once(names: list[str], key: int) -> None:
    assert sorted(ring_of(names).walk(key)) == sorted(names)


@given(members, keys)
def test_home_is_where_the_walk_begins(names: list[str], key: int) -> None:
    ring = ring_of(names)
    assert ring.home(key) == next(ring.walk(key))
    assert ring.nearest(key, set(names)) == ring.home(key)


@given(members, keys, st.data())
def test_the_nearest_among_some_is_the_first_of_them_on_the_walk(
    names: list[str], key: int, data: st.DataObject
) -> None:
    some = set(data.draw(st.lists(st.sampled_from(names))))
    ring = ring_of(names)
    assert ring.nearest(key, some) == next((name for name in ring.walk(key) if name in some), None)


@given(st.integers(1, 150), keys, st.integers(0, 40), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_some_of_many_come_in_the_order_of_the_walk_be_they_few_or_not(
    count: int, key: int, some: int, dice: Random
) -> None:
    ring = ring_of(named(count))
    among = set(dice.sample(named(count), min(some, count)))
    walk = [name for name in ring.walk(key) if name in among]
    assert list(ring.in_order(key, among | {"gone"})) == walk
    assert ring.nearest(key, among | {"gone"}) == (walk[0] if walk else None)
    assert ring.nearest(key, among) == (walk[0] if walk else None)


@given(members, keys, st.data())
def test_a_worker_s_leaving_takes_it_out_of_every_walk_and_changes_nothing_else(
    names: list[str], key: int, data: st.DataObject
) -> None:
    """So each of its keys moves to its former second, and no other key moves."""
    gone = data.draw(st.sampled_from(names))
    before = list(ring_of(names).walk(key))
    after = list(ring_of([name for name in names if name != gone]).walk(key))
    assert after == [name for name in before if name != gone]


def test_removing_one_of_eight_workers_moves_only_its_keys() -> None:
    ring = ring_of(named(8))
    before = {key: list(ring.walk(key))[:2] for key in SPREAD}
    ring.place(dict.fromkeys([name for name in named(8) if name != "w3"], 1.0))
    for key, (first, second) in before.items():
        assert ring.home(key) == (second if first == "w3" else first)


def test_adding_it_again_restores_the_map_exactly() -> None:
    ring = ring_of(named(8))
    before = [ring.home(key) for key in SPREAD]
    ring.place(dict.fromkeys(named(7), 1.0))
    assert [ring.home(key) for key in SPREAD] != before
    ring.place(dict.fromkeys(reversed(named(8)), 1.0))
    assert [ring.home(key) for key in SPREAD] == before


def test_ten_workers_get_at_most_a_quarter_more_than_the_mean() -> None:
    ring = ring_of([f"10.0.0.{at}:8000" for at in range(10)])
    homes = [ring.home(key) for key in SPREAD]
    counts = [homes.count(name) for name in set(homes)]
    assert len(counts) == 10
    assert max(counts) <= 1.25 * len(SPREAD) / 10
    assert min(counts) >= 0.75 * len(SPREAD) / 10


def test_the_keys_of_a_worker_that_left_are_spread_over_the_others() -> None:
    ring = ring_of(named(8))
    seconds = [list(ring.walk(key))[1] for key in SPREAD if ring.home(key) == "w0"]
    assert max(seconds.count(name) for name in named(8)) <= 0.3 * len(seconds)


def test_a_worker_s_share_is_in_proportion_to_its_weight() -> None:
    ring = ring_of({"small": 0.5, "one": 1.0, "two": 2.0, "four": 4.0})
    homes = [ring.home(key) for key in SPREAD]
    for name, weight in (("small", 0.5), ("one", 1.0), ("two", 2.0), ("four", 4.0)):
        share = homes.count(name) / len(homes)
        assert share == pytest.approx(weight / 7.5, rel=0.3)


def test_more_weight_only_draws_keys_to_its_worker() -> None:
    before = ring_of({"a": 1.0, "b": 1.0, "c": 1.0})
    after = ring_of({"a": 1.0, "b": 2.0, "c": 1.0})
    moved = [(before.home(key), after.home(key)) for key in SPREAD if before.home(key) != after.home(key)]
    assert moved
    assert {to for _, to in moved} == {"b"}


def test_the_least_weight_still_has_a_point() -> None:
    assert sorted(ring_of({"a": 0.0001, "b": 1.0}).walk(0)) == ["a", "b"]


def test_an_empty_ring_leads_nowhere() -> None:
    ring = Ring()
    assert list(ring.walk(1)) == []
    assert ring.home(1) is None
    assert ring.nearest(1, {"w0"}) is None
    ring.place({"w0": 1.0})
    ring.place({})
    assert list(ring.walk(1)) == []


@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1])
def test_the_ring_closes_at_both_ends(key: int) -> None:
    assert sorted(ring_of(named(3)).walk(key)) == named(3)


def test_points_that_collide_are_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hash of 4,096 values nearly every worker's points collide with another's."""
    whole = ring_module._place
    monkeypatch.setattr(ring_module, "_place", lambda text: whole(text) % 4096)
    names = named(8)
    forth, back, fewer = ring_of(names), ring_of(names[::-1]), ring_of(names[1:])
    for key in range(0, 5000, 7):
        walk = list(forth.walk(key))
        assert sorted(walk) == sorted(names)
        assert walk == list(back.walk(key))
        if walk[0] != names[0]:
            assert fewer.home(key) == walk[0]


weights = st.sampled_from((0.001, 0.01, 0.02, 0.1, 1.0))
fleets = st.dictionaries(st.integers(0, 12).map("w{}".format), weights, max_size=8)


def from_nothing(members: dict[str, float]) -> list[tuple[int, str]]:
    """What uhashring makes of all members at once, in the order of their names."""
    nodes = {name: {"vnodes": max(1, round(ring_module.POINTS * members[name]))} for name in sorted(members)}
    return HashRing(nodes, hash_fn=ring_module._place).get_points() if nodes else []


def points_of(ring: Ring) -> list[tuple[int, str]]:
    return list(zip(ring._points, ring._owners, strict=True))


@pytest.mark.parametrize("values", [2**64, 512, 16])
@given(changes=st.lists(fleets, min_size=1, max_size=6))
@settings(max_examples=40)
def test_after_any_changes_the_ring_is_point_for_point_what_it_would_be_from_nothing(
    values: int, changes: list[dict[str, float]]
) -> None:
    """With a hash of few values most points are contested, and change hands as members come and go."""
    whole = ring_module._place
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_module, "_place", lambda text: whole(text) % values)
        ring = Ring()
        for members in changes:
            ring.place(members)
            expected = from_nothing(members)
            assert points_of(ring) == expected
            owned = {name: [point for point, owner in expected if owner == name] for name in members}
            assert {name: places for name, places in ring._places.items() if places} == {
                name: places for name, places in owned.items() if places
            }


def test_a_change_in_a_large_fleet_costs_a_fraction_of_building_it() -> None:
    """Each by the least of some tries, on the same machine."""
    ring, members = Ring(), dict.fromkeys(named(300), 1.0)
    began = perf_counter()
    ring.place(members)
    whole = perf_counter() - began
    seconds = []
    for change in ({"new": 1.0}, {}, {"w7": 0.5}, {}, {"new": 2.0}, {}):
        began = perf_counter()
        ring.place(members | change)
        seconds.append(perf_counter() - began)
    assert min(seconds) < whole / 8
    assert points_of(ring) == from_nothing(members)
