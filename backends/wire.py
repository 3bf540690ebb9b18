"""JSON at the border, and the one kind of error that an API handler raises."""

import json
from typing import Any, TypeVar

import msgspec

from backends.http import Answer, Headers

T = TypeVar("T")

JSON_TYPE: Headers = [("content-type", "application/json")]


class ApiError(Exception):
    """An answer that is an error: its status, and vLLM's name for its kind; in how many seconds to try again, if that
    helps."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "BadRequestError",
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.retry_after = retry_after

    @property
    def headers(self) -> Headers:
        return [] if self.retry_after is None else [("retry-after", str(self.retry_after))]

    def openai(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}

    def anthropic(self) -> dict[str, Any]:
        kind = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
        return {"type": "error", "error": {"type": kind.get(self.status, "api_error"), "message": self.message}}


def internal_error() -> ApiError:
    """Says nothing of the cause: that may quote a prompt."""
    return ApiError(500, "Internal error.", "InternalServerError")


def decode(body: bytes) -> Any:
    """The body's value. The standard reader, because it takes what clients really send: lone surrogates, NaN,
    doubles."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The body is not valid JSON: {error.args[0] if error.args else 'no value'}") from None


def read(value: Any, shape: type[T]) -> T:
    """The value as `shape`; unknown fields are ignored, a wrong one is named."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$")[2]
        raise ApiError(400, str(error), param=place.strip(".`") or None) from None
    except UnicodeEncodeError:
        raise ApiError(400, "A field that takes no text has one, and one that is no valid Unicode.") from None


def encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError):
        return json.dumps(value).encode()


def send_json(answer: Answer, value: Any, status: int = 200, headers: Headers = ()) -> None:
    answer.whole(status, [*JSON_TYPE, *headers], encode(value))
