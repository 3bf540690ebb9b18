"""KV-cache events as engines write them, read into what counts here.

A message's payload is the MessagePack array `[timestamp, [event...], rank]`. An event is a map with a `type` (vLLM
since 0.19 or so) or an array with its name first (vLLM before, SGLang):

    BlockStored   block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys, ...
    BlockRemoved  block_hashes, medium
    AllBlocksCleared

Only blocks on the GPU count, of the kind of attention that keeps every token. Blocks that stand for more than their
tokens are left out with all that follow them: images, salts and prompt embeddings (`extra_keys`), adapters without a
name. SGLang with speculative decoding gives each token as a pair with the next; its first is taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from router.core.blocks import Name, packed

FULL = frozenset((None, "full_attention", "mla_attention"))
HERE = frozenset((None, "GPU"))


class Stored(NamedTuple):
    names: Sequence[Name]
    parent: Name | None
    tokens: array[int]
    size: int
    adapter: str | None
    group: int | None


class Removed(NamedTuple):
    names: Sequence[Name]
    group: int | None


class Cleared(NamedTuple):
    """Nothing is there any more."""


Event = Stored | Removed | Cleared


class Batch(NamedTuple):
    """rank: which of a worker's engines, that number their messages each for itself; bad: events that were none"""

    rank: int
    events: list[Event]
    bad: int


class _Batch(msgspec.Struct, array_like=True):
    timestamp: float
    events: list[msgspec.Raw]
    rank: int | None = None


class _Map(msgspec.Struct):
    type: str
    block_hashes: list[Name] = []
    parent_block_hash: Name | None = None
    token_ids: list[Any] = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: Any = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None
    cache_salt: Any = None


class _Tagged(msgspec.Struct, array_like=True):
    type: str


class _StoredArray(msgspec.Struct, array_like=True):
    type: str
    block_hashes: list[Name]
    parent_block_hash: Name | None
    token_ids: list[Any]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: Any = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None
    cache_salt: Any = None


class _RemovedArray(msgspec.Struct, array_like=True):
    type: str
    block_hashes: list[Name]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


_batch = msgspec.msgpack.Decoder(_Batch).decode
_map = msgspec.msgpack.Decoder(_Map).decode
_tagged = msgspec.msgpack.Decoder(_Tagged).decode
_stored = msgspec.msgpack.Decoder(_StoredArray).decode
_removed = msgspec.msgpack.Decoder(_RemovedArray).decode
WRONG = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, TypeError, ValueError, ArithmeticError,
         LookupError)  # fmt: skip


def read(payload: bytes) -> Batch | None:
    """None for what is no batch. Takes any bytes."""
    try:
        raw = _batch(payload)
    except WRONG:
        return None
    events: list[Event] = []
    bad = 0
    for each in raw.events:
        try:
            event = _event(each)
        except WRONG:
            bad += 1
            continue
        if event is not None:
            events.append(event)
    return Batch(raw.rank or 0, events, bad)


def _event(raw: msgspec.Raw) -> Event | None:
    """None for what does not count here. Raises one of `WRONG` for what is no event."""
    told = _read(raw)
    if told.type == "AllBlocksCleared":
        return Cleared()
    if isinstance(told, _Tagged):
        return None  # a kind that is not known
    if told.medium not in HERE or told.locality == "REMOTE":
        return None
    if isinstance(told, _RemovedArray) or told.type == "BlockRemoved":
        return Removed(told.block_hashes, told.group_idx)
    if told.type != "BlockStored" or told.kv_cache_spec_kind not in FULL:
        return None
    size, names = told.block_size, told.block_hashes
    if size <= 0 or len(told.token_ids) != len(names) * size:
        raise ValueError("the tokens are not those of so many blocks")
    plain = _plain(told)
    if not plain:
        return None
    tokens = _flat(told.token_ids[: plain * size])
    adapter = told.lora_name if isinstance(told.lora_name, str) else None
    return Stored(names[:plain], told.parent_block_hash, tokens, size, adapter, told.group_idx)


def _read(raw: msgspec.Raw) -> _Map | _Tagged | _StoredArray | _RemovedArray:
    first = bytes(raw)[:1]
    if first and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)):
        return _map(raw)
    tagged = _tagged(raw)
    if tagged.type == "BlockStored":
        return _stored(raw)
    return _removed(raw) if tagged.type == "BlockRemoved" else tagged


def _plain(told: _Map | _StoredArray) -> int:
    """How many of these blocks, from the first, stand for their tokens and a named adapter and nothing else."""
    adapter = told.lora_name
    metadata = adapter is not None and not isinstance(adapter, str)  # SGLang's, in the place of a name: a salt
    if metadata or told.cache_salt is not None or (told.lora_id is not None and adapter is None):
        return 0
    if told.extra_keys is None:
        return len(told.block_hashes)
    for at, keys in enumerate(told.extra_keys):
        if any(not _names(key, adapter) for key in keys or ()):
            return at
    return len(told.block_hashes)


def _names(key: Any, adapter: str | None) -> bool:
    """An extra key that only names the adapter, as text or in an object of its own."""
    return adapter is not None and (key == adapter or (isinstance(key, dict) and adapter in key.values()))


def _flat(tokens: list[Any]) -> array[int]:
    if tokens and isinstance(tokens[0], list):
        tokens = [pair[0] for pair in tokens]
    return packed(tokens)
