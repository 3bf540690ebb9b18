"""The admin routes: workers, explanations, decisions, settings.

`admin_guard.py` says who may ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import structs
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from router.admin_guard import build_guard
from router.core.fleet import Seat
from router.described import REQUEST_BODY, UNREACHED, UPDATED, WORKER_BODY
from router.errors import InvalidJson, InvalidRequest, Refusal, RequestTooLarge
from router.explain import explain
from router.house import House
from router.layers import effective, fault
from router.processes.crew import Crew
from router.processes.messages import Change
from router.proxy.worker_tls import tls_faults
from router.sections.workers import WorkerSettings
from router.settings import Settings
from router.types import Worker


class UnknownWorker(Refusal):
    status, code = 404, "unknown_worker"


class BadSettings(Refusal):
    status, code = 422, "bad_settings"


@dataclass
class Desk:
    """What the admin routes work with; a reload changes the last two."""

    house: House
    crew: Crew
    settings: Settings
    origins: dict[str, str]

    def seat(self, worker_id: str) -> Seat:
        found = self.house.fleet.seats.get(worker_id)
        if found is None:
            raise UnknownWorker("No worker has this id; GET /admin/workers lists them.", param="id")
        return found

    def seat_at(self, worker: Worker) -> Seat | None:
        """The worker that is at this one's address already."""
        return next((s for s in self.house.fleet.seats.values() if s.worker.address == worker.address), None)


def build_admin(desk: Desk) -> APIRouter:
    guard = Depends(build_guard(desk.house))
    routes = APIRouter(prefix="/admin", tags=["admin"], dependencies=[guard], responses=UNREACHED)
    _add_worker_routes(routes, desk)
    _add_views(routes, desk)
    return routes


def _add_worker_routes(routes: APIRouter, desk: Desk) -> None:
    house = desk.house

    @routes.get("/workers")
    async def workers() -> dict[str, Any]:
        """Every known worker with its state, as this process sees it, and its load in all processes. One that is
        `draining` with nothing in flight may be stopped: a process that may still send it a request counts as one."""
        draining = await desk.crew.draining()
        desk.crew.look()
        now = house.clock()
        rows = [_row(each, now, draining.get(each.id)) for each in house.fleet.seats.values()]
        return {"workers": rows, "panic": house.fleet.panicking}

    @routes.post("/workers", status_code=201, responses=UPDATED, openapi_extra=WORKER_BODY)
    async def add(request: Request, response: Response) -> dict[str, Any]:
        """Add a worker (201), or update the one with its id (200): JSON, as in the settings; `url` is needed."""
        try:
            worker = WorkerSettings.model_validate_json(await _body(request, desk.settings)).worker()
        except ValidationError as wrong:
            faults = wrong.errors()
            kind = InvalidJson if any(each["type"] == "json_invalid" for each in faults) else InvalidRequest
            raise kind("; ".join(map(fault, faults))) from None
        if worker.tls is not None and (unfit := tls_faults(worker.tls, "tls")):
            raise InvalidRequest("; ".join(unfit), param="tls")
        if worker.id in house.fleet.seats:
            response.status_code = 200
        elif (other := desk.seat_at(worker)) is not None:
            raise InvalidRequest(
                f"This URL is the worker {other.id}; update that one, or remove it first.", param="url"
            )
        await desk.crew.change(Change("add", worker.id, worker))
        added = house.fleet.seats.get(worker.id) or Seat(worker, house.fleet.limits)  # it may have been removed again
        return _row(added, house.clock())

    @routes.delete("/workers/{worker_id}", status_code=204)
    async def remove(worker_id: str) -> None:
        """Forget a worker; its running requests finish."""
        await desk.crew.change(Change("remove", desk.seat(worker_id).id))

    @routes.post("/workers/{worker_id}/drain")
    async def drain(worker_id: str, over_seconds: Annotated[float, Query(ge=0, le=86_400)] = 0.0) -> dict[str, Any]:
        """No new requests for this worker; running ones finish. Once it is `draining` with nothing in flight it may be
        stopped. `over_seconds`: its prefixes move away one after the other in that time, and only then it is drained.
        """
        await desk.crew.change(Change("drain", desk.seat(worker_id).id, over_seconds=over_seconds))
        draining = await desk.crew.draining()
        return _row(desk.seat(worker_id), house.clock(), draining.get(worker_id))

    @routes.post("/workers/{worker_id}/undrain")
    async def undrain(worker_id: str) -> dict[str, Any]:
        """Take it in again."""
        await desk.crew.change(Change("undrain", desk.seat(worker_id).id))
        return _row(desk.seat(worker_id), house.clock())


def _add_views(routes: APIRouter, desk: Desk) -> None:
    @routes.post("/explain", openapi_extra=REQUEST_BODY)
    async def explained(request: Request, path: str | None = None) -> dict[str, Any]:
        """Where this request body would go now, and why, without sending it. `path`: the API path it is meant for."""
        headers = [(name.lower(), value) for name, value in request.headers.raw if name.lower() != b"authorization"]
        return explain(desk.house, await _body(request, desk.settings), path, headers)

    @routes.get("/decisions")
    async def latest() -> dict[str, Any]:
        """The latest decisions, newest first."""
        return {"decisions": await desk.crew.decisions()}

    @routes.get("/processes")
    async def processes() -> dict[str, Any]:
        """The gateway's processes, whichever answers."""
        return {"processes": [structs.asdict(row) for row in await desk.crew.processes()]}

    @routes.post("/reload")
    async def reload() -> dict[str, Any]:
        """Read the settings again, in every process: all of them, or none where there is a fault (422). `changed`: what
        counts from now on; `restart`: what differs and needs a restart."""
        outcome = await desk.crew.reload()
        if outcome.faults:
            raise BadSettings("; ".join(outcome.faults))
        return {"changed": list(outcome.changed), "restart": list(outcome.restart)}

    @routes.get("/config")
    async def config() -> dict[str, Any]:
        """The effective settings and where each came from; secrets masked."""
        rows = effective(desk.settings, desk.origins)
        return {"settings": [{"path": path, "value": value, "origin": origin} for path, value, origin in rows]}


async def _body(request: Request, settings: Settings) -> bytes:
    """The body, whatever its content type says (curl says form), within `limits.body_bytes`; read after the guard."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > settings.limits.body_bytes:
                raise RequestTooLarge(f"The body is larger than limits.body_bytes, {settings.limits.body_bytes}.")
            parts.append(part)
    except ClientDisconnect:
        raise InvalidRequest("The body did not come whole.") from None
    return b"".join(parts)


def _row(seat: Seat, now: float, in_flight: int | None = None) -> dict[str, Any]:
    """`in_flight`: where that is known better than by what the processes tell each other now and then."""
    worker, load = seat.worker, seat.load
    return {
        "id": seat.id, "url": worker.address.url, "state": seat.health.state.value,
        "models": None if seat.models is None else sorted(seat.models),
        "in_flight": load.in_flight + load.elsewhere if in_flight is None else in_flight,
        "outstanding_tokens": round(load.charged + load.charged_elsewhere), "wait_tokens": round(seat.wait(now)),
        "weight": worker.weight, "dialect": worker.dialect, "max_in_flight": worker.max_in_flight,
        "labels": dict(worker.labels), "speed": round(seat.speed, 3),
        "prefill_tokens_per_second": None if load.pace is None else round(load.pace),
        "failed_probes": seat.health.failed_probes, "failed_requests": seat.health.failed_requests,
    }  # fmt: skip
