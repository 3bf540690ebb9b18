"""The model list, with the fields that vLLM adds to OpenAI's."""

from typing import Any

from backends.face import Call, Route
from backends.wire import send_json


def entry(call: Call, model: str) -> dict[str, Any]:
    return {
        "id": model,
        "object": "model",
        "created": call.face.created,
        "owned_by": "vllm",
        "root": model,
        "parent": None,
        "max_model_len": call.engine.max_model_len,
        "permission": [],
    }


def handle(call: Call) -> None:
    send_json(call.answer, {"object": "list", "data": [entry(call, model) for model in call.engine.models]})


ROUTES = (Route("GET", "/v1/models", handle),)
