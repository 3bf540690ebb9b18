"""Where a request would go now, and why: the same mind, without the last step."""

from __future__ import annotations

from typing import Any

import msgspec

from router.contracts import Ranked
from router.ending import shown_model
from router.errors import InvalidApiKey
from router.house import House
from router.proxy.headers import Headers, take_in

GUESSES = (("messages", "/v1/chat/completions"), ("prompt", "/v1/completions"), ("input", "/v1/embeddings"))
ANY_PATH = "/v1/chat/completions"


def explain(house: House, body: bytes, path: str | None, headers: Headers) -> dict[str, Any]:
    """The decision as an object. Raises the refusal that the request itself would get."""
    path = path or guess_path(body)
    dialect = (house.paths.get(path.encode()) or house.paths[ANY_PATH.encode()]).dialect
    prompt = dialect.read(path, body)
    model = house.model(prompt)
    mind = house.mind
    now = house.clock()
    caller = take_in(headers)
    if house.salts_tenants:
        caller.tenant = _tenant(house, headers)
    ask = mind.weigh(prompt, caller, body, native=dialect.native, count=False)
    ranked = mind.rank(ask, model, now)
    choice = mind.choose(ask, model, (), now)
    others = [each.worker for each in ranked if choice is None or each.worker != choice.seat.id]
    return {
        "chosen": choice.seat.id if choice else None,
        "reason": choice.reason if choice else None,
        "policy": house.policy_name,
        "model": model and shown_model(model),
        "key_depth": ask.key.depth,
        "hot_depth": ask.key.hot_depth,
        "home": house.fleet.ring.home(ask.key.value) if prompt.text else None,
        "prompt_tokens": int(ask.prefix.tokens),
        "candidates": [_candidate(house, each, now) for each in ranked],
        "runner_up": others[0] if others else None,
    }


def _tenant(house: House, headers: Headers) -> str | None:
    """The tenant whose key is shown, else the only one there is."""
    try:
        return house.keys.tenant(headers)
    except InvalidApiKey:
        tenants = {key.tenant for key in house.settings.auth.api_keys}
        return tenants.pop() if len(tenants) == 1 else None


def guess_path(body: bytes) -> str:
    """The API path that a body of this shape is meant for."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ANY_PATH
    return next((path for field, path in GUESSES if field in fields), ANY_PATH)


def _candidate(house: House, ranked: Ranked, now: float) -> dict[str, Any]:
    seat = house.fleet.seats[ranked.worker]
    return {
        "worker": seat.id,
        "state": seat.health.state.value,
        "in_flight": seat.load.in_flight,
        "wait_tokens": round(seat.wait(now), 1),
        "expected_cached_tokens": round(ranked.expected),
        "cost": round(ranked.cost, 2),
    }
