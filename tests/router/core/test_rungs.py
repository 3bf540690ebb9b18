"""Engines' own word against the table of who was sent what: when it counts, and when the table does."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.blocks import Blocks, chain, packed, root_of
from router.core.fingerprint import DEPTHS, fingerprint
from router.core.rungs import GRACE, MOST_RECENT, Recent, Rungs
from router.types import Fingerprint

SIZE = 16
LONG_AGO = 1e9  # of nothing that was sent is it still to be believed then


def tokens_of(text: bytes) -> list[int]:
    """Every token is four bytes of its text, so that a rung's share of the tokens is exact."""
    return [int.from_bytes(text[at : at + 4], "big") for at in range(0, len(text), 4)]


def prompt(*parts: int, each: int = 256) -> bytes:
    """A text of parts; equal numbers are equal parts."""
    return b"".join((b"%3d " % part) * (each // 4) for part in parts)


def print_of(text: bytes) -> Fingerprint:
    return fingerprint(text, 7)


class Fleet:
    """Workers that publish, by what they hold of which texts."""

    def __init__(self, *workers: str, complete: bool = True) -> None:
        self.rungs = Rungs(Blocks())
        for worker in workers:
            self.rungs.blocks.view(worker)
            if complete:
                self.rungs.blocks.clear(worker)

    def names(self, text: bytes, adapter: str | None = None) -> list[int]:
        return chain(packed(tokens_of(text)), SIZE, root_of(adapter))

    def holds(self, worker: str, text: bytes, size: int = SIZE, adapter: str | None = None) -> None:
        ids = tokens_of(text)
        names = chain(packed(ids), size, root_of(adapter))
        known = self.rungs.blocks.view(worker).names
        start = sum(name in known for name in names)
        if start < len(names):
            parent = names[start - 1] if start else None
            part = packed(ids[start * size : len(names) * size])
            assert self.rungs.blocks.store(worker, names[start:], parent, part, size, adapter)

    def evicts(self, worker: str, text: bytes, down_to: int) -> None:
        """Of this text only so many bytes are left."""
        self.rungs.blocks.remove(worker, self.names(text)[down_to // (4 * SIZE) :])

    def learns(self, text: bytes, worker: str = "", model: str | None = None) -> bool:
        return self.rungs.learn(print_of(text), tokens_of(text), worker, model)

    def overruled(self, text: bytes, **held: int) -> dict[str, int]:
        self.rungs.overrule(print_of(text), held)
        return held


TEXT = prompt(*range(8))  # 2048 bytes, 512 tokens, 32 blocks
WHOLE = len(TEXT)


def test_a_worker_holds_what_its_events_say_and_others_do_not() -> None:
    fleet = Fleet("a", "b", "c")
    fleet.holds("a", TEXT)
    fleet.holds("b", TEXT[:1024])
    fleet.learns(TEXT)
    assert fleet.overruled(TEXT, b=WHOLE, c=512) == {"a": WHOLE, "b": 1024}


def test_eviction_takes_it_away_from_its_end() -> None:
    fleet = Fleet("a")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    fleet.evicts("a", TEXT, 1024)
    assert fleet.overruled(TEXT, a=WHOLE) == {"a": 1024}
    fleet.evicts("a", TEXT, 0)
    assert fleet.overruled(TEXT, a=WHOLE) == {}


def test_a_cleared_cache_holds_nothing() -> None:
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.holds("b", TEXT)
    fleet.learns(TEXT)
    fleet.rungs.blocks.clear("a")
    assert fleet.overruled(TEXT, a=WHOLE) == {"b": WHOLE}


def test_prompts_that_share_rungs_are_judged_by_them() -> None:
    """The blocks of one prompt were learnt; another begins alike."""
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    other = TEXT[:1024] + prompt(50, 51, 52)
    assert fleet.overruled(other, b=1024) == {"a": 1024}


def test_beyond_the_rungs_that_count_the_table_decides() -> None:
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    longer = TEXT + prompt(60, 61, 62, 63)
    assert fleet.overruled(longer, a=len(longer)) == {"a": len(longer)}, "it holds all rungs that count"
    assert fleet.overruled(longer, b=len(longer)) == {"a": WHOLE}, "and this one none"


def test_a_depth_between_two_rungs_is_kept_where_the_rung_before_it_is_held() -> None:
    fleet = Fleet("a")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    assert fleet.overruled(TEXT + prompt(9), a=WHOLE + 100) == {"a": WHOLE + 100}


def test_a_prompt_of_which_no_block_was_ever_heard_is_left_to_the_table() -> None:
    """As with images or salts: the engine names its blocks by more than the tokens that it tells us."""
    fleet = Fleet("a", "b")
    fleet.holds("a", prompt(99, 98))
    fleet.learns(TEXT)
    assert fleet.overruled(TEXT, a=512, b=WHOLE) == {"a": 512, "b": WHOLE}
    assert (fleet.rungs.matched, fleet.rungs.fallback) == (0, 1)


def test_a_prompt_whose_blocks_are_not_learnt_is_left_to_the_table() -> None:
    fleet = Fleet("a")
    fleet.holds("a", TEXT)
    assert fleet.overruled(TEXT, b=300) == {"b": 300}
    assert (fleet.rungs.matched, fleet.rungs.fallback) == (0, 1)
    fleet.learns(TEXT)
    fleet.overruled(TEXT)
    assert (fleet.rungs.matched, fleet.rungs.fallback) == (1, 1)


def test_workers_that_publish_nothing_are_left_to_the_table() -> None:
    fleet = Fleet("a")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    assert fleet.overruled(TEXT, silent=768) == {"a": WHOLE, "silent": 768}
    assert Rungs(Blocks()).overrule(print_of(TEXT), held := {"silent": 5}) is None
    assert held == {"silent": 5}


def test_an_incomplete_view_adds_but_takes_away_only_what_was_said_to_be_removed() -> None:
    fleet = Fleet("a", "b", complete=False)
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    assert fleet.overruled(TEXT, b=512) == {"a": WHOLE, "b": 512}
    fleet.evicts("a", TEXT, 1024)
    assert fleet.overruled(TEXT, a=WHOLE, b=512) == {"a": 1024, "b": 512}
    fleet.evicts("a", TEXT, 0)
    assert fleet.overruled(TEXT, a=WHOLE, b=512) == {"a": 64, "b": 512}, "the first rung is too short for a block"


def test_after_a_gap_the_table_knows_better_until_the_engine_begins_anew() -> None:
    fleet = Fleet("a", "b")
    for worker in "ab":
        fleet.holds(worker, TEXT)
    fleet.learns(TEXT)
    fleet.rungs.blocks.lose("a")
    assert fleet.overruled(TEXT, a=1024) == {"a": 1024, "b": WHOLE}
    fleet.rungs.blocks.clear("a")
    assert fleet.overruled(TEXT, a=1024) == {"b": WHOLE}


def test_what_was_just_sent_is_not_forgotten_before_the_engine_can_tell_of_it() -> None:
    """The race: the table knows at once, the engine's word comes after the prefill."""
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    fleet.rungs.sent(print_of(TEXT), "b", 100.0)
    assert fleet.overruled(TEXT, b=WHOLE) == {"a": WHOLE, "b": WHOLE}
    assert fleet.overruled(TEXT[:1024], b=1024) == {"a": 1024, "b": 1024}, "and what begins like it"
    fleet.rungs.sent(print_of(prompt(77)), "b", 100.0 + 2 * GRACE)
    assert fleet.overruled(TEXT, b=WHOLE) == {"a": WHOLE}, "in the end the engine is believed"


def test_what_another_gateway_just_sent_is_believed_as_well() -> None:
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    fleet.rungs.heard(print_of(TEXT).hashes, "b", 100.0)
    fleet.rungs.heard(print_of(TEXT).hashes, "stranger", 100.0)
    assert fleet.overruled(TEXT, b=WHOLE) == {"a": WHOLE, "b": WHOLE}


def test_what_was_just_sent_is_gone_once_the_engine_removed_it_since() -> None:
    fleet = Fleet("a", "b")
    fleet.holds("b", TEXT)
    fleet.learns(TEXT)
    fleet.rungs.sent(print_of(TEXT), "a", 100.0)
    fleet.holds("a", TEXT)
    fleet.evicts("a", TEXT, 512)
    assert fleet.overruled(TEXT, a=WHOLE) == {"a": 512, "b": WHOLE}


def test_what_was_removed_before_it_was_sent_again_is_believed_to_come_back() -> None:
    fleet = Fleet("a", "b")
    for worker in "ab":
        fleet.holds(worker, TEXT)
    fleet.learns(TEXT)
    fleet.evicts("a", TEXT, 0)
    assert fleet.overruled(TEXT, a=WHOLE) == {"b": WHOLE}
    fleet.rungs.sent(print_of(TEXT), "a", 100.0)
    assert fleet.overruled(TEXT, a=WHOLE) == {"a": WHOLE, "b": WHOLE}


def test_the_same_where_its_blocks_are_learnt_only_then() -> None:
    fleet = Fleet("a", "b")
    for worker in "ab":
        fleet.holds(worker, TEXT)
    fleet.evicts("a", TEXT, 0)
    fleet.rungs.sent(print_of(TEXT), "a", 100.0)
    fleet.learns(TEXT, "a")
    assert fleet.overruled(TEXT, a=WHOLE) == {"a": WHOLE, "b": WHOLE}


def test_lately_is_between_one_grace_and_two() -> None:
    recent = Recent()
    recent.add([1], 100.0)
    recent.add([2], 100.0 + 0.9 * GRACE)
    recent.add([3], 100.0 + 1.1 * GRACE)
    assert 1 in recent
    assert 2 in recent
    recent.add([4], 100.0 + 2.2 * GRACE)
    assert 2 not in recent
    assert 3 in recent
    recent.add([5], 100.0 + 9 * GRACE)
    assert 4 not in recent
    assert 5 in recent


def test_with_much_traffic_the_grace_is_shorter_and_the_memory_bounded() -> None:
    recent = Recent()
    for at in range(10):
        recent.add(list(range(at * MOST_RECENT, (at + 1) * MOST_RECENT)), 100.0)
    assert len(recent._now) + len(recent._before) <= 2 * MOST_RECENT
    assert 10 * MOST_RECENT - 1 in recent


def test_blocks_are_worth_learning_once_for_a_prompt_and_what_is_nearly_it() -> None:
    fleet = Fleet("a")
    assert not fleet.rungs.sent(print_of(TEXT), "a", 0.0), "no engine has told its block size yet"
    fleet.holds("a", prompt(99))
    assert fleet.rungs.sent(print_of(TEXT), "a", 0.0)
    fleet.learns(TEXT)
    assert not fleet.rungs.sent(print_of(TEXT), "a", 0.0)
    assert not fleet.rungs.sent(print_of(TEXT + prompt(9)), "a", 0.0), "the rest is an eighth at most"
    assert fleet.rungs.sent(print_of(TEXT + prompt(9, 10, 11)), "a", 0.0)
    assert not fleet.rungs.sent(print_of(TEXT), "silent", 0.0), "it publishes nothing"
    assert not fleet.rungs.sent(print_of(b"short"), "a", 0.0)


def test_a_prompt_too_short_for_blocks_is_learnt_once_and_left_to_the_table() -> None:
    fleet = Fleet("a")
    short = prompt(1, each=68)
    fleet.holds("a", TEXT)
    fleet.learns(short)
    assert not fleet.rungs.wanted(print_of(short))
    assert fleet.overruled(short, a=64, b=64) == {"a": 64, "b": 64}


def test_what_cannot_be_learnt_is_not_tried_again_soon() -> None:
    fleet = Fleet("a")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT[:1024])
    assert fleet.rungs.wanted(print_of(TEXT))
    fleet.rungs.pass_over(print_of(TEXT))
    assert not fleet.rungs.wanted(print_of(TEXT))
    assert fleet.overruled(TEXT, b=512) == {"a": 1024, "b": 512}, "what was known of it stays so"


@pytest.mark.parametrize("tokens", [[], [-1] * 600, ["x"] * 600, [1.5], [2**70]])
def test_tokens_that_are_none_teach_nothing(tokens: list[Any]) -> None:
    fleet = Fleet("a")
    fleet.holds("a", TEXT)
    fleet.rungs.learn(print_of(TEXT), tokens, "a", None)
    assert fleet.overruled(TEXT, b=512) == {"b": 512}


def test_an_empty_prompt_is_nothing() -> None:
    fleet = Fleet("a")
    assert not fleet.learns(b"")
    assert fleet.overruled(b"") == {}


def test_workers_with_blocks_of_another_size_are_judged_by_theirs() -> None:
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.learns(TEXT)
    fleet.holds("b", TEXT, size=32)
    assert fleet.overruled(TEXT, b=512) == {"b": 512}, "what was known was made for one size"
    assert fleet.rungs.wanted(print_of(TEXT))
    fleet.learns(TEXT)
    assert fleet.overruled(TEXT) == {"a": WHOLE, "b": WHOLE}


def test_an_adapter_has_blocks_of_its_own() -> None:
    fleet = Fleet("a", "b")
    fleet.holds("a", TEXT)
    fleet.holds("b", TEXT, adapter="lora")
    fleet.learns(TEXT, model="base")
    assert fleet.overruled(TEXT) == {"a": WHOLE}
    fleet.rungs.learn(fingerprint(TEXT, 8), tokens_of(TEXT), "b", "lora")
    fleet.rungs.overrule(fingerprint(TEXT, 8), held := {"a": WHOLE})
    assert held == {"b": WHOLE}


def test_what_is_not_learnt_again_is_forgotten_in_the_end() -> None:
    fleet = Fleet("a")
    fleet.rungs.limit = 100
    fleet.holds("a", TEXT)
    for number in range(200):
        fleet.learns(prompt(number, number))
        assert len(fleet.rungs) <= 110
    assert fleet.rungs.wanted(print_of(prompt(1, 1)))
    assert not fleet.rungs.wanted(print_of(prompt(199, 199)))


def test_a_worker_that_left_is_held_nowhere() -> None:
    fleet = Fleet("a", "b")
    for worker in "ab":
        fleet.holds(worker, TEXT)
    fleet.learns(TEXT)
    fleet.rungs.sent(print_of(TEXT), "a", 0.0)
    fleet.rungs.forget("a")
    assert fleet.overruled(TEXT) == {"b": WHOLE}
    assert "a" not in fleet.rungs._recent


# Against brute force.

TEXTS = [prompt(*parts) for parts in product((1, 2), repeat=4)]
STEP = st.tuples(st.sampled_from(["holds", "evicts", "learns"]), st.sampled_from("abc"), st.sampled_from(TEXTS),
                 st.integers(0, 16))  # fmt: skip


@given(st.lists(STEP, max_size=12), st.sampled_from(TEXTS), st.dictionaries(st.sampled_from("abc"), st.sampled_from(
    DEPTHS[:5])))  # fmt: skip
@settings(max_examples=300)
def test_complete_views_say_what_a_plain_search_says(
    steps: list[tuple[str, str, bytes, int]], text: bytes, held: dict[str, int]
) -> None:
    fleet = Fleet("a", "b", "c")
    holding: dict[str, set[bytes]] = {"a": set(), "b": set(), "c": set()}
    ever: set[bytes] = set()
    learnt: dict[int, bytes] = {}
    for what, worker, other, count in steps:
        if what == "holds":
            fleet.holds(worker, other)
            holding[worker] |= {other[:end] for end in range(64, len(other) + 1, 64)}
            ever |= holding[worker]
        elif what == "evicts" and other in holding[worker]:
            fleet.evicts(worker, other, count * 64)
            lost = {other[:end] for end in range(64 * (count + 1), len(other) + 1, 64)}
            holding[worker] = {each for each in holding[worker] if not any(each.startswith(gone) for gone in lost)}
            for each in TEXTS:  # what followed the lost blocks in other texts goes with them
                if any(each.startswith(gone) for gone in lost) and fleet.rungs.blocks.view(worker).names:
                    fleet.evicts(worker, each, common(other, each, count * 64))
        elif what == "learns" and fleet.rungs.blocks.sizes:
            fleet.learns(other)
            prefix = print_of(other)
            learnt |= {rung: other[: depth - 64] for rung, depth in zip(prefix.hashes, prefix.depths, strict=True)}
    before = dict(held)
    fleet.rungs.overrule(print_of(text), held)
    assert held == searched(print_of(text), before, holding, ever, learnt)


def common(one: bytes, other: bytes, at_least: int) -> int:
    """Of `other`, the bytes that are left where `one` keeps `at_least`."""
    shared = next((at for at in range(0, len(one), 64) if one[at : at + 64] != other[at : at + 64]), len(one))
    return at_least if shared > at_least else len(other)


def searched(
    prefix: Fingerprint,
    held: dict[str, int],
    holding: dict[str, set[bytes]],
    ever: set[bytes],
    learnt: dict[int, bytes],
) -> dict[str, int]:
    known = [
        (depth, learnt[rung]) for rung, depth in zip(prefix.hashes, prefix.depths, strict=True) if learnt.get(rung)
    ]
    counting = [depth for depth, needed in known if needed in ever]
    if not counting:
        return held
    out = dict(held)
    for worker, blocks in holding.items():
        depth = max((depth for depth, needed in known if needed in blocks), default=0)
        if depth > held.get(worker, 0) or (depth < held.get(worker, 0) and depth < max(counting)):
            out.pop(worker, None)
            if depth:
                out[worker] = depth
    return out
