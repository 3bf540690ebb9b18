"""SageMaker's one path for everything: the body's shape says which API is meant."""

from backends.api import chat, completions, embeddings
from backends.face import Call, Route
from backends.wire import ApiError

SHAPES = {"messages": chat.handle, "prompt": completions.handle, "input": embeddings.handle}


def handle(call: Call) -> None:
    body = call.body()
    for field, meant in SHAPES.items():
        if isinstance(body, dict) and field in body:
            meant(call)
            return
    raise ApiError(400, f"The body needs one of {', '.join(SHAPES)}.")


ROUTES = (Route("POST", "/invocations", handle, generates=True),)
