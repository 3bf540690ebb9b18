"""`--policy NAME` or `NAME:option=value,option=value`: who routes in a replay.

Beside the gateway's own policies there are `reference`, which knows every worker's true state (`beta`, 2), and rules of
other systems to compare with (`replay/peers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from router.contracts import Policy, PolicyTools
from router.layers import SettingsError
from router.plugins import build_policy, policy_faults, policy_names
from router.replay.peers import BoundedOptions, bounded_requests
from router.replay.reference import BETA, Reference
from router.replay.routing import MakePolicy

REFERENCE = "reference"
PEERS: dict[str, tuple[type[Any], Callable[[Any, PolicyTools], Policy]]] = {
    "bounded_requests": (BoundedOptions, bounded_requests),
}
USUAL = (REFERENCE, "prefix_cost", "prefix_bounded", "prefix_aware", "least_work", "least_outstanding", "round_robin",
         "random")  # fmt: skip


class ReferenceOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    beta: float = Field(BETA, ge=0)


class Entrant(msgspec.Struct, frozen=True):
    """One policy of a replay, under the name it was given. `make` builds it; None: the reference, with beta."""

    label: str
    make: MakePolicy | None
    beta: float = BETA

    def reference(self) -> Reference:
        return Reference(self.beta)


def names() -> list[str]:
    return [REFERENCE, *policy_names(), *PEERS]


def entrants(specs: list[str]) -> list[Entrant]:
    """Each policy once, in the order given. Raises SettingsError with every fault."""
    faults: list[str] = []
    found: list[Entrant] = []
    for spec in dict.fromkeys(specs):
        wrong, entrant = _entrant(spec)
        faults += [f"--policy {spec}: {fault}" for fault in wrong]
        if entrant is not None:
            found.append(entrant)
    if faults:
        raise SettingsError(faults)
    return found


def _entrant(spec: str) -> tuple[list[str], Entrant | None]:
    name, _, rest = spec.partition(":")
    options: dict[str, str] = {}
    for pair in rest.split(",") if rest else []:
        key, equals, value = pair.partition("=")
        if not equals:
            return [f"expected option=value after the colon, found {pair!r}"], None
        options[key.strip()] = value.strip()
    if name == REFERENCE or name in PEERS:
        return _own(spec, name, options)
    faults = policy_faults(name, options)
    if faults:
        also = ", ".join((REFERENCE, *PEERS))
        told = [fault.replace("; expected one of ", f"; expected one of {also}, ") for fault in faults]
        return [fault.removeprefix("routing.policy: ").removeprefix("routing.options.") for fault in told], None
    return [], Entrant(spec, lambda tools: build_policy(name, options, tools))


def _own(spec: str, name: str, options: dict[str, str]) -> tuple[list[str], Entrant | None]:
    """The reference and the peers, which are no policies of the gateway."""
    try:
        if name == REFERENCE:
            return [], Entrant(spec, None, ReferenceOptions.model_validate(options).beta)
        model, build = PEERS[name]
        chosen = model.model_validate(options)
    except ValidationError as wrong:
        return [_said(error) for error in wrong.errors()], None
    return [], Entrant(spec, lambda tools: build(chosen, tools))


def _said(error: Any) -> str:
    message = "there is no such option" if error["type"] == "extra_forbidden" else error["msg"]
    return f"{'.'.join(map(str, error['loc']))}: {message}"
