"""From a request to the handler of its path: who may ask, whether we are ready, and errors in the API's own form.

One face for any engine. The APIs are found in the folder `api`: a module there with `ROUTES` joins by its presence.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from importlib import import_module
from pkgutil import iter_modules
from traceback import extract_tb
from typing import Any
from uuid import uuid4

from backends import api
from backends.contract import Engine, EngineNotReadyError, Job, JobRefusedError, Sequencing, Sink
from backends.http import Answer, Request
from backends.ledger import Ledger
from backends.wire import ApiError, decode, internal_error, send_json

log = logging.getLogger(__name__)

NOT_LOADED = "The model is not loaded yet."
RETRY_SECONDS = 1
"""When to ask again: another worker, or this one once it has loaded."""

ErrorForm = Callable[[ApiError], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may ask. Like vLLM's key, ours guards the paths under `/v1`; `everywhere` guards all of them."""

    key: str | None = None
    everywhere: bool = False

    def allows(self, request: Request) -> bool:
        if self.key is None or not (self.everywhere or request.path.startswith("/v1")):
            return True
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        given = (token if scheme.lower() == "bearer" else "", request.header("x-api-key") or "")
        return any(compare_digest(value.encode("utf-8", "replace"), self.key.encode()) for value in given)


@dataclass(frozen=True, slots=True)
class Route:
    """One path. `generates` marks work for the engine."""

    method: str
    path: str
    handle: "Callable[[Call], None]"
    generates: bool = False
    error_form: ErrorForm = ApiError.openai


@dataclass(frozen=True, slots=True)
class Call:
    """A request with everything its handler may need."""

    request: Request
    answer: Answer
    face: "Face"
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def engine(self) -> Engine:
        return self.face.engine

    def body(self) -> Any:
        return decode(self.request.body)

    def name(self, kind: str) -> str:
        """The answer's id; like vLLM's it carries the caller's request id, so that logs on both sides meet."""
        return f"{kind}-{self.request.header('x-request-id') or uuid4().hex}"

    def model(self, asked: str | None) -> str:
        if asked is None or asked == "":
            return self.engine.models[0]
        if asked not in self.engine.models:
            raise ApiError(404, f"The model `{asked}` does not exist.", "NotFoundError", "model")
        return asked

    def start(self, jobs: Sequence[Job], sinks: Sequence[Sink]) -> Sequence[Sequencing]:
        """Starts all jobs of this request or none; they end with the answer, however it ends."""
        for job in jobs:
            check_length(job, self.engine.max_model_len)
            if job.logprobs is not None and not self.engine.has_logprobs:
                message = "This model gives no log probabilities: leave `logprobs` out."
                raise ApiError(400, message, param="logprobs")
        started: list[Sequencing] = []
        try:
            for job, sink in zip(jobs, sinks, strict=True):
                started.append(self.engine.start(job, sink))
        except BaseException as error:
            for sequence in started:
                sequence.abort()
            if isinstance(error, JobRefusedError):
                raise ApiError(400, str(error)) from None
            raise
        self.face.ledger.begin(self.answer)
        for sequence in started:
            self.answer.when_over(lambda _, sequence=sequence: sequence.abort())  # type: ignore[misc]
        return started


def check_length(job: Job, limit: int) -> None:
    output = job.max_tokens or 0
    if len(job.prompt) + output > limit or (len(job.prompt) == limit and not job.embed):
        raise ApiError(
            400,
            f"This model's maximum context length is {limit} tokens. However, you requested {len(job.prompt) + output} "
            f"tokens ({len(job.prompt)} in the prompt, {output} for the output).",
        )


class Face:
    """The app that a server calls. `loaded` says whether the engine can work yet."""

    def __init__(
        self, engine: Engine, access: Access, loaded: Callable[[], bool] = lambda: True, extra: Iterable[Route] = ()
    ) -> None:
        self.engine = engine
        self.ledger = Ledger()
        self._loaded = loaded
        self._closed = False
        self.created = int(time.time())
        self._access = access
        self._routes: dict[str, dict[str, Route]] = {}
        for route in (*found_routes(), *extra):
            self._routes.setdefault(route.path, {})[route.method] = route

    def check_ready(self) -> None:
        """Raises ApiError while the health paths and the engine's work are closed: before all is loaded, and at the
        end."""
        if self._closed:
            raise unavailable("The worker is shutting down.")
        if not self._loaded():
            raise unavailable(NOT_LOADED)

    def close(self) -> None:
        """Takes no more work. What was taken goes on."""
        self._closed = True

    def route(self, request: Request) -> Route | None:
        methods = self._routes.get(request.path, {})
        return methods.get("GET" if request.method == "HEAD" else request.method)

    def __call__(self, request: Request, answer: Answer) -> None:
        route = self.route(request)
        try:
            self._check(request, route).handle(Call(request, answer, self))
        except ApiError as error:
            refuse(answer, route, error)
        except EngineNotReadyError:
            refuse(answer, route, unavailable(NOT_LOADED))
        except Exception as error:
            place = extract_tb(error.__traceback__)[-1]  # the message may quote a prompt: it is never logged
            log.error("%s at %s:%s, path %s", type(error).__name__, place.filename, place.lineno, request.path)
            refuse(answer, route, internal_error())

    def _check(self, request: Request, route: Route | None) -> Route:
        if not self._access.allows(request):
            raise ApiError(401, "Unauthorized", "AuthenticationError")
        if route is None and request.path in self._routes:
            raise ApiError(405, "Method Not Allowed", "MethodNotAllowedError")
        if route is None:
            raise ApiError(404, "Not Found", "NotFoundError")
        if route.generates:
            self.check_ready()
        return route


def unavailable(message: str) -> ApiError:
    return ApiError(503, message, "ServiceUnavailableError", retry_after=RETRY_SECONDS)


def refuse(answer: Answer, route: Route | None, error: ApiError) -> None:
    """In the form of the path's API."""
    form = route.error_form if route is not None else ApiError.openai
    send_json(answer, form(error), error.status, error.headers)


def found_routes() -> list[Route]:
    """The routes of every module in `backends/api`, in the order of their names."""
    modules = [import_module(f"{api.__name__}.{info.name}") for info in iter_modules(api.__path__)]
    return [route for module in modules for route in module.ROUTES]
