"""Guesses from the row's own text: what followed the last time the same few tokens stood there.

Prompt lookup decoding (Saxena 2023), as one chain. Two tokens are the least that must agree. A chain that reaches the
end of the text goes on with itself, as an overlapping copy does in LZ77 (Ziv and Lempel 1977): a text that repeats
itself is guessed to repeat itself further.
"""

from collections.abc import Sequence

LONGEST_MATCH = 3


class Lookup:
    """An index over a growing text; a token costs a few dictionary entries."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._text: list[int] = []
        self._after: list[dict[tuple[int, ...], int]] = [{} for _ in range(LONGEST_MATCH - 1)]
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        text = self._text
        for token in ids:
            text.append(token)
            end = len(text)
            for size, after in enumerate(self._after, 2):
                if end >= size:
                    after[tuple(text[end - size : end])] = end

    def find(self, root: int, most: int) -> tuple[list[int], int]:
        """What may follow the text and then `root`: `most` tokens, and how many agreed; none and 0 if too few did."""
        text = self._text
        for size in range(min(LONGEST_MATCH, len(text) + 1), 1, -1):
            at = self._after[size - 2].get((*text[len(text) - size + 1 :], root))
            if at is not None:
                return self._copied(at, root, most), size
        return [], 0

    def _copied(self, at: int, root: int, most: int) -> list[int]:
        """`most` tokens from place `at` of the text, the root and the copy itself."""
        chain = self._text[at : at + most]
        if len(chain) < most:
            chain.append(root)
        for place in range(most - len(chain)):
            chain.append(chain[place])
        return chain
