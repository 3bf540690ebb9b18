"""A prompt's text, or what stands for it: real text, blocks that only have names, or the hashes of a log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

from xxhash import xxh3_128_hexdigest

from router.core.fingerprint import fingerprint
from router.prompt import BYTES_A_TOKEN
from router.replay.item import BLOCK
from router.types import Fingerprint

SEED = 0
HEAD = 65_536  # bytes: the most that a policy's own key may read
CHARACTERS = int(BYTES_A_TOKEN)
BLOCK_BYTES = BLOCK * CHARACTERS
MOST_FILLERS = 50_000  # 100 MB
DIGITS = 32  # of the digest that fills a block


@lru_cache(MOST_FILLERS)
def filler(label: str, length: int = BLOCK_BYTES) -> bytes:
    """Text that names `label`, and is another's from its first characters on."""
    digits = xxh3_128_hexdigest(label.encode()).encode()
    return (digits * (length // DIGITS + 1))[:length]


class BlockWords:
    """Of a prompt whose blocks have only names: four characters a token, equal blocks in equal text."""

    __slots__ = ("_labels", "_names", "length")

    def __init__(self, names: Sequence[int], labels: Sequence[str], tokens: int) -> None:
        self._names = names
        self._labels = labels  # of every name there is
        self.length = tokens * CHARACTERS

    def fingerprint(self) -> Fingerprint:
        return fingerprint(self[: self.length], SEED)

    def head(self) -> bytes:
        return self[:HEAD]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, span: slice) -> bytes:
        start, end, _ = span.indices(self.length)
        first = start // BLOCK_BYTES
        names = self._names[first : (end + BLOCK_BYTES - 1) // BLOCK_BYTES]
        text = b"".join([filler(self._labels[name]) for name in names])
        return text[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]


class TextWords:
    """Real text. With `ends` (bytes up to the end of each stand-in token, of which each counts for `ratio` true ones)
    the router is told true tokens: lengths and depths are then four bytes for each."""

    __slots__ = ("_ends", "_ratio", "_text", "length")

    def __init__(self, text: bytes, ends: Sequence[int] | None = None, ratio: float = 1.0) -> None:
        self._text = text
        self._ends = ends
        self._ratio = ratio
        self.length = len(text) if ends is None else self._told(len(ends))

    def fingerprint(self) -> Fingerprint:
        found = fingerprint(self._text, SEED)
        if self._ends is None:
            return found
        depths = tuple(self._told(bisect_right(self._ends, depth)) for depth in found.depths)
        return Fingerprint(depths, found.hashes, found.whole, self.length / BYTES_A_TOKEN)

    def head(self) -> bytes:
        return self._text[: HEAD * 4]

    def __len__(self) -> int:
        """0 where the router is told true tokens: the depths are then no places in the text."""
        return len(self._text) if self._ends is None else 0

    def __getitem__(self, span: slice) -> bytes:
        return self._text[span]

    def _told(self, tokens: int) -> int:
        return round(tokens * self._ratio) * CHARACTERS


class HashedWords:
    """Of a prompt that a log knows by the hashes of its rungs."""

    __slots__ = ("_prefix", "length")

    def __init__(self, prefix: Fingerprint) -> None:
        self._prefix = prefix
        self.length = int(prefix.tokens * BYTES_A_TOKEN)

    def fingerprint(self) -> Fingerprint:
        return self._prefix

    def __len__(self) -> int:
        """A log has no text."""
        return 0

    def __getitem__(self, span: slice) -> bytes:
        return b""

    def head(self) -> bytes:
        """Each rung's span filled with its hash, so that equal rungs are equal text."""
        spans, start = [], 0
        for value, depth in zip(self._prefix.hashes, self._prefix.depths, strict=True):
            if start >= HEAD:
                break
            spans.append(filler(str(value), depth - start))
            start = depth
        return b"".join(spans) or filler(str(self._prefix.whole), self.length)
