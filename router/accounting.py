"""What a request takes of its caller's rates: itself, its prompt by estimate, in the end what the worker reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.origin import network_of
from router.core.rates import Account
from router.errors import RateLimited
from router.events import Limited

if TYPE_CHECKING:
    from router.journey import Journey


def count_request(journey: Journey) -> Account | None:
    """One more of this caller: its key, or its network where no keys are asked for. Raises RateLimited."""
    house, key = journey.house, journey.key
    rate = house.usual_rate if key is None or key.rate is None else key.rate
    if not rate:
        return None
    account = house.accounts.of(network_of(journey.client) if key is None else key.digest, rate)
    try:
        account.request(house.clock())
    except RateLimited:
        house.emit(Limited("requests"))
        raise
    return account


def count_prompt(journey: Journey, account: Account) -> None:
    """Its prompt. Raises RateLimited, and then nothing is taken."""
    house, ask = journey.house, journey.ask
    assert ask is not None
    try:
        account.prompt(ask.prefix.tokens, house.clock())
    except RateLimited:
        house.emit(Limited("prompt_tokens"))
        raise
    journey.account = account


def settle(journey: Journey, reported: int | None, now: float) -> None:
    """The request is over. A prompt that no worker was sent is given back."""
    account, ask = journey.account, journey.ask
    if account is None or ask is None:
        return
    taken = ask.prefix.tokens
    used = 0.0 if not journey.attempts else taken if reported is None else reported
    if used != taken:
        account.correct(used - taken, now)
