"""The roster: the sources' latest sets joined, with what admins added and removed on top. Pure but for being told.

An addition over an id that is there updates it. A removal holds until the worker is added again.
"""

from __future__ import annotations

from router.types import Worker

MOST_REMOVED = 1000  # remembered, though no source reports them


class Roster:
    def __init__(self) -> None:
        self._sets: dict[object, tuple[Worker, ...]] = {}
        self._added: dict[str, Worker] = {}
        self._removed: dict[str, None] = {}  # in the order in which they went

    def report(self, source: object, workers: tuple[Worker, ...]) -> None:
        """This source's complete set now."""
        self._sets[source] = workers

    def add(self, worker: Worker) -> None:
        self._added[worker.id] = worker
        self._removed.pop(worker.id, None)

    def remove(self, worker_id: str) -> None:
        self._added.pop(worker_id, None)
        self._removed[worker_id] = None
        if len(self._removed) > MOST_REMOVED:
            self._forget()

    def workers(self) -> tuple[Worker, ...]:
        """The whole set, one worker an id."""
        joined = {worker.id: worker for workers in self._sets.values() for worker in workers}
        joined.update(self._added)
        return tuple(worker for name, worker in joined.items() if name not in self._removed)

    def _forget(self) -> None:
        """Of the removals that no source contradicts, the older half."""
        reported = {worker.id for workers in self._sets.values() for worker in workers}
        for name in [name for name in self._removed if name not in reported][: MOST_REMOVED // 2]:
            del self._removed[name]
