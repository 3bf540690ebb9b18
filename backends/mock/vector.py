"""Invented embeddings: small unit vectors, a pure function of seed and ids."""

from collections.abc import Sequence

VECTOR_SIZE = 16
GOLDEN = 0x9E3779B97F4A7C15
"""The multiplier of Fibonacci hashing (Knuth): it spreads neighbouring ids over all the top bits."""


def vector_of(ids: Sequence[int], seed: int) -> list[float]:
    """A unit vector that depends on every id: equal texts are equal, and each shared token brings two texts nearer."""
    sums = [0.0] * VECTOR_SIZE
    for token in ids:
        mixed = ((token ^ seed) * GOLDEN) & (2**64 - 1)
        sums[mixed >> 60] += 1.0 if mixed & (1 << 40) else -1.0
    length = sum(value * value for value in sums) ** 0.5 or 1.0
    return [value / length for value in sums]
