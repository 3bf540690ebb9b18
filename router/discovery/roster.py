"""The roster: the sources' latest sets joined, with what admins added and removed on top. Pure but for being told.

An addition over an id that is there updates it. A removal holds until the worker is added again.
"""

from __future__ import annotations

from router.types import Worker


class Roster:
    def __init__(self) -> None:
        self._sets: dict[object, tuple[Worker, ...]] = {}
        self._added: dict[str, Worker] = {}
        self._removed: set[str] = set()

    def report(self, source: object, workers: tuple[Worker, ...]) -> None:
        """This source's complete set now."""
        self._sets[source] = workers

    def add(self, worker: Worker) -> None:
        self._added[worker.id] = worker
        self._removed.discard(worker.id)

    def remove(self, worker_id: str) -> None:
        self._added.pop(worker_id, None)
        self._removed.add(worker_id)

    def workers(self) -> tuple[Worker, ...]:
        """The whole set, one worker an id."""
        joined = {worker.id: worker for workers in self._sets.values() for worker in workers}
        joined.update(self._added)
        return tuple(worker for name, worker in joined.items() if name not in self._removed)
