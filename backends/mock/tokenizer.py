"""Reversible tokens: pieces of at most four bytes, whose ids *are* their bytes.

Text is cut at every newline and otherwise in fours, so English is about four characters a token and equal beginnings
give equal ids. An id is the piece's bytes as a number with a leading one (so `b"a"` and `b"\\0a"` differ): nothing
has to be remembered to turn ids back into text, in any process, and no table grows. Characters beyond ASCII are never
split.

Turn markers are ids below 256, which no text can produce. Each text is cut on its own between markers: the answer of
one turn has the same ids as a part of the next turn's prompt, which is what makes generated blocks hit.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from backends.contract import Chat

PIECES = re.compile(
    rb"\n|[^\n\x80-\xff]{1,4}"
    rb"|[\xc0-\xdf][\x80-\xbf](?:[\xc0-\xdf][\x80-\xbf])?|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf7][\x80-\xbf]{3}"
)
MARKERS = {
    "begin": 1,
    "end": 2,
    "tools": 3,
    "role": 4,
    "system": 5,
    "developer": 6,
    "user": 7,
    "assistant": 8,
    "tool": 9,
}
NAMES = {value: f"<|{key}|>" for key, value in MARKERS.items()}
CACHED_LENGTH = range(512, 65_537)
"""Lengths of text worth remembering: system texts recur, short turns are quick to cut, and the memory stays bounded."""


class MockTokenizer:
    def __init__(self) -> None:
        self._cut_again = lru_cache(maxsize=64)(cut)

    def encode(self, text: str) -> list[int]:
        return list(self._ids(text))

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        if token in NAMES:
            return NAMES[token].encode()
        raw = token.to_bytes((token.bit_length() + 7) // 8 or 1, "big")
        return raw[1:] if raw[0] == 1 and 2 <= len(raw) <= 5 else "\ufffd".encode()

    def chat(self, chat: Chat, *, open_answer: bool = True, open_turn: bool = False) -> list[int]:
        """Tools, then the turns in their order, each between a marker of its role and the end marker."""
        ids = [MARKERS["begin"]]
        for tool in chat.tools:
            ids += (MARKERS["tools"], *self._ids(tool), MARKERS["end"])
        for turn in chat.turns:
            marker = MARKERS.get(turn.role)
            ids += (MARKERS["role"], *cut(turn.role + "\n")) if marker is None else (marker,)
            ids += self._ids(turn.text)
            ids.append(MARKERS["end"])
        if open_turn:
            ids.pop()
        elif open_answer:
            ids.append(MARKERS["assistant"])
        return ids

    def _ids(self, text: str) -> tuple[int, ...]:
        return self._cut_again(text) if len(text) in CACHED_LENGTH else cut(text)


def cut(text: str) -> tuple[int, ...]:
    """The ids of a text. Lone surrogates, which JSON can carry, are cut like any other character."""
    return tuple(
        [int.from_bytes(b"\1" + piece, "big") for piece in PIECES.findall(text.encode("utf-8", "surrogatepass"))]
    )
