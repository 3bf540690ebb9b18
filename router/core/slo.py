"""The promise on the time to first token: a fixed part, and an allowance for each token that must be computed.

The allowance counts the tokens that the best-placed worker would compute, so that a bad choice of worker does not
lengthen its own deadline.
"""

from __future__ import annotations

from router.contracts import Ask


class Slo:
    """Seconds."""

    __slots__ = ("first_token", "per_uncached_token")

    def __init__(self, first_token: float = 0.3, per_uncached_token: float = 0.0005) -> None:
        self.first_token = first_token
        self.per_uncached_token = per_uncached_token

    def allowed(self, ask: Ask) -> float:
        """Seconds to first token that keep the promise for this request."""
        prefix = ask.prefix
        held = max(ask.held.values()) if ask.held else 0
        return self.first_token + self.per_uncached_token * (prefix.tokens - held / prefix.bytes_a_token)
