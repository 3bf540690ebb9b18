"""The parts of a worker with a real model put together: the only place that knows them all."""

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from backends.face import Call, Face, Route
from backends.kv_events import KvEvents
from backends.loading import Loading
from backends.medusa.plan import LoadError, Plan
from backends.metrics import METRICS_TYPE, metrics_text
from backends.server import Server

if TYPE_CHECKING:
    from backends.medusa.engine import MedusaEngine


class MedusaWorker:
    """A worker that is not listening yet and has no model. Raises MissingExtraError or OSError where the plan's KV
    events cannot be."""

    def __init__(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        self._plan, self._soon = plan, loop.call_soon_threadsafe
        self._events = (
            KvEvents(plan.kv_events, plan.load.block_tokens, loop.call_soon, plan.kv_events_topic)
            if plan.kv_events is not None
            else None
        )
        self._engine: MedusaEngine | None = None
        self._closed = False
        self._loading = Loading(plan.models)
        self.face = Face(self._loading, plan.access, self._loading.loaded, (Route("GET", "/metrics", self._metrics),))
        self.server = Server(self.face, plan.host, plan.port)

    async def load(self, said: Callable[[str], None]) -> None:
        """Raises LoadError. `said` is called from another thread."""
        start = await asyncio.to_thread(self._loaded, said)
        self._engine = start()
        self._loading.put(self._engine)

    def _loaded(self, said: Callable[[str], None]) -> "Callable[[], MedusaEngine]":
        """All that takes long, the import of torch too. What is returned starts the engine's thread."""
        from backends.medusa.engine import MedusaEngine
        from backends.medusa.loading import load
        from backends.medusa.weights import ModelFileError

        def say(line: str) -> None:
            """A thread cannot be stopped from outside: the stages are where it notices."""
            if self._closed:
                raise LoadError("stopped")
            said(line)

        plan = self._plan
        try:
            loaded = load(plan.load, say)
        except (ModelFileError, OSError) as error:
            raise LoadError(str(error)) from None
        except (MemoryError, RuntimeError) as error:
            raise LoadError(f"the model cannot be prepared ({str(error).partition(chr(10))[0]})") from None
        return lambda: MedusaEngine(
            loaded.running, loaded.vocabulary, loaded.limits, plan.models, self._soon, seed, self._events
        )

    def close(self) -> None:
        """Gives back ports, connections, sequences, the thread and sockets."""
        self._closed = True
        self.server.stop()
        self._loading.close()
        if self._events is not None:
            self._events.close()

    def _metrics(self, call: Call) -> None:
        model = call.engine.models[0]
        text = metrics_text(model, call.engine.stats())
        if self._engine is not None:
            text += self._engine.metrics()
        call.answer.whole(200, METRICS_TYPE, text.encode())


def seed() -> int:
    return secrets.randbits(63)
