"""Where settings come from: layers, merged from the weakest to the strongest, every value remembering its own.

Pure: mappings come in; a `Settings`, or a `SettingsError` with every fault at once, comes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from router.sections.part import URL_SECRET
from router.settings import Settings

PREFIX = "PREFIX_ROUTER_"
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
RAW = frozenset(("admin_token", "api_key"))  # a key of digits is no number
# What Kubernetes puts into every pod beside a Service named prefix-router; no setting has such a name.
KUBERNETES = re.compile(PREFIX + r"(PORT|PORT_\w+|SERVICE_(HOST|PORT\w*))$")
MASK = "********"
SECRETS = re.compile(r"(^|\.)(api_key|admin_token|(?<!tls\.)key|sha256)$")


class SettingsError(ValueError):
    """Every fault found, each `path: what was expected`."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = list(faults)


Layer = tuple[str, Mapping[str, Any]]


def load(
    layers: Sequence[Layer], environment: Mapping[str, str], checks: Sequence[Callable[[Settings], list[str]]] = ()
) -> tuple[Settings, dict[str, str]]:
    """Merge layers, weakest first, and validate the whole.

    Returns the settings and, by dotted path, the layer each given value came from. Raises SettingsError.
    """
    faults: list[str] = []
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    for name, layer in layers:
        _merge(merged, _filled(layer, environment, faults), name, origins)
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as wrong:
        faults += [fault(error) for error in wrong.errors()]
        raise SettingsError(faults + _further_faults(merged, wrong, checks)) from None
    for check in checks:
        faults += check(settings)
    if faults:
        raise SettingsError(faults)
    return settings, origins


def _further_faults(
    merged: dict[str, Any], wrong: ValidationError, checks: Sequence[Callable[[Settings], list[str]]]
) -> list[str]:
    """What the checks find in the rest, with what is known to be wrong left out, so that all is told at once."""
    rest = deepcopy(merged)
    for error in wrong.errors():
        place: Any = rest
        *path, last = [step for step in error["loc"] if isinstance(step, str)] or [""]
        for step in path:
            place = place.get(step, {}) if isinstance(place, dict) else {}
        if isinstance(place, dict):
            place.pop(last, None)
        if any(isinstance(step, int) for step in error["loc"]):  # one of a list: the list is left out
            rest.pop(str(error["loc"][0]), None)
    try:
        settings = Settings.model_validate(rest)
    except ValidationError:
        return []
    return [found for check in checks for found in check(settings)]


def from_environment(environment: Mapping[str, str], parse: Callable[[str], Any]) -> dict[str, Any]:
    """`PREFIX_ROUTER_LIMITS__BODY_BYTES=1` as {"limits": {"body_bytes": 1}}; `parse` reads a value (YAML)."""
    layer: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX) or KUBERNETES.match(name):
            continue
        *path, last = name[len(PREFIX) :].lower().split("__")
        place = layer
        for step in path:
            deeper = place.get(step)
            if not isinstance(deeper, dict):
                deeper = place[step] = {}
            place = deeper
        try:
            place[last] = value if last in RAW else parse(value)
        except Exception as wrong:
            raise SettingsError([f"{name}: not YAML{yaml_trouble(wrong)}"]) from None
    return layer


def yaml_trouble(wrong: Exception) -> str:
    """What is wrong and where. Never the text itself, which may be a secret."""
    problem, mark = getattr(wrong, "problem", None), getattr(wrong, "problem_mark", None)
    said = f": {problem}" if problem and "'" not in problem else ""
    return f"{said} (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else said


def effective(settings: Settings, origins: Mapping[str, str]) -> list[tuple[str, Any, str]]:
    """(path, value, layer) of every setting, secrets masked."""
    rows = []
    for path, value in _leaves(settings.model_dump(mode="json"), ""):
        shown = MASK if SECRETS.search(path) and value not in (None, [], "") else value
        if isinstance(shown, str):
            shown = URL_SECRET.sub(MASK, shown)
        origin = next((origins[p] for p in _parents(path) if p in origins), "default")
        rows.append((path, shown, origin))
    return rows


def _filled(value: Any, environment: Mapping[str, str], faults: list[str], path: str = "") -> Any:
    """The same value with every `${NAME}` read from the environment."""
    if isinstance(value, Mapping):
        return {k: _filled(v, environment, faults, f"{path}.{k}".lstrip(".")) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(v, environment, faults, f"{path}[{at}]") for at, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    missing = [name for name in VARIABLE.findall(value) if name not in environment]
    faults.extend(f"{path}: the environment has no variable {name}" for name in missing)
    return VARIABLE.sub(lambda found: environment.get(found[1], ""), value)


def _merge(into: dict[str, Any], layer: Mapping[str, Any], name: str, origins: dict[str, str], path: str = "") -> None:
    for key, value in layer.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and here != "routing.options":
            below = into.get(key)
            into[key] = dict(below) if isinstance(below, Mapping) else {}
            if not value and below is None:
                origins[here] = name
            _merge(into[key], value, name, origins, here)
        elif value is not None or key not in into:
            into[key] = value
            origins[here] = name


def fault(error: Mapping[str, Any]) -> str:
    """One fault of pydantic's, with the setting's path."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"]).lstrip(".")
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "there is no such setting"
    elif error["type"] == "tuple_type":
        message = "expected a list"  # a tuple is Python's word, not YAML's
    return f"{path}: {message}" if path else message


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for k, v in value.items() for leaf in _leaves(v, f"{path}.{k}".lstrip("."))]
    if isinstance(value, list) and value:
        return [leaf for at, v in enumerate(value) for leaf in _leaves(v, f"{path}[{at}]")]
    return [(path, value)]


def _parents(path: str) -> list[str]:
    steps = re.split(r"(?=\[)|\.", path)
    joined = [steps[0]]
    for step in steps[1:]:
        joined.append(joined[-1] + (step if step.startswith("[") else f".{step}"))
    return joined[::-1]
