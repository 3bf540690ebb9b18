"""The promise on the time to first token: a fixed part, and an allowance for each token that must be computed.

The allowance counts the tokens that the best-placed worker would compute, so that a bad choice of worker does not
lengthen its own deadline.
"""

from __future__ import annotations

import msgspec

from router.contracts import Ask


class Slo(msgspec.Struct, frozen=True):
    """Seconds."""

    first_token: float = 0.3
    per_uncached_token: float = 0.0005

    def allowed(self, ask: Ask) -> float:
        """Seconds to first token that keep the promise for this request."""
        prefix = ask.prefix
        held = max(ask.held.values()) if ask.held else 0
        return self.first_token + self.per_uncached_token * (prefix.tokens - held / prefix.bytes_a_token)
