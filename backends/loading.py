"""What stands behind the face while a model is still being loaded.

The command listens at once, and loads beside it:

    loading = Loading(["some-model"])
    face = Face(loading, access, loading.loaded)

    async def load() -> None:
        weights = await asyncio.to_thread(read_weights, path)  # the slow part, away from the event loop
        loading.put(RealEngine(weights))

    await serving.until_told(load())
"""

from collections.abc import Sequence

from backends.contract import Engine, EngineNotReadyError, Job, Sequencing, Sink, Stats, Tokenizer


class Loading:
    """Implements Engine: the one that is put into it, and before that one which knows its models' names only and
    raises EngineNotReadyError for everything else."""

    def __init__(self, models: Sequence[str]) -> None:
        self.models = models
        self._engine: Engine | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Loading {', '.join(self.models)}: {self._engine!r}>"

    def loaded(self) -> bool:
        return self._engine is not None

    def put(self, engine: Engine) -> None:
        """Owns the engine from now on: it is closed with this one, or at once where this one is closed already."""
        self._engine = engine
        if self._closed:
            engine.close()

    @property
    def max_model_len(self) -> int:
        return self._real.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        return self._real.tokenizer

    @property
    def has_logprobs(self) -> bool:
        return self._real.has_logprobs

    def start(self, job: Job, sink: Sink) -> Sequencing:
        return self._real.start(job, sink)

    def stats(self) -> Stats:
        return Stats() if self._engine is None else self._engine.stats()

    def close(self) -> None:
        self._closed = True
        if self._engine is not None:
            self._engine.close()

    @property
    def _real(self) -> Engine:
        if self._engine is None:
            raise EngineNotReadyError
        return self._engine
