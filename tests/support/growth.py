"""How much a gateway remembers: the length of every container that can be reached from it."""

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

CONTAINERS = (dict, list, set, frozenset, deque, Counter, OrderedDict, defaultdict)


def sizes(root: object) -> dict[str, int]:
    """By the way to it: `Gateway.house.mind.holders._young`. Only objects of `router` are entered."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    left: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while left:
        way, thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            found[way] = found.get(way, 0) + len(thing)
            values = [*thing, *thing.values()] if isinstance(thing, dict) else list(thing)
            left += [(f"{way}[]", value) for value in values]
        elif not isinstance(thing, type) and type(thing).__module__.startswith("router."):
            left += [(f"{way}.{name}", value) for name, value in _attributes(thing)]
    return found


def _attributes(thing: object) -> list[tuple[str, Any]]:
    names = set(getattr(thing, "__dict__", ()))
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names |= {slots} if isinstance(slots, str) else set(slots)
    names |= set(getattr(type(thing), "__struct_fields__", ()))
    return [(name, getattr(thing, name)) for name in names if hasattr(thing, name)]


def grown(before: dict[str, int], after: dict[str, int], *, factor: float = 1.2, slack: int = 8) -> dict[str, str]:
    """What is larger than before by more than this."""
    return {
        way: f"{before.get(way, 0)} -> {size}"
        for way, size in after.items()
        if size > before.get(way, 0) * factor + slack
    }
