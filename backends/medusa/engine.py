"""The engine behind the HTTP face: a thread that does the steps, and an event loop that is told of them.

Orders go to the thread through a queue, reports come back through the loop. The thread touches no sink and the loop no
tensor; what both know is the report. torch lets go of the interpreter in its kernels, so the loop answers while a step
runs. Without work the thread sleeps in its queue.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from traceback import extract_tb
from typing import Any

from backends.block_pool import Listener, Removed, Stored
from backends.contract import Job, JobRefusedError, Sink, Stats
from backends.medusa.jobs import Limits, request_of
from backends.medusa.metrics import Acceptance, acceptance_of, decoding_text
from backends.medusa.running import News, Run, Running, Turn
from backends.medusa.text import Detokenizer
from backends.medusa.vocabulary import Vocabulary
from backends.prefix_cache import root_of

log = logging.getLogger(__name__)

Order = Callable[[], None]
"""Something to do between two steps."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of orders and a step: all that the loop knows of the thread's world. `submitted`: jobs so far."""

    turn: Turn
    events: Sequence[Stored | Removed]
    stats: Stats
    acceptance: Acceptance
    submitted: int


class MedusaSequence:
    """One started job, as far as its owner may touch it."""

    def __init__(self, engine: "MedusaEngine", run: Run) -> None:
        self._engine, self._run = engine, run

    def abort(self) -> None:
        self._engine.abort(self._run)


class MedusaEngine:
    """Owns its thread from the start on until `close`.

    `soon`: runs a call in the loop's next turn, from any thread; `chance`: seeds for who brings none; `listener` hears
    of the cache's blocks, on the loop.
    """

    has_logprobs = True

    def __init__(
        self,
        running: Running,
        vocabulary: Vocabulary,
        limits: Limits,
        models: Sequence[str],
        soon: Callable[..., Any],
        chance: Callable[[], int],
        listener: Listener | None = None,
    ) -> None:
        self.tokenizer, self.models = vocabulary, models
        self._running, self._limits, self._soon, self._chance, self._listener = running, limits, soon, chance, listener
        self._sinks: dict[Run, Sink] = {}
        self._started = self._submitted = 0  # jobs: all, and those that the thread has reported
        self._stats, self._acceptance = running.stats(), acceptance_of(running.batch)
        self._closed = False
        self._orders: SimpleQueue[Order | None] = SimpleQueue()  # None is the last one
        self._thread = Thread(target=self._work, name="medusa")
        self._thread.start()

    def __repr__(self) -> str:
        return f"<MedusaEngine {len(self._sinks)} sequences, {self._stats.running} running>"

    @property
    def max_model_len(self) -> int:
        return self._limits.max_model_len

    def start(self, job: Job, sink: Sink) -> MedusaSequence:
        if self._closed:
            raise JobRefusedError("The worker is shutting down.")
        request = request_of(job, self._limits, self._chance)
        text = Detokenizer(self.tokenizer.token_bytes, self.tokenizer.control)
        run = Run(request, root_of(self.models[0], job.salt), text)
        self._sinks[run] = sink
        self._started += 1
        self._orders.put(partial(self._running.submit, run))
        return MedusaSequence(self, run)

    def abort(self, run: Run) -> None:
        """Its sink is forgotten now; the thread gives its seat back before the next step."""
        if self._sinks.pop(run, None) is not None:
            self._orders.put(partial(self._running.drop, run))

    def stats(self) -> Stats:
        return replace(self._stats, waiting=self._stats.waiting + self._started - self._submitted)

    def metrics(self) -> str:
        """What decoding adds to the worker's metrics."""
        return decoding_text(self.models[0], self._acceptance)

    def close(self) -> None:
        """Waits for the step that runs, if one does."""
        if self._closed:
            return
        self._closed = True
        self._sinks.clear()
        self._orders.put(None)
        self._thread.join()
        self._running.close()
        self._stats, self._submitted = self._running.stats(), self._started

    # The thread.

    def _work(self) -> None:
        while True:
            for order in self._awaited():
                if order is None:
                    return
                order()
            turn = self._running.turn() if self._running.busy else Turn(())
            if turn.error is not None:
                complain(turn.error, f"in a step, {len(turn.news)} sequences given up")
            events = self._running.prefix.take_events()
            acceptance = acceptance_of(self._running.batch)
            self._soon(self._hear, Report(turn, events, self._running.stats(), acceptance, self._running.submitted))

    def _awaited(self) -> list[Order | None]:
        """All orders that are here; without work it waits for one."""
        found = [] if self._running.busy else [self._orders.get()]
        while True:
            try:
                found.append(self._orders.get_nowait())
            except Empty:
                return found

    # The loop.

    def _hear(self, report: Report) -> None:
        """The engine's own turn of the event loop: the only place from which sinks are called."""
        if self._closed:
            return
        self._stats, self._acceptance = report.stats, report.acceptance
        self._submitted = report.submitted
        if self._listener is not None:
            for event in report.events:
                self._listener(event)
        for news in report.turn.news:
            try:
                self._tell(news)
            except Exception as error:  # the others are to hear theirs
                complain(error, "in a sink, 1 sequence given up")
                self.abort(news.run)

    def _tell(self, news: News) -> None:
        """A sink may abort any sequence, its own too: who is not in the book any more hears nothing."""
        run, book = news.run, self._sinks
        if news.prefilled is not None and run in book:
            book[run].prefilled(news.prefilled)
        if news.pieces and run in book:
            book[run].tokens(news.pieces, news.logprobs)
        if news.end is not None and run in book:
            book.pop(run).finished(news.end)
        if news.failed and run in book:
            book.pop(run).failed()


def complain(error: Exception, where: str) -> None:
    """The message may quote a prompt: it is never logged."""
    place = extract_tb(error.__traceback__)[-1]
    log.error("%s at %s:%s %s", type(error).__name__, place.filename, place.lineno, where)
