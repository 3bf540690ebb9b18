"""The admin routes: workers, explanations, decisions, settings.

With `admin_token` set every route asks for it; without one only a peer on the loopback answers, and not one that speaks
for somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import ValidationError

from router.core.fleet import Seat
from router.discovery.roster import Roster
from router.errors import AdminOnly, InvalidRequest, Refusal
from router.explain import explain
from router.house import House
from router.observe.decisions import Decisions
from router.settings import Settings, WorkerSettings, effective

FORWARDING = ("forwarded", "x-forwarded-for", "x-real-ip")


class UnknownWorker(Refusal):
    status, code = 404, "unknown_worker"


def build_admin(
    house: House,
    roster: Roster,
    apply: Callable[[], None],
    decisions: Decisions,
    settings: Settings,
    origins: dict[str, str],
) -> APIRouter:
    routes = APIRouter(prefix="/admin", tags=["admin"], dependencies=[Depends(_guard(settings))])

    def seat(worker_id: str) -> Seat:
        found = house.fleet.seats.get(worker_id)
        if found is None:
            raise UnknownWorker("No worker has this id; GET /admin/workers lists them.", param="id")
        return found

    @routes.get("/workers")
    async def workers() -> dict[str, Any]:
        """Every known worker with its state and load."""
        now = house.clock()
        return {"workers": [_row(each, now) for each in house.fleet.seats.values()], "panic": house.fleet.panicking}

    @routes.post("/workers", status_code=201)
    async def add(response: Response, body: dict[str, Any] = Body()) -> dict[str, Any]:
        """Add a worker (201), or update the one with its id (200). Fields as in the settings; `url` is needed."""
        try:
            worker = WorkerSettings.model_validate(body).worker()
        except ValidationError as wrong:
            faults = [
                f"{'.'.join(map(str, e['loc']))}: {str(e['msg']).removeprefix('Value error, ')}" for e in wrong.errors()
            ]
            raise InvalidRequest("; ".join(faults)) from None
        if worker.id in house.fleet.seats:
            response.status_code = 200
        roster.add(worker)
        apply()
        return _row(house.fleet.seats[worker.id], house.clock())

    @routes.delete("/workers/{worker_id}", status_code=204)
    async def remove(worker_id: str) -> None:
        """Forget a worker; its running requests finish."""
        roster.remove(seat(worker_id).id)
        apply()

    @routes.post("/workers/{worker_id}/drain")
    async def drain(worker_id: str) -> dict[str, Any]:
        """No new requests for this worker; running ones finish."""
        return _moved(house, seat(worker_id), house.fleet.drain)

    @routes.post("/workers/{worker_id}/undrain")
    async def undrain(worker_id: str) -> dict[str, Any]:
        """Take it in again."""
        return _moved(house, seat(worker_id), house.fleet.undrain)

    @routes.post("/explain")
    async def explained(request: Request, path: str | None = None) -> dict[str, Any]:
        """Where this request body would go now, and why, without sending it. `path`: the API path it is meant for."""
        headers = [(name.lower(), value) for name, value in request.headers.raw if name.lower() != b"authorization"]
        return explain(house, await request.body(), path, headers)

    @routes.get("/decisions")
    async def latest() -> dict[str, Any]:
        """The latest decisions, newest first."""
        return {"decisions": decisions.latest()}

    @routes.get("/config")
    async def config() -> dict[str, Any]:
        """The effective settings and where each came from; secrets masked."""
        rows = effective(settings, origins)
        return {"settings": [{"path": path, "value": value, "origin": origin} for path, value, origin in rows]}

    return routes


def _guard(settings: Settings) -> Callable[[Request], None]:
    token = settings.admin_token.get_secret_value() if settings.admin_token else None

    def check(request: Request) -> None:
        if token is not None:
            shown = request.headers.get("authorization", "")
            if not compare_digest(shown.encode("utf-8", "replace"), f"Bearer {token}".encode()):
                raise AdminOnly("The admin routes need `Authorization: Bearer ADMIN_TOKEN`.")
        elif not _is_local(request):
            raise AdminOnly("The admin routes answer loopback peers only, unless admin_token is set.")

    return check


def _is_local(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in FORWARDING):
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _row(seat: Seat, now: float) -> dict[str, Any]:
    worker, load = seat.worker, seat.load
    return {
        "id": seat.id, "url": worker.address.url, "state": seat.health.state.value,
        "models": None if seat.models is None else sorted(seat.models), "in_flight": load.in_flight,
        "outstanding_tokens": round(load.charged), "wait_tokens": round(seat.wait(now)), "weight": worker.weight,
        "dialect": worker.dialect, "max_in_flight": worker.max_in_flight, "labels": dict(worker.labels),
        "prefill_tokens_per_second": None if load.pace is None else round(load.pace),
        "failed_probes": seat.health.failed_probes, "failed_requests": seat.health.failed_requests,
    }  # fmt: skip


def _moved(house: House, seat: Seat, move: Callable[[Seat, float], Any]) -> dict[str, Any]:
    changed = move(seat, house.clock())
    if changed is not None:
        house.emit(changed)
        house.freed()
    return _row(seat, house.clock())
