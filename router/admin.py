"""The admin routes: workers, explanations, decisions, settings.

With `admin_token` set every route asks for it; without one only a peer on the loopback answers, and not one that speaks
for somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from ipaddress import ip_address
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import structs
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from router.core.fleet import Seat
from router.errors import AdminOnly, InvalidJson, InvalidRequest, Refusal, RequestTooLarge
from router.explain import explain
from router.house import House
from router.layers import effective, fault
from router.processes.crew import Crew
from router.processes.messages import Change
from router.sections.workers import WorkerSettings
from router.settings import Settings

FORWARDING = ("forwarded", "via", "x-forwarded-for", "x-real-ip")


class UnknownWorker(Refusal):
    status, code = 404, "unknown_worker"


class Desk(NamedTuple):
    """What the admin routes work with."""

    house: House
    crew: Crew
    settings: Settings
    origins: dict[str, str]

    def seat(self, worker_id: str) -> Seat:
        found = self.house.fleet.seats.get(worker_id)
        if found is None:
            raise UnknownWorker("No worker has this id; GET /admin/workers lists them.", param="id")
        return found


def build_admin(desk: Desk) -> APIRouter:
    routes = APIRouter(prefix="/admin", tags=["admin"], dependencies=[Depends(_guard(desk.settings))])
    _add_worker_routes(routes, desk)
    _add_views(routes, desk)
    return routes


def _add_worker_routes(routes: APIRouter, desk: Desk) -> None:
    house = desk.house

    @routes.get("/workers")
    async def workers() -> dict[str, Any]:
        """Every known worker with its state, as this process sees it, and its load in all processes."""
        desk.crew.look()
        now = house.clock()
        return {"workers": [_row(each, now) for each in house.fleet.seats.values()], "panic": house.fleet.panicking}

    @routes.post("/workers", status_code=201)
    async def add(request: Request, response: Response) -> dict[str, Any]:
        """Add a worker (201), or update the one with its id (200): JSON, as in the settings; `url` is needed."""
        try:
            worker = WorkerSettings.model_validate_json(await _body(request, desk.settings)).worker()
        except ValidationError as wrong:
            faults = wrong.errors()
            kind = InvalidJson if any(each["type"] == "json_invalid" for each in faults) else InvalidRequest
            raise kind("; ".join(map(fault, faults))) from None
        if worker.id in house.fleet.seats:
            response.status_code = 200
        await desk.crew.change(Change("add", worker.id, worker))
        return _row(desk.seat(worker.id), house.clock())

    @routes.delete("/workers/{worker_id}", status_code=204)
    async def remove(worker_id: str) -> None:
        """Forget a worker; its running requests finish."""
        await desk.crew.change(Change("remove", desk.seat(worker_id).id))

    @routes.post("/workers/{worker_id}/drain")
    async def drain(worker_id: str, over_seconds: Annotated[float, Query(ge=0, le=86_400)] = 0.0) -> dict[str, Any]:
        """No new requests for this worker; running ones finish. `over_seconds`: its prefixes move away one after the
        other in that time, and only then it is drained."""
        await desk.crew.change(Change("drain", desk.seat(worker_id).id, over_seconds=over_seconds))
        return _row(desk.seat(worker_id), house.clock())

    @routes.post("/workers/{worker_id}/undrain")
    async def undrain(worker_id: str) -> dict[str, Any]:
        """Take it in again."""
        await desk.crew.change(Change("undrain", desk.seat(worker_id).id))
        return _row(desk.seat(worker_id), house.clock())


def _add_views(routes: APIRouter, desk: Desk) -> None:
    @routes.post("/explain")
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

    @routes.get("/config")
    async def config() -> dict[str, Any]:
        """The effective settings and where each came from; secrets masked."""
        rows = effective(desk.settings, desk.origins)
        return {"settings": [{"path": path, "value": value, "origin": origin} for path, value, origin in rows]}


def _guard(settings: Settings) -> Callable[[Request], None]:
    token = settings.admin_token.get_secret_value() if settings.admin_token else None

    def check(request: Request) -> None:
        if token is not None:
            shown = request.headers.get("authorization", "")
            if not compare_digest(shown.encode("utf-8", "replace"), f"Bearer {token}".encode()):
                raise AdminOnly("The admin routes need `Authorization: Bearer ADMIN_TOKEN`.")
        elif not _is_local(request):
            raise AdminOnly(
                "The admin routes answer loopback peers at a loopback name only, unless admin_token is set."
            )

    return check


def _is_local(request: Request) -> bool:
    """A peer on the loopback that speaks for itself: neither for somebody behind a proxy nor for a page in a browser.

    A page of another site can make a browser send requests here, and with DNS rebinding even read the answers. Its
    Origin gives it away, or the Internet name in Host: loopback addresses and names without a dot are nobody's there.
    """
    headers = request.headers
    if request.client is None or any(name in headers for name in FORWARDING):
        return False
    origin = headers.get("origin")
    if headers.get("sec-fetch-site") == "cross-site" or (origin is not None and not _is_loopback(_name(origin))):
        return False
    host = _name(f"//{headers.get('host', '')}")
    return _is_loopback(request.client.host) and ("." not in host or _is_loopback(host))


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return "not.a.name"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


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


def _row(seat: Seat, now: float) -> dict[str, Any]:
    worker, load = seat.worker, seat.load
    return {
        "id": seat.id, "url": worker.address.url, "state": seat.health.state.value,
        "models": None if seat.models is None else sorted(seat.models),
        "in_flight": load.in_flight + load.elsewhere,
        "outstanding_tokens": round(load.charged + load.charged_elsewhere), "wait_tokens": round(seat.wait(now)),
        "weight": worker.weight, "dialect": worker.dialect, "max_in_flight": worker.max_in_flight,
        "labels": dict(worker.labels), "speed": round(seat.speed, 3),
        "prefill_tokens_per_second": None if load.pace is None else round(load.pace),
        "failed_probes": seat.health.failed_probes, "failed_requests": seat.health.failed_requests,
    }  # fmt: skip
