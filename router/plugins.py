"""A plug's file name is its registration: `prefix_cost` is `router/policies/prefix_cost.py`, `my.module` an outsider's.

A policy module has `Options` and `build(options, tools)`; a dialect module has `build()`, a source's `build(options)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from router import dialects, discovery, policies
from router.contracts import Dialect, Policy, PolicyTools, Source
from router.settings import Settings


def policy_names() -> list[str]:
    return sorted(module.name for module in iter_modules(policies.__path__))


def dialect_names() -> list[str]:
    return sorted(module.name for module in iter_modules(dialects.__path__) if not module.name.startswith("_"))


def policy_faults(name: str, options: Mapping[str, Any]) -> list[str]:
    """What is wrong with this policy's name or options, each fault with the setting's path."""
    try:
        _policy_options(name, options)
    except ImportError as wrong:
        known = ", ".join(policy_names())
        return [f"routing.policy: {name!r} is no policy ({wrong}); expected one of {known}, or a module's dotted path"]
    except ValidationError as wrong:
        return [
            f"routing.options.{'.'.join(map(str, error['loc']))}: "
            + ("there is no such option" if error["type"] == "extra_forbidden" else error["msg"])
            for error in wrong.errors()
        ]
    return []


def missing_extras(settings: Settings) -> list[str]:
    """Settings whose library is not installed, each with the extra that brings it."""
    wanted = [("share", "redis", "redis")] if settings.share else []
    wanted += [
        (f"workers[{at}].kv_events", "zmq", "events") for at, each in enumerate(settings.workers) if each.kv_events
    ]
    kubernetes = settings.discovery.kubernetes
    if kubernetes is not None:
        wanted.append(("discovery.kubernetes", "kubernetes", "kubernetes"))
        wanted += [("discovery.kubernetes.worker.kv_events", "zmq", "events")] if kubernetes.worker.kv_events else []
    return [
        f"{path}: needs a library that is not installed: pip install 'prefix-router[{extra}]'"
        for path, module, extra in wanted
        if find_spec(module) is None
    ]


def build_policy(name: str, options: Mapping[str, Any], tools: PolicyTools) -> Policy:
    module, chosen = _policy_options(name, options)
    policy: Policy = module.build(chosen, tools)
    return policy


def build_source(name: str, options: Any) -> Source:
    """The source that `discovery` names so, with its settings."""
    source: Source = import_module(f"{discovery.__name__}.{name}").build(options)
    return source


def build_dialects() -> list[Dialect]:
    return [import_module(f"{dialects.__name__}.{name}").build() for name in dialect_names()]


def _policy_options(name: str, options: Mapping[str, Any]) -> tuple[ModuleType, Any]:
    """Raises ImportError for what is no policy, ValidationError for bad options."""
    if "." not in name and name not in policy_names():
        raise ImportError("there is none of that name")
    try:
        module = import_module(name if "." in name else f"{policies.__name__}.{name}")
    except Exception as wrong:  # an outsider's module may fail in any way
        raise ImportError(f"its module cannot be imported: {wrong!r}") from wrong
    if not hasattr(module, "Options") or not callable(getattr(module, "build", None)):
        raise ImportError("its module has no Options and build")
    return module, module.Options.model_validate(dict(options))
