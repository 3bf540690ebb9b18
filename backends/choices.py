"""The sequences of one request as its answer's choices: each one's text up to its stop string, with what stands by it.

An API's answer implements `Listener` and hears of all its choices. Engines know nothing of stop strings and of choices.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backends.contract import End, Job, Sequencing, TokenLogprob, Usage
from backends.face import Call
from backends.stops import Stops


@dataclass(frozen=True, slots=True)
class Scored:
    """A token of the answer with its log probability, and the character of the answer's text that it begins at."""

    start: int
    token: TokenLogprob


class Listener(Protocol):
    """The answer to a request, told what its choices say; `index` says which one."""

    def open(self) -> None:
        """Called once all sequences run."""

    def prefilled(self, index: int, usage: Usage) -> None: ...

    def write(self, index: int, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None:
        """More of the answer. `scored` has the tokens whose text begins in each text, where they were asked for: one,
        several, or none. Only tokens whose character never came whole stand by an empty text."""

    def close(self, index: int, end: End, stop: str | None) -> None:
        """The choice is over. `stop` is the stop string that ended it."""

    def fail(self) -> None:
        """The engine gave one of the choices up: there will be no answer, and the other choices end with it."""


class Choice:
    """One sequence's sink. A stop string ends it: then the sequence is aborted, and what was generated until then is
    its usage."""

    def __init__(self, index: int, listener: Listener, stops: Sequence[str]) -> None:
        self.sequence: Sequencing | None = None
        self._index = index
        self._listener = listener
        self._stops = Stops(stops)
        self._plain = not stops
        self._usage = Usage(0)
        self._made = 0
        self._heard = 0  # characters that came from the engine
        self._told = 0  # characters that went to the listener
        self._scores = False
        self._waiting: deque[Scored] = deque()  # tokens whose text has not begun to go there

    def prefilled(self, usage: Usage) -> None:
        self._usage = usage
        self._listener.prefilled(self._index, usage)

    def tokens(self, pieces: Sequence[str], logprobs: Sequence[TokenLogprob] | None = None) -> None:
        if self._plain and logprobs is None:
            self._made += len(pieces)
            self._tell([piece for piece in pieces if piece], None)
            return
        self._scores = logprobs is not None
        texts: list[str] = []
        scored: list[Sequence[Scored]] = []
        for place, piece in enumerate(pieces):
            self._made += 1
            if logprobs is not None:
                self._waiting.append(Scored(self._heard, logprobs[place]))
            self._heard += len(piece)
            text = self._stops.feed(piece)
            if text:
                self._told += len(text)
                texts.append(text)
                scored.append(self._begun())
            if self._stops.found is not None:
                break
        self._tell(texts, scored if self._scores else None)
        if self._stops.found is not None:
            self._stop(self._stops.found)

    def finished(self, end: End) -> None:
        rest = self._stops.rest()
        if rest or self._waiting:
            self._tell([rest], [tuple(self._waiting)] if self._scores else None)
        self._listener.close(self._index, end, None)

    def failed(self) -> None:
        self._listener.fail()

    def _begun(self) -> Sequence[Scored]:
        """The tokens whose text has begun to be told by now."""
        found = []
        while self._waiting and self._waiting[0].start < self._told:
            found.append(self._waiting.popleft())
        return found

    def _tell(self, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None:
        if texts:
            self._listener.write(self._index, texts, scored)

    def _stop(self, string: str) -> None:
        if self.sequence is not None:
            self.sequence.abort()
        usage = Usage(self._usage.prompt_tokens, self._made, self._usage.cached_tokens)
        self._listener.close(self._index, End("stop", usage), string)


def begin(call: Call, jobs: Sequence[Job], listener: Listener, stops: Sequence[str] = ()) -> None:
    """Starts all jobs or none, and opens the answer."""
    choices = [Choice(index, listener, stops) for index in range(len(jobs))]
    for choice, sequence in zip(choices, call.start(jobs, choices), strict=True):
        choice.sequence = sequence
    listener.open()
