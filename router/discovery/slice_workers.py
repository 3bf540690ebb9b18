"""From EndpointSlices to workers. Pure: the same slices in any order make the same workers.

A worker is named after its pod, so that one that moves to another slice, or a StatefulSet's that comes back at another
address, keeps its place on the ring. Pods that end or are not ready are left out: they get no new requests, and their
streams finish. Of a dual-stack Service one family counts for all, IPv4 where there are such slices, since a worker that
changed its address for a moment would lose what is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from router.discovery.slices import Endpoint, Slice
from router.sections.discovery import Kubernetes
from router.types import KvSource, Worker, worker_from_url

SERVICE = "kubernetes.io/service-name"  # the label that leads from a slice to its Service


class Place(NamedTuple):
    """pod: its name, or None for what is no pod's"""

    pod: str | None
    address: str
    port: int
    zone: str | None
    node: str | None


class Found(NamedTuple):
    """remarks: what was left out though somebody may expect it, each in words fit for a log"""

    workers: tuple[Worker, ...]
    remarks: tuple[str, ...]


class SliceWorkers:
    """Makes workers as these settings want them. A place that stays is the same worker object."""

    def __init__(self, settings: Kubernetes) -> None:
        self._settings = settings
        self._common: dict[str, Any] = settings.worker.fields()
        self._made: dict[Place, Worker] = {}

    def found(self, slices: Iterable[Slice]) -> Found:
        remarks: list[str] = []
        places: dict[str, Place] = {}
        for each in _of_one_family(sorted(slices, key=_age), remarks):
            port = self._port(each, remarks)
            if port is None:
                continue
            for endpoint in each.endpoints or ():
                if endpoint.addresses and is_usable(endpoint):
                    place = _place(endpoint, port)
                    places[place.pod or f"{place.address}:{place.port}"] = place  # of two slices the newer counts
        unique = {(place.address, place.port): place for _, place in sorted(places.items())}
        workers = {place: self._worker(place, remarks) for place in unique.values()}
        self._made = {place: worker for place, worker in workers.items() if worker is not None}
        return Found(tuple(sorted(self._made.values(), key=lambda worker: worker.id)), tuple(dict.fromkeys(remarks)))

    def _port(self, each: Slice, remarks: list[str]) -> int | None:
        wanted, name = self._settings.port, each.metadata.name
        if isinstance(wanted, int):
            return wanted
        offered = [port for port in each.ports or () if port.port and port.protocol in (None, "TCP")]
        fitting = [port.port for port in offered if wanted in (None, port.name)]
        if len(fitting) == 1:
            return fitting[0]
        if each.endpoints:
            named = ", ".join(sorted(f"{port.name or port.port}" for port in offered)) or "none"
            asked = "several ports" if wanted is None and offered else f"no port {wanted}" if wanted else "no port"
            remarks.append(
                f"EndpointSlice {name} is left out: it has {asked} (there: {named}); set discovery.kubernetes.port"
            )
        return None

    def _worker(self, place: Place, remarks: list[str]) -> Worker | None:
        known = self._made.get(place)
        if known is not None:
            return known
        host = f"[{place.address}]" if ":" in place.address else place.address
        own = {"zone": place.zone, "node": place.node}
        labels = {**self._settings.worker.labels, **{name: value for name, value in own.items() if value}}
        events = self._settings.worker.kv_events
        source = KvSource(f"tcp://{host}:{events.port}", topic=events.topic) if events else None
        try:
            return worker_from_url(
                f"{self._settings.scheme}://{host}:{place.port}",
                id=place.pod, labels=labels, kv_events=source, **self._common,
            )  # fmt: skip
        except ValueError:
            remarks.append(f"{place.pod or 'an endpoint'} is left out: its address is none")
            return None


def is_usable(endpoint: Endpoint) -> bool:
    """It takes new requests. `ready` stays true for one that ends where a Service publishes what is not ready; what is
    not known counts as well, as the API wants it."""
    conditions = endpoint.conditions
    if conditions is None:
        return True
    return not conditions.terminating and conditions.ready is not False and conditions.serving is not False


def _age(each: Slice) -> tuple[str, str]:
    return each.metadata.creation_timestamp or "", each.metadata.name


def _of_one_family(slices: list[Slice], remarks: list[str]) -> list[Slice]:
    """Those whose addresses count, of each Service."""
    families: dict[str, set[str]] = {}
    for each in slices:
        families.setdefault(_service(each), set()).add(each.address_type)
    chosen = {service: "IPv4" if "IPv4" in found else "IPv6" for service, found in families.items()}
    remarks += [
        f"EndpointSlice {each.metadata.name} is left out: addresses of type {each.address_type} are not supported"
        for each in slices
        if each.address_type not in ("IPv4", "IPv6")
    ]
    return [each for each in slices if each.address_type == chosen[_service(each)]]


def _service(each: Slice) -> str:
    return (each.metadata.labels or {}).get(SERVICE, "")


def _place(endpoint: Endpoint, port: int) -> Place:
    target = endpoint.target_ref
    pod = target.name if target is not None and target.kind == "Pod" and target.name else None
    return Place(pod, endpoint.addresses[0].lower(), port, endpoint.zone, endpoint.node_name)
