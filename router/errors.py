"""The error tree. Each type fixes the status, the code, and whether the request certainly did not run.

Two branches. A `Refusal` is the gateway's own answer to the client. An `AttemptError` is what went wrong at
one worker: the retry law (`core/retry.py`) reads its class facts, and when no other worker is left it turns
into the `Refusal` named by `answer`.
"""

from __future__ import annotations

from typing import ClassVar


class RouterError(Exception):
    """The root, so that one `except` can hold the border."""


class Refusal(RouterError):
    """An answer of the gateway's own. `message` says what to do and is safe to show."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    kind: ClassVar[str] = "invalid_request_error"  # the `type` of OpenAI's error object

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class InternalError(Refusal):
    kind = "server_error"


class InvalidJson(Refusal):
    status, code = 400, "invalid_json"


class InvalidRequest(Refusal):
    status, code = 400, "invalid_request"


class InvalidApiKey(Refusal):
    status, code, kind = 401, "invalid_api_key", "authentication_error"


class AdminOnly(Refusal):
    status, code, kind = 403, "admin_only", "permission_error"


class ModelNotFound(Refusal):
    status, code = 404, "model_not_found"


class UnknownPath(Refusal):
    status, code = 404, "unknown_path"


class MethodNotAllowed(Refusal):
    status, code = 405, "method_not_allowed"


class RequestTimeout(Refusal):
    status, code = 408, "request_timeout"


class RequestTooLarge(Refusal):
    status, code = 413, "request_too_large"


class HeadersTooLarge(Refusal):
    status, code = 431, "headers_too_large"


class Overloaded(Refusal):
    status, code, kind = 429, "overloaded", "rate_limit_error"


class RateLimited(Refusal):
    status, code, kind = 429, "rate_limited", "rate_limit_error"


class WorkerFailed(Refusal):
    status, code, kind = 502, "worker_failed", "server_error"


class NoReadyWorker(Refusal):
    status, code, kind = 503, "no_ready_worker", "server_error"


class WorkerTimeout(Refusal):
    status, code, kind = 504, "worker_timeout", "server_error"


class AttemptError(RouterError):
    """One attempt at one worker failed.

    certainly_not_run: no engine can have begun on the request, so another worker may try it
    counts: the attempt is one of `routing.max_tries`
    """

    kind: ClassVar[str] = "failed"
    certainly_not_run: ClassVar[bool] = False
    counts: ClassVar[bool] = True
    answer: ClassVar[type[Refusal]] = WorkerFailed


class Unreachable(AttemptError):
    """The connection was refused, or the worker's name or network was not found."""

    kind, certainly_not_run, counts, answer = "refused", True, False, NoReadyWorker


class ConnectTimeout(AttemptError):
    """No connection within `timeouts.connect_seconds`."""

    kind, certainly_not_run, counts, answer = "connect_timeout", True, False, WorkerTimeout


class LocalTrouble(AttemptError):
    """This gateway has no socket or memory left to connect with. It says nothing about the worker."""

    kind, certainly_not_run, answer = "local", True, NoReadyWorker


class NotSent(AttemptError):
    """It waited for one of the worker's connections while the worker was found not to be well. Nothing was sent."""

    kind, certainly_not_run, counts, answer = "not_sent", True, False, NoReadyWorker


class StaleConnection(AttemptError):
    """A connection that had served before was closed before any byte of this answer came.

    The worker most likely closed it as idle while the request was on its way; RFC 9112 section 9.3.1 lets a
    client send again then. It is sent once more, on a fresh connection to the same worker.
    """

    kind, certainly_not_run, counts = "stale_connection", True, False


class BrokenAnswer(AttemptError):
    """The worker broke the connection, or what it sent was no HTTP."""

    kind = "broken"


class FirstByteTimeout(AttemptError):
    """No byte of an answer within `timeouts.first_byte_seconds`. The engine may well be at it."""

    kind, answer = "first_byte_timeout", WorkerTimeout


class IdleTimeout(AttemptError):
    """No further byte within `timeouts.idle_seconds`."""

    kind, answer = "idle_timeout", WorkerTimeout
