"""A prompt's fingerprint: one hash for each rung of its prefix, every hash chained to the one before.

Rungs are depths in bytes of the canonical prompt (`router/prompt.py`): 64, 256, then each about 15% further and at
least 256 more, and last the end of the last full 256. So a 256 KB prompt has about forty-five hashes, is read once, and
two prompts share exactly the hashes of the rungs within their common beginning. The first is an engine's typical block
of 16 tokens, so that short conversations keep their place too.

Chaining: the hash of a span is seeded with the hash before it, the first with the seed. xxHash (XXH3, 64 bits)
is the same in every process and on every machine.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from xxhash import xxh3_64_intdigest

from router.prompt import BYTES_A_TOKEN
from router.types import Fingerprint

STEP: Final = 256
GROWTH: Final = 1.15
MOST_RUNGS: Final = 64


def rung_depths(most: int = MOST_RUNGS) -> tuple[int, ...]:
    """The ladder's depths in bytes, ascending; `most` of them reach about 5 MB."""
    depths = [64, STEP]
    while len(depths) < most:
        further = int(depths[-1] * GROWTH) // STEP * STEP
        depths.append(max(further, depths[-1] + STEP))
    return tuple(depths[:most])


DEPTHS: Final = rung_depths()


def fingerprint(text: bytes, seed: int, bytes_a_token: float = BYTES_A_TOKEN) -> Fingerprint:
    """Hash a canonical prompt; its cost is bounded by one reading and `MOST_RUNGS` hashes."""
    length = len(text)
    count = bisect_right(DEPTHS, length)
    depths = DEPTHS[:count]
    last_full = length // STEP * STEP
    if count and last_full > depths[-1] and count < MOST_RUNGS:
        depths += (last_full,)
    hashes = []
    value, start, digest = seed, 0, xxh3_64_intdigest
    for depth in depths:
        value = digest(text[start:depth], value)
        hashes.append(value)
        start = depth
    whole = 0 if count or not length else xxh3_64_intdigest(text, seed)
    return Fingerprint(depths, hashes, whole, length / bytes_a_token, bytes_a_token)


def prefix_hash(text: bytes, seed: int, length: int) -> int:
    """The hash of the first `length` bytes, for policies whose key has one fixed depth."""
    return xxh3_64_intdigest(text[:length], seed)


def seed_of(*parts: str | None) -> int:
    """One seed from model, tenant, salt and ids. An absent part is not an empty one; order and borders count."""
    marked = b"".join(b"\xfe" if part is None else b"\xff" + part.encode("utf-8", "surrogatepass") for part in parts)
    return int(xxh3_64_intdigest(marked))
