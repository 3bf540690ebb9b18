"""The model list: what workers published, joined and cached, so that it is answered at once while a worker hangs."""

from __future__ import annotations

from typing import Any

from router.core.fleet import Fleet, Seat


class ModelCatalogue:
    """Remembers each worker's own entries, with its extra fields. Entries of workers that left are dropped."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._entries: dict[str, list[dict[str, Any]]] = {}

    def learn(self, seat: Seat, entries: list[dict[str, Any]]) -> None:
        """A worker published these models; none at all means that it serves any."""
        self._entries[seat.id] = entries
        owner = entries[0].get("owned_by") if entries else None
        seat.engine = owner if isinstance(owner, str) else None
        self._fleet.discover(seat, frozenset(entry["id"] for entry in entries) or None)

    def forget(self, worker_id: str) -> None:
        self._entries.pop(worker_id, None)

    def listed(self) -> list[dict[str, Any]]:
        """One entry a model that some ready worker serves: the first such worker's own, in the order of their names."""
        models: dict[str, dict[str, Any]] = {}
        for seat in sorted(self._fleet.ready(), key=lambda seat: seat.id):
            own = {entry["id"]: entry for entry in self._entries.get(seat.id, ())}
            for name in sorted(seat.models or ()):
                models.setdefault(
                    name, own.get(name, {"id": name, "object": "model", "created": 0, "owned_by": "prefix-router"})
                )
        return [models[name] for name in sorted(models)]
