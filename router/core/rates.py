"""What one caller may ask for in a minute: requests, and prompt tokens.

Each is a bucket that holds a minute's worth and fills at the rate, kept as the one number of the generic cell rate
algorithm (ITU-T I.371): the time at which it will be full again. A prompt larger than the whole bucket may go when it
is full, and is paid for afterwards. Prompt tokens are an estimate; what the worker reported corrects it.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from router.errors import RateLimited

MINUTE = 60.0
MOST_ACCOUNTS = 10_000  # the one that asked longest ago is forgotten first
EPSILON = 1e-6  # seconds; sums of floats drift


class Rate(msgspec.Struct, frozen=True):
    """Of one kind, a minute; None: without limit."""

    requests: float | None = None
    tokens: float | None = None

    def __bool__(self) -> bool:
        return self.requests is not None or self.tokens is not None


class Bucket:
    """`full_at`: when it will be full again, if nothing more is taken."""

    __slots__ = ("full_at", "per_minute")

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self.full_at = float("-inf")

    def lacking(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; 0 where it may now."""
        most = max(self.per_minute, 1.0)
        spare = (most - min(amount, most)) * MINUTE / self.per_minute
        short = self.full_at - now - spare
        return short if short > EPSILON else 0.0

    def take(self, amount: float, now: float) -> None:
        """Also less than nothing: it was too much before. It never holds more than a minute's worth."""
        self.full_at = max(self.full_at, now) + amount * MINUTE / self.per_minute


class Account:
    """One caller's."""

    __slots__ = ("rate", "requests", "tokens")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.requests = Bucket(rate.requests) if rate.requests is not None else None
        self.tokens = Bucket(rate.tokens) if rate.tokens is not None else None

    def request(self, now: float) -> None:
        """One more request. Raises RateLimited, and then nothing was taken."""
        if self.requests is not None:
            seconds = self.requests.lacking(1.0, now)
            if seconds:
                raise RateLimited(f"More than {self.rate.requests:g} requests a minute.", retry_after=seconds)
            self.requests.take(1.0, now)

    def prompt(self, tokens: float, now: float) -> None:
        """Its prompt. Raises RateLimited; then the request is given back too."""
        if self.tokens is None:
            return
        seconds = self.tokens.lacking(tokens, now)
        if seconds:
            if self.requests is not None:
                self.requests.take(-1.0, now)
            raise RateLimited(f"More than {self.rate.tokens:g} prompt tokens a minute.", retry_after=seconds)
        self.tokens.take(tokens, now)

    def correct(self, tokens: float, now: float) -> None:
        """So many more prompt tokens than were taken, or fewer."""
        if self.tokens is not None:
            self.tokens.take(tokens, now)


class Accounts:
    """Every caller's, those that asked last at the end; a bounded number."""

    def __init__(self, most: int = MOST_ACCOUNTS) -> None:
        self.most = most
        self._accounts: dict[Hashable, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, caller: Hashable, rate: Rate) -> Account:
        account = self._accounts.pop(caller, None)
        if account is None or account.rate != rate:
            account = Account(rate)
            if len(self._accounts) >= self.most:
                del self._accounts[next(iter(self._accounts))]
        self._accounts[caller] = account
        return account
