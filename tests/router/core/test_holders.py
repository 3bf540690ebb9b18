"""Who holds which prefix: bounded, and never a ghost."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import MOST_RUNGS, fingerprint
from router.core.holders import MOST_HOLDERS, Holders
from router.core.room import BARREN, OWN_SHARE
from router.core.steps import MOST_STEPS, Steps, noted
from router.types import Fingerprint
from tests.support.fleets import named
from tests.support.strategies import MANY, fingerprints

TEXT = b"p" * 5000
MOST_NOTED = MOST_RUNGS + 2 * MOST_STEPS


def prompt(length: int, tail: bytes = b"") -> Fingerprint:
    return fingerprint(TEXT[:length] + tail, 0)


def held_of(holders: Holders, asked: Fingerprint) -> dict[str, int]:
    return holders.look(asked)[0]


def test_a_prefix_is_held_where_it_was_sent() -> None:
    holders = Holders()
    holders.note(prompt(1000).hashes, "w0", 250)
    assert held_of(holders, prompt(1000)) == {"w0": 768}


def test_nothing_is_held_before_anything_was_sent() -> None:
    assert Holders().look(prompt(1000)) == ({}, -1)


def test_each_worker_holds_its_own_depth() -> None:
    holders = Holders()
    holders.note(prompt(300).hashes, "short", 75)
    holders.note(prompt(1024).hashes, "long", 256)
    assert held_of(holders, prompt(5000)) == {"short": 256, "long": 1024}


def test_a_longer_prompt_finds_what_its_beginning_left() -> None:
    holders = Holders()
    holders.note(prompt(600, b"question one").hashes, "w0", 150)
    assert held_of(holders, prompt(600, b"question two")) == {"w0": 512}


def test_another_prompt_finds_nothing() -> None:
    holders = Holders()
    holders.note(prompt(600).hashes, "w0", 150)
    assert held_of(holders, fingerprint(b"q" * 600, 0)) == {}
    assert held_of(holders, fingerprint(TEXT[:600], 1)) == {}


def test_a_prompt_too_short_for_any_rung_is_held_by_nobody() -> None:
    holders = Holders()
    holders.note(prompt(10).hashes, "w0", 2)
    assert held_of(holders, prompt(10)) == {}
    assert len(holders) == 0


def test_the_last_holders_are_remembered_and_no_more() -> None:
    holders = Holders()
    for name in named(MOST_HOLDERS + 2):
        holders.note(prompt(500).hashes, name, 100)
    assert list(held_of(holders, prompt(500))) == named(MOST_HOLDERS + 2)[2:]
    assert MOST_HOLDERS == 8


def test_one_that_is_sent_it_again_is_the_latest_again() -> None:
    holders = Holders()
    first, second, *others = named(MOST_HOLDERS)
    for name in (first, second, *others, first, "latest"):
        holders.note(prompt(500).hashes, name, 100)
    assert list(held_of(holders, prompt(500))) == [*others, first, "latest"]


def test_a_prefix_ages_when_more_was_computed_since_than_the_cache_has_room_for() -> None:
    holders = Holders()
    holders.room("w0", 1000 / OWN_SHARE)
    holders.note(prompt(500).hashes, "w0", 100)
    for at in range(9):
        holders.note(fingerprint(bytes([at]) * 500, 0).hashes, "w0", 100)
    holders.note(prompt(5, b"short").hashes, "w0", 100)
    assert held_of(holders, prompt(500)) == {"w0": 256}
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w0", 1)
    assert held_of(holders, prompt(500)) == {}


def test_using_a_prefix_again_makes_it_young_again() -> None:
    holders = Holders()
    holders.room("w0", 1000 / OWN_SHARE)
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w0", 900)
    holders.note(prompt(500).hashes, "w0", 1)
    holders.note(fingerprint(b"y" * 500, 0).hashes, "w0", 900)
    assert held_of(holders, prompt(500)) == {"w0": 256}


def test_unknown_room_never_ages_anything() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w0", 10**12)
    assert held_of(holders, prompt(500)) == {"w0": 256}


def test_a_worker_that_lost_its_cache_holds_nothing_until_it_is_sent_something() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(prompt(500).hashes, "w1", 100)
    holders.forget("w0")
    assert held_of(holders, prompt(500)) == {"w1": 256}
    holders.note(prompt(70).hashes, "w0", 18)
    assert held_of(holders, prompt(500)) == {"w1": 256, "w0": 64}


def test_a_worker_that_left_holds_nothing_and_comes_back_with_nothing() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w1", 7)
    holders.remove("w0")
    assert held_of(holders, prompt(500)) == {}
    holders.note(prompt(70).hashes, "w0", 1)
    assert held_of(holders, prompt(500)) == {"w0": 64}


def test_forgetting_and_removing_the_unknown_is_no_trouble() -> None:
    holders = Holders()
    holders.forget("nobody")
    holders.remove("nobody")
    assert held_of(holders, prompt(500)) == {}


@pytest.mark.parametrize("limit", [100, 1000])
def test_the_table_is_bounded_whatever_comes(limit: int) -> None:
    """Each of its two generations may end with one prompt more than its half."""
    holders = Holders(limit)
    for at in range(3000):
        holders.note(fingerprint(b"shared " * 100 + f"{at:08}".encode() * 50, 0).hashes, f"w{at % 5}", 300)
        assert len(holders) <= limit + 2 * 64


def test_what_was_used_lately_outlives_what_was_not() -> None:
    holders = Holders(100)
    holders.note(prompt(500).hashes, "w0", 100)
    for at in range(200):
        holders.note(fingerprint(f"{at:08}".encode() * 60, 0).hashes, "w1", 100)
        holders.note(prompt(500).hashes, "w0", 1)
    assert held_of(holders, prompt(500)) == {"w0": 256}
    for at in range(200):
        holders.note(fingerprint(f"{at:08}x".encode() * 60, 0).hashes, "w1", 100)
    assert held_of(holders, prompt(500)) == {}


def test_two_hundred_thousand_prompts_of_their_own_fill_no_more_than_the_limit() -> None:
    holders = Holders()
    for at in range(200_000):
        holders.note((3 * at, 3 * at + 1, 3 * at + 2), "w0", 100.0)
        if at % 20_000 == 0:
            assert len(holders) <= holders.limit + 2 * MOST_NOTED
    assert holders.limit / 3 <= len(holders) <= holders.limit + 2 * MOST_NOTED


def test_when_the_last_worker_left_nothing_is_remembered() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 100.0)
    holders.note(prompt(500, b"x").hashes, "w1", 100.0)
    holders.remove("w0")
    assert len(holders)
    holders.remove("w1")
    assert len(holders) == 0


def test_no_worker_that_left_is_remembered_by_name() -> None:
    holders = Holders(100)
    for at in range(500):
        holders.note(prompt(500).hashes, f"w{at}", 100)
        holders.room(f"w{at}", 1000)
        holders.remove(f"w{at}")
    small = [value for value in vars(holders).values() if isinstance(value, dict)]
    assert sum(len(table) for table in small) <= 100


def test_no_worker_that_left_is_remembered_by_a_last_answer() -> None:
    holders = Holders(100)
    for at in range(200):
        holders.note(prompt(500).hashes, f"w{at}", 100)
        holders.remove(f"w{at}")
        holders.learn(f"w{at}", 0.0, 100.0, 0.0)
    small = [value for value in vars(holders).values() if isinstance(value, dict)]
    assert sum(len(table) for table in small) <= 100


# How old, and how deep.


def test_the_deepest_rung_that_anybody_was_ever_sent_is_told() -> None:
    holders = Holders()
    holders.note(prompt(700).hashes, "w0", 175)
    assert holders.look(prompt(700))[1] == 2
    assert holders.look(prompt(5000)) == ({"w0": 512}, 2)
    holders.forget("w0")
    assert holders.look(prompt(5000)) == ({}, 2)
    assert holders.look(fingerprint(b"q" * 700, 0)) == ({}, -1)


def test_a_prefix_is_as_old_as_what_was_computed_since_had_its_worker_room_or_not() -> None:
    holders, ages = Holders(), dict[str, float]()
    holders.room("w0", 50 / OWN_SHARE)
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(prompt(500).hashes, "w1", 100)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w0", 70)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w1", 30)
    held, _ = holders.look(prompt(500), ages)
    assert held == {"w1": 256}
    assert ages == {"w0": 70, "w1": 30}


def test_the_age_is_that_of_the_deepest_part_that_was_sent_there() -> None:
    holders, ages = Holders(), dict[str, float]()
    holders.note(prompt(1024).hashes, "w0", 100)
    holders.note(prompt(300).hashes, "w0", 25)
    holders.look(prompt(1024), ages)
    assert ages == {"w0": 25}


def test_what_was_lost_or_never_sent_has_no_age() -> None:
    holders, ages = Holders(), dict[str, float]()
    holders.note(prompt(500).hashes, "w0", 100)
    holders.forget("w0")
    holders.look(prompt(500), ages)
    assert ages == {}


def test_the_steps_beyond_a_rung_show_who_holds_more_of_it() -> None:
    holders, held, ages = Holders(), {"near": 64, "far": 64}, dict[str, float]()
    holders.note((1, 10, 11), "near", 5)
    holders.note((1, 10, 11, 12), "far", 7)
    holders.look_further(Steps(0, [100, 200, 300, 400], [10, 11, 12, 13]), held, ages)
    assert held == {"near": 200, "far": 300}
    assert ages == {"near": 0, "far": 0}
    unknown = dict(held)
    holders.look_further(Steps(0, [100], [99]), unknown, ages)
    assert unknown == held


def test_a_prompt_sent_again_and_again_is_young_to_its_end() -> None:
    """3,840 bytes end on the one step after the rung at 3,584."""
    holders, ages, text = Holders(), dict[str, float](), TEXT[:3840]
    prefix = fingerprint(text, 0)
    for _ in range(5):
        holders.note(noted(prefix, None, text), "w0", 300)
    assert holders.look(prefix, ages) == ({"w0": 3840}, len(prefix.hashes) - 1)
    assert ages == {"w0": 0.0}
    holders.room("w0", 500)
    assert holders.look(prefix)[0] == {"w0": 3840}


# Learnt room.


def test_a_room_is_learnt_from_what_was_gone() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w0", 900)
    assert held_of(holders, prompt(500)) == {"w0": 256}
    holders.learn("w0", 900.0, 100.0, 0.0)
    assert held_of(holders, prompt(500)) == {"w0": 256}  # room for 900 of the 1,000 that were computed
    holders.learn("w0", 900.0, 100.0, 0.0)
    assert held_of(holders, prompt(500)) == {}
    holders.learn("w0", 900.0, 0.0, 100.0)
    assert held_of(holders, prompt(500)) == {"w0": 256}


def test_what_was_computed_before_a_loss_says_nothing_of_the_room() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 1e9)
    holders.forget("w0")
    holders.note(prompt(500).hashes, "w0", 100)
    holders.note(fingerprint(b"z" * 500, 0).hashes, "w0", 100)
    for _ in range(2):
        holders.learn("w0", 100.0, 100.0, 0.0)
    assert holders.look(prompt(500))[0] == {"w0": 256}
    for _ in range(8):
        holders.learn("w0", 100.0, 100.0, 0.0)
    assert holders.look(prompt(500))[0] == {}


def test_nothing_is_learnt_of_a_prefix_that_was_never_sent() -> None:
    holders = Holders()
    holders.note(prompt(500).hashes, "w0", 100)
    for _ in range(2 * BARREN):
        holders.learn("w0", None, 100.0, 0.0)
    assert held_of(holders, prompt(500)) == {"w0": 256}


def test_a_worker_that_never_delivers_holds_nothing_until_it_does() -> None:
    holders, ages = Holders(), dict[str, float]()
    holders.room("w0", 1e6)
    holders.note(prompt(500).hashes, "w0", 100)
    for _ in range(BARREN):
        holders.learn("w0", 0.0, 100.0, 0.0)
    assert holders.look(prompt(500), ages)[0] == {}
    assert ages == {"w0": 0.0}
    holders.learn("w0", ages["w0"], 0.0, 16.0)
    assert held_of(holders, prompt(500)) == {"w0": 256}


class Naive:
    """The same in words: every note in a list, every question answered by reading all of it."""

    def __init__(self) -> None:
        self.notes: dict[int, list[tuple[str, int, float]]] = {}
        self.life: dict[str, int] = {}
        self.computed: dict[str, float] = {}
        self.rooms: dict[str, float] = {}
        self.there: set[str] = set()

    def note(self, asked: Fingerprint, worker: str, computed: float) -> None:
        self.computed[worker] = self.computed.get(worker, 0.0) + computed
        self.there.add(worker)
        for value in asked.hashes:
            others = [each for each in self.notes.get(value, []) if each[0] != worker]
            self.notes[value] = [*others, (worker, self.life.get(worker, 0), self.computed[worker])][-MOST_HOLDERS:]

    def forget(self, worker: str) -> None:
        self.life[worker] = self.life.get(worker, 0) + 1

    def remove(self, worker: str) -> None:
        self.forget(worker)
        self.rooms.pop(worker, None)
        self.there.discard(worker)
        if not self.there:
            self.notes.clear()

    def look(self, asked: Fingerprint) -> dict[str, int]:
        held = {}
        for depth, value in zip(asked.depths, asked.hashes, strict=True):
            for worker, life, mark in self.notes.get(value, []):
                fresh = self.computed[worker] - mark <= self.rooms.get(worker, inf)
                if life == self.life.get(worker, 0) and fresh:
                    held[worker] = depth
        return held


workers = st.sampled_from(["a", "b", "c", "d", "e", "f"])
steps = st.lists(
    st.tuples(st.just("note"), fingerprints(), workers, st.integers(1, 400))
    | st.tuples(st.sampled_from(["forget", "remove"]), workers)
    | st.tuples(st.just("room"), workers, st.integers(0, 1000)),
    max_size=40,
)


def follow(step: tuple[Any, ...], holders: Holders, naive: Naive) -> None:
    match step:
        case "note", asked, worker, computed:
            holders.note(asked.hashes, worker, float(computed))
            naive.note(asked, worker, float(computed))
        case "room", worker, tokens:
            holders.room(worker, tokens)
            naive.rooms[worker] = OWN_SHARE * tokens
        case name, worker:
            getattr(holders, name)(worker)
            getattr(naive, name)(worker)


@MANY
@given(steps, fingerprints())
def test_it_answers_like_a_naive_table(steps: list[tuple[Any, ...]], asked: Fingerprint) -> None:
    holders, naive = Holders(), Naive()
    for step in steps:
        follow(step, holders, naive)
        held, deepest = holders.look(asked)
        assert held == naive.look(asked)
        assert deepest == max((at for at, value in enumerate(asked.hashes) if value in naive.notes), default=-1)


@given(steps, fingerprints())
def test_a_small_table_forgets_but_never_invents(steps: list[tuple[Any, ...]], asked: Fingerprint) -> None:
    holders, naive = Holders(20), Naive()
    for step in steps:
        follow(step, holders, naive)
        held, truth = held_of(holders, asked), naive.look(asked)
        assert all(truth.get(worker, 0) >= depth for worker, depth in held.items())
