"""What `/openapi.json` says beyond what the routes' own signatures do: their bodies, and how they refuse."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from router.sections.workers import WorkerSettings

Responses = dict[int | str, dict[str, Any]]


class Fault(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Refused(BaseModel):
    """An error of the gateway's own, in OpenAI's form."""

    error: Fault


REFUSED: Responses = {"4XX": {"model": Refused, "description": "What is wrong with the request, or who may not ask"}}
UNREACHED: Responses = {503: {"model": Refused, "description": "The gateway's other processes cannot be reached"}}
UPDATED: Responses = {200: {"description": "It was there, and is updated"}}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Without references into a part of the document that only FastAPI writes."""
    parts = schema.pop("$defs", {})

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return without(parts[value["$ref"].rpartition("/")[2]])
            return {name: without(inner) for name, inner in value.items()}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    return without(schema)  # type: ignore[no-any-return]


WORKER_BODY = _body(_inlined(WorkerSettings.model_json_schema()))
REQUEST_BODY = _body({"description": "a request body, as for the path it is meant for"})
