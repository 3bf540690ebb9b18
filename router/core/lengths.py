"""How many bytes of a prompt make a token, learnt for each model from what its workers report.

No tokenizer is needed: only ratios matter to a decision, and four characters of English are about one token. What
workers report makes the estimate true for other languages, for code, and for a model's own vocabulary.
"""

from __future__ import annotations

from typing import Final

from router.prompt import BYTES_A_TOKEN

Kind = tuple[str | None, bool]  # the model, and whether the prompt came as token ids
MOST_KINDS: Final = 256
LONGEST_NAME: Final = 256
MEMORY: Final = 50_000.0  # tokens: older reports fade beyond that many
LEAST: Final = 0.5  # bytes a token; beyond, something else than text was counted, such as an image
MOST: Final = 16.0


class Lengths:
    """Learnt bytes a token. Bounded; a kind that nothing was reported of has the rule of thumb."""

    def __init__(self) -> None:
        self._ratios: dict[Kind, float] = {}
        self._seen: dict[Kind, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def bytes_a_token(self, kind: Kind) -> float:
        return self._ratios.get(kind, BYTES_A_TOKEN)

    def learn(self, kind: Kind, length: int, tokens: int) -> None:
        """A prompt of `length` bytes had `tokens` tokens. Long prompts count for more: they are what matters."""
        if tokens <= 0 or not LEAST <= length / tokens <= MOST or len(kind[0] or "") > LONGEST_NAME:
            return
        if kind not in self._seen and len(self._seen) >= MOST_KINDS:
            self._seen.clear()
            self._ratios.clear()
        bytes_seen, tokens_seen = self._seen.get(kind, (BYTES_A_TOKEN * 100, 100.0))  # the rule of thumb, lightly held
        bytes_seen, tokens_seen = bytes_seen + length, tokens_seen + tokens
        if tokens_seen > MEMORY:
            fade = MEMORY / tokens_seen
            bytes_seen, tokens_seen = bytes_seen * fade, tokens_seen * fade
        self._seen[kind] = bytes_seen, tokens_seen
        self._ratios[kind] = bytes_seen / tokens_seen
