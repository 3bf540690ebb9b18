"""The FastAPI app: everything but the fast lane. Health, metrics, the model list, the admin routes, the page, the 404s.

It also holds the proxied paths as plain ASGI endpoints, for what the fast lane leaves to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from router import __version__
from router.contracts import Dialect
from router.described import REFUSED, UNREACHED
from router.errors import InternalError, InvalidJson, InvalidRequest, MethodNotAllowed, Refusal, UnknownPath
from router.events import Finished
from router.house import House
from router.layers import fault
from router.pages import api_page, headers_for, live_page
from router.proxy.asgi import AsgiEndpoint, Message
from router.proxy.border import Border
from router.proxy.headers import find, request_id
from router.proxy.sweep import ClientLimits
from router.signals.models import ModelCatalogue

UNCOUNTED = ("/admin", "/metrics", "/healthz", "/readyz", "/docs", "/openapi.json")
MODELS, PING = "/v1/models", "/ping"
COUNTED = frozenset((MODELS, PING))
OWN_ID, CODE = "router.request_id", "router.code"  # in the scope


def build_app(
    house: House,
    scrape: Callable[[], Awaitable[bytes]],
    catalogue: ModelCatalogue,
    openai: Dialect,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
) -> FastAPI:
    app = FastAPI(title="Prefix Router", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
                  redirect_slashes=False, responses=REFUSED)  # fmt: skip
    timeouts, most = house.settings.timeouts, house.settings.limits.header_bytes
    limits = ClientLimits(timeouts.client_read_seconds, timeouts.client_write_seconds, most)
    for place in house.paths.values():
        endpoint = AsgiEndpoint(house, place, limits)
        app.router.routes.append(Route(place.path, endpoint, methods=["POST"], include_in_schema=False))
    _add_plain_routes(app, house, scrape, catalogue)
    _add_refusals(app, house, openai)
    app.add_middleware(Counting, house=house)
    app.add_middleware(Border, house=house, refusal=openai.refusal, open_to_pages=(MODELS,))
    return app


def _add_plain_routes(
    app: FastAPI, house: House, scrape: Callable[[], Awaitable[bytes]], catalogue: ModelCatalogue
) -> None:
    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", tags=["health"], response_class=PlainTextResponse)
    async def healthz() -> PlainTextResponse:
        """Alive: the event loop answers."""
        return PlainTextResponse("ok\n")

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", tags=["health"], responses={503: {"description": "not ready"}})
    async def readyz() -> JSONResponse:
        """Ready: some worker is, and the gateway is not draining."""
        ready = len(house.fleet.ready())
        good = bool(ready) and not house.draining
        return JSONResponse({"ready": good, "workers_ready": ready, "draining": house.draining}, 200 if good else 503)

    @app.head(PING, include_in_schema=False)
    @app.get(PING, tags=["health"], response_class=Response, responses={503: {"description": "not ready"}})
    async def ping() -> Response:
        """SageMaker's health check: 200 only when ready."""
        return Response(status_code=200 if house.fleet.ready() and not house.draining else 503)

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=UNREACHED)
    async def scraped() -> Response:
        """Prometheus text: of all processes together, whichever answers."""
        return Response(await scrape(), media_type=CONTENT_TYPE_LATEST)

    @app.head(MODELS, include_in_schema=False)
    @app.get(MODELS, tags=["models"])
    async def models(request: Request) -> JSONResponse:
        """Every model that a ready worker serves, one entry each, from cache."""
        house.keys.tenant(request.headers.raw)
        return JSONResponse({"object": "list", "data": catalogue.listed()})

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        html, headers = live_page()
        return HTMLResponse(html, headers=headers)

    @app.head("/docs", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        html, headers = api_page(app.openapi(), [path.decode() for path in house.paths])
        return HTMLResponse(html, headers=headers)


def _add_refusals(app: FastAPI, house: House, openai: Dialect) -> None:
    def answer(request: Request, refusal: Refusal, headers: dict[str, str] | None = None) -> Response:
        place = house.paths.get(request.url.path.encode())
        content_type, body = (place.dialect if place else openai).refusal(refusal)
        request.scope[CODE] = refusal.code
        extra = dict(headers or {})
        if refusal.retry_after is not None:
            extra["retry-after"] = str(max(1, ceil(refusal.retry_after)))
        return Response(body, refusal.status, extra, content_type.decode())

    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> Response:
        return answer(request, refusal)

    @app.exception_handler(HTTPException)
    async def http(request: Request, wrong: HTTPException) -> Response:
        headers = dict(wrong.headers or {})
        if wrong.status_code == 404:
            return answer(request, UnknownPath("There is nothing at this path; the API is described at /docs."))
        if wrong.status_code == 405:
            takes = headers["Allow"] = ", ".join(methods_at(app, request))
            return answer(request, MethodNotAllowed(f"This path takes {takes}."), headers)
        return answer(request, InvalidRequest(str(wrong.detail)), headers)

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, wrong: RequestValidationError) -> Response:
        faults = wrong.errors()
        kind = InvalidJson if any(each["type"] == "json_invalid" for each in faults) else InvalidRequest
        return answer(request, kind("; ".join(map(fault, faults))))

    @app.exception_handler(Exception)
    async def broken(request: Request, _: Exception) -> Response:
        refusal = InternalError("The gateway failed on this request; its log says why.")
        return answer(request, refusal, {"x-request-id": request.scope.get(OWN_ID) or request_id(None)})


def methods_at(app: FastAPI, request: Request) -> list[str]:
    """What may be asked of this path, over all routes that stand there."""
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in app.router.routes)
    ]


class Counting:
    """Counts the client paths that no journey served, gives every answer its request id."""

    def __init__(self, app: Any, house: House) -> None:
        self.app = app
        self.house = house

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        path = scope.get("path", "")
        proxied = scope["type"] == "http" and scope["method"] == "POST" and path.encode() in self.house.paths
        if scope["type"] != "http" or proxied:
            await self.app(scope, receive, send)
            return
        began = self.house.clock()
        own_id = scope[OWN_ID] = request_id(find(scope["headers"], b"x-request-id"))
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", own_id.encode())]
                message["headers"] += headers_for(path)
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            if path != "/" and not path.startswith(UNCOUNTED):
                shown = path if path in COUNTED or path.encode() in self.house.paths else "other"
                seconds, code = self.house.clock() - began, scope.get(CODE)
                client = (scope.get("client") or ("",))[0]
                self.house.emit(Finished(own_id, shown, "", status, code, seconds=seconds, client=client))
