"""Which prompts are asked, in which shards."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.train_heads.answers import Asked
from backends.train_heads.prompts import Prompt, asked
from backends.train_heads.selection import Limits, in_shards, name_of, selected

KINDS = st.sampled_from(["chat", "plan", "agent"])
PROMPTS = st.lists(st.tuples(KINDS, st.booleans()), max_size=40).map(
    lambda rows: [Prompt(kind, seen, asked(f"prompt {number}")) for number, (kind, seen) in enumerate(rows)]
)
ASKED = st.lists(st.tuples(KINDS, st.integers(1, 9)), max_size=40).map(
    lambda rows: [Asked(kind, True, [number] * length) for number, (kind, length) in enumerate(rows)]
)


@given(PROMPTS, st.integers(1, 9), st.integers(1, 9), st.integers(0, 3))
def test_as_many_of_each_kind_are_taken_as_allowed_and_there_are(
    prompts: list[Prompt], train: int, judge: int, seed: int
) -> None:
    found = selected(prompts, Limits(train, judge), seed)
    there = Counter((prompt.kind, prompt.seen) for prompt in prompts)
    taken = Counter((prompt.kind, prompt.seen) for prompt in found)
    assert taken == {key: min(count, train if key[1] else judge) for key, count in there.items()}
    assert len({repr(prompt) for prompt in found}) == len(found)
    assert found == selected(prompts, Limits(train, judge), seed)


@given(PROMPTS, st.integers(0, 3))
def test_more_prompts_of_one_kind_change_nothing_for_the_others(prompts: list[Prompt], seed: int) -> None:
    own = [Prompt("own", True, asked(str(number))) for number in range(5)]
    limits = Limits(7, 7)
    assert [each for each in selected([*own, *prompts], limits, seed) if each.kind != "own"] == selected(
        prompts, limits, seed
    )


def test_the_order_is_the_seeds() -> None:
    prompts = [Prompt("chat", True, asked(str(number))) for number in range(30)]
    orders = [[each.chat for each in selected(prompts, Limits(30, 1), seed)] for seed in range(2)]
    assert orders[0] != orders[1]


@given(ASKED, st.integers(1, 8))
def test_shards_are_of_one_kind_with_the_longest_prompts_first(prompts: list[Asked], size: int) -> None:
    shards = in_shards(prompts, size)
    assert sorted(each.ids for shard in shards for each in shard) == sorted(each.ids for each in prompts)
    for shard in shards:
        assert 0 < len(shard) <= size
        assert len({each.kind for each in shard}) == 1
        lengths = [len(each.ids) for each in shard]
        assert lengths == sorted(lengths, reverse=True)


def test_any_beginning_of_the_shards_has_its_share_of_each_kind() -> None:
    prompts = [Asked(kind, True, [1]) for kind, count in (("chat", 80), ("plan", 40)) for _ in range(count)]
    kinds = [shard[0].kind for shard in in_shards(prompts, 10)]
    for beginning in range(3, 13):
        assert abs(kinds[:beginning].count("plan") - beginning / 3) <= 1


@pytest.mark.parametrize("other", ["kind", "seen", "ids", "order", "model", "tokens"])
def test_a_shards_name_tells_what_was_asked_of_whom(other: str) -> None:
    def shard(kind: str = "chat", seen: bool = True, last: int = 3) -> list[Asked]:
        return [Asked("chat", True, [1, 2]), Asked(kind, seen, [1, last])]

    name = name_of(shard(), "model", 20)
    assert name == name_of(shard(), "model", 20)
    assert (
        name
        != {
            "kind": lambda: name_of(shard(kind="plan"), "model", 20),
            "seen": lambda: name_of(shard(seen=False), "model", 20),
            "ids": lambda: name_of(shard(last=4), "model", 20),
            "order": lambda: name_of(shard()[::-1], "model", 20),
            "model": lambda: name_of(shard(), "another", 20),
            "tokens": lambda: name_of(shard(), "model", 21),
        }[other]()
    )
