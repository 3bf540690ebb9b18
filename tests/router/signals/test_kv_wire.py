"""KV-cache events in the forms of several engines and versions, and in forms that are none."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.blocks import packed
from router.signals.kv_wire import Cleared, Removed, Stored, read

TOKENS = [128000, 1, 255, 65536]
PLAIN = Stored([7, 8], 5, packed(TOKENS), 2, None, None)


def payload(*events: Any, rank: Any = 0, when: float = 1757500000.25) -> bytes:
    return msgspec.msgpack.encode([when, events, rank])


def read_one(event: Any) -> Any:
    batch = read(payload(event))
    assert batch is not None
    assert not batch.bad
    return batch.events[0] if batch.events else None


def stored(**fields: Any) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": [7, 8], "parent_block_hash": 5, "token_ids": TOKENS,
            "block_size": 2, "lora_id": None, "medium": "GPU", **fields}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "read_as"),
    [
        (stored(), PLAIN),
        (stored(lora_name=None, extra_keys=[None, None], group_idx=0, kv_cache_spec_kind="full_attention",
                kv_cache_spec_sliding_window=None, locality="LOCAL", what_comes_next=1), PLAIN._replace(group=0)),
        (stored(medium=None), PLAIN),
        (stored(kv_cache_spec_kind="mla_attention"), PLAIN),
        (stored(block_hashes=[b"\xab" * 32, b"\xcd" * 32], parent_block_hash=None),
         PLAIN._replace(names=[b"\xab" * 32, b"\xcd" * 32], parent=None)),
        (stored(block_hashes=[-7, 2**64 - 1]), PLAIN._replace(names=[-7, 2**64 - 1])),
        (["BlockStored", [7, 8], 5, TOKENS, 2], PLAIN),
        (["BlockStored", [7, 8], 5, TOKENS, 2, None], PLAIN),
        (["BlockStored", [7, 8], 5, TOKENS, 2, None, "GPU"], PLAIN),
        (["BlockStored", [7, 8], 5, TOKENS, 2, None, "GPU", None, None, 3], PLAIN._replace(group=3)),
        (["BlockStored", [7, 8], 5, [[128000, 1], [1, 255], [255, 65536], [65536, 9]], 2, None, "GPU"], PLAIN),
        ({"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 1}, Removed([7], 1)),
        ({"type": "BlockRemoved", "block_hashes": [b"x"]}, Removed([b"x"], None)),
        (["BlockRemoved", [7]], Removed([7], None)),
        (["BlockRemoved", [7], "GPU", 2], Removed([7], 2)),
        ({"type": "AllBlocksCleared"}, Cleared()),
        (["AllBlocksCleared"], Cleared()),
    ],
)  # fmt: skip
def test_every_engines_form_is_read(event: Any, read_as: Any) -> None:
    assert read_one(event) == read_as


@pytest.mark.parametrize(
    "event",
    [stored(medium="CPU"), stored(medium="CPU_PINNED"), stored(medium="STORAGE"), stored(locality="REMOTE"),
     stored(kv_cache_spec_kind="mamba"), stored(kv_cache_spec_kind="sliding_window"), stored(cache_salt="s"),
     stored(extra_keys=[["salt"], None]), stored(lora_id=3), stored(block_hashes=[], token_ids=[]),
     ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU"], ["BlockStored", [7, 8], 5, TOKENS, 2, 4],
     ["BlockStored", [7, 8], 5, TOKENS, 2, None, "GPU", {"cache_salt": "s"}],
     ["BlockRemoved", [7], "CPU"], {"type": "BlockRemoved", "block_hashes": [7], "medium": "CPU"},
     {"type": "BlockSnapshot", "medium": "GPU", "blocks": 9}, ["WhatComesNext", 1, {}]],
)  # fmt: skip
def test_what_does_not_count_is_passed_over(event: Any) -> None:
    """Other tiers, other kinds of attention, blocks that are more than their tokens, kinds not known yet."""
    assert read_one(event) is None


def test_blocks_count_up_to_the_first_that_is_more_than_its_tokens() -> None:
    assert read_one(stored(extra_keys=[None, ["image-1"]])) == PLAIN._replace(names=[7], tokens=packed(TOKENS[:2]))
    assert read_one(stored(extra_keys=[[], None])) == PLAIN


@pytest.mark.parametrize("keys", [["lora"], [{"type": "LoRAKey", "name": "lora"}]])
def test_an_adapters_name_is_no_secret(keys: list[Any]) -> None:
    assert read_one(stored(lora_id=3, lora_name="lora", extra_keys=[keys, keys])) == PLAIN._replace(adapter="lora")
    assert read_one(stored(lora_id=3, lora_name="lora", extra_keys=[[*keys, "salt"], keys])) is None


@pytest.mark.parametrize("event", [stored(token_ids=[1]), stored(block_size=0), stored(block_size=-2),
    stored(token_ids=[1, 2, -3, 4]), stored(token_ids=[1, 2, "x", 4]), stored(token_ids=[1, 2, [3, 4], 5]),
    stored(token_ids=[[], [], [], []]), stored(token_ids=[[1], {}, {}, {}]), stored(block_hashes=[[1], [2]]),
    stored(block_hashes=7), stored(extra_keys=[7, 7]), {"no": "type"}, {"type": 7}, [], [7], 7, None, "BlockStored",
    ["BlockStored"], ["BlockStored", [7]], ["BlockRemoved"], ["BlockRemoved", 7]])  # fmt: skip
def test_an_event_that_is_none_is_counted_and_the_others_count(event: Any) -> None:
    batch = read(payload(event, stored(), rank=None))
    assert batch is not None
    assert (batch.events, batch.bad, batch.rank) == ([PLAIN], 1, 0)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"{}", b"\x93\x01", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\x91" * 100_000, msgspec.msgpack.encode({"ts": 1}), msgspec.msgpack.encode([1.0]), msgspec.msgpack.encode([1, 2]),
    msgspec.msgpack.encode(["now", []]), msgspec.msgpack.encode([1.0, [], "rank"])])  # fmt: skip
def test_what_is_no_batch_is_none(data: bytes) -> None:
    assert read(data) is None


def test_deep_nesting_is_an_event_that_is_none() -> None:
    deep = b"\x93\xcb\x41\xd9\x00\x00\x00\x00\x00\x00\x91" + b"\x91" * 100_000 + b"\x01\x00"
    batch = read(deep)
    assert batch is None or batch.bad == 1


def test_an_array_that_only_claims_to_be_long_costs_nothing() -> None:
    long = b"\x92\xabBlockStored\xdd\x7f\xff\xff\xff"
    began = time.perf_counter()
    assert read(b"\x93\x01\x91" + long + b"\x00") is None
    assert time.perf_counter() - began < 0.1


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    read(data)


WORD = st.text(max_size=5)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**64 - 1) | WORD | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORD, inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(list(stored())), VALUE, st.lists(VALUE, max_size=8))
def test_any_value_can_stand_in_any_field(field: str, value: Any, others: list[Any]) -> None:
    batch = read(payload(stored(**{field: value}), ["BlockStored", *others], ["BlockRemoved", *others]))
    assert batch is not None
    for event in batch.events:
        if isinstance(event, Stored):
            assert len(event.tokens) == len(event.names) * event.size
