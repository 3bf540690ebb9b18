"""Whether the worker is ready, and what it is doing."""

import msgspec

from backends.face import Call, Route
from backends.metrics import METRICS_TYPE, metrics_text
from backends.wire import send_json


def health(call: Call) -> None:
    """An empty 200, as vLLM's; 503 until the worker is ready, and once it shuts down."""
    call.face.check_ready()
    call.answer.whole(200, [], b"")


def metrics(call: Call) -> None:
    text = metrics_text(call.engine.models[0], call.engine.stats())
    call.answer.whole(200, METRICS_TYPE, text.encode())


def stats(call: Call) -> None:
    """What became of the generations, and the engine's own numbers.

    `running` are the engine's running sequences and the generations that a fault holds; who still waits for the
    engine is in `in_progress` only.
    """
    ledger, engine = call.face.ledger, call.engine.stats()
    counts = {
        "started": ledger.started,
        "finished": ledger.finished,
        "aborted": ledger.aborted,
        "running": engine.running + ledger.held,
        "max_running": max(engine.peak_running, ledger.max_held),
        "in_progress": ledger.in_progress,
        "max_in_progress": ledger.max_in_progress,
        "engine": msgspec.to_builtins(engine),
    }
    send_json(call.answer, counts)


ROUTES = (
    Route("GET", "/health", health),
    Route("GET", "/ping", health),
    Route("GET", "/metrics", metrics),
    Route("GET", "/stats", stats),
)
