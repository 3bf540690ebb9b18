"""The shadow policy: asked for every request, obeyed in none.

Both choices are measured alike, by the tokens until the first token: what waits there, and what must be computed there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.contracts import Ask
from router.core.choose import Choice, choose
from router.core.fleet import Seat
from router.events import Shadowed

if TYPE_CHECKING:
    from router.house import House

log = logging.getLogger("router")


def ask_shadow(house: House, ask: Ask, choice: Choice, model: str | None, now: float) -> None:
    """What would it have chosen, before the choice that was made is charged?"""
    fleet = house.fleet
    if house.shadow is None:
        return
    try:
        other = choose(house.shadow, ask, fleet.candidates(model), fleet.seats, (), now)
    except Exception:  # an outsider's policy may fail in any way, and no request by it
        log.warning("routing.shadow: %s failed", house.shadow_name, exc_info=True)
        return
    if other is not None:
        cost, made = _tokens(ask, other.seat, now), _tokens(ask, choice.seat, now)
        house.emit(Shadowed(house.shadow_name, other.seat is not choice.seat, cost, made))


def _tokens(ask: Ask, seat: Seat, now: float) -> float:
    prefix = ask.prefix
    return seat.wait(now) + prefix.tokens - ask.held.get(seat.id, 0) / prefix.bytes_a_token
