"""The nouns of the house. Frozen: whoever holds one may keep it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from router.address import Address, parse_address
from router.asks import Fingerprint as Fingerprint
from router.asks import Key as Key


class WorkerState(StrEnum):
    """What is known of a worker's health; `core/health.py` has the table of moves between them."""

    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"
    DOWN = "down"
    TRIAL = "trial"
    DRAINING = "draining"


class Reason:
    """Why a worker was chosen: the value of `x-router-reason`. Plain text, since an enum's hash is slow."""

    HOME: Final = "home"
    WARM: Final = "warm"
    SPILL: Final = "spill"
    COLD: Final = "cold"
    SESSION: Final = "session"
    LOAD: Final = "load"
    RETRY: Final = "retry"


class KvSource(msgspec.Struct, frozen=True):
    """Where a worker publishes its KV cache's events over ZMQ. `bind`: it connects to us, so we listen there."""

    endpoint: str
    bind: bool = False
    topic: str = ""


class WorkerTls(msgspec.Struct, frozen=True):
    """PEM files: whom a worker's certificate is checked against, and what the gateway shows of itself."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A place that serves tokens, as it was configured or discovered."""

    id: str
    address: Address
    dialect: str = "auto"
    api_key: str | None = None
    weight: float = 1.0
    max_in_flight: int | None = None
    models: tuple[str, ...] | None = None
    labels: Mapping[str, str] = {}
    kv_events: KvSource | None = None
    max_connections: int | None = None
    tls: WorkerTls | None = None

    def __repr__(self) -> str:
        return f"<Worker {self.id} at {self.address.url}>"


def worker_from_url(url: str, **fields: object) -> Worker:
    """A worker with the id `host:port` unless `id` is among the fields; ValueError for a bad URL."""
    address = parse_address(url)
    given = {name: value for name, value in fields.items() if value is not None}
    return Worker(**{"id": address.netloc, **given, "address": address})  # type: ignore[arg-type]


class News(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one process tells the others of a request it sent to `worker`: a prompt of `tokens`, `computed` of them to
    compute there, and the hashes of its prefix, which the worker now holds."""

    worker: str
    tokens: float
    computed: float
    hashes: list[int]
