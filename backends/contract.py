"""What an engine is: every shape that the HTTP face and an engine share, on one page.

An engine turns token ids into tokens over time. It knows nothing of HTTP, of JSON or of who asks. The face knows
nothing of how tokens come about. A mock and a real model stand behind the same face because both hold to these laws:

* Everything happens on the event loop's thread. An engine with threads of its own hops back before it calls a sink.
* A sink is called from the engine's own turn of the event loop: never from inside `start` or `abort`, of whichever
  sequence. After its `abort` has been called it is not called at all.
* A sink hears `prefilled` once, then `tokens` any number of times, then `finished` once. `abort` may end this at any
  point, and so may `failed`, the last that is heard then.
* `abort` is idempotent and gives back all that the sequence held, whatever phase it is in.
* A sink may start and abort sequences while it is called, its own too: that is how a stop string ends an answer. The
  face finds stop strings and runs one job for each of several answers; an engine knows neither.

A worker may listen while its model is still being loaded: `loading.Loading` stands behind the face in the meantime.
Until the face's `loaded()` is true, `/health`, `/ping` and all work are answered with 503 and `Retry-After`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

FinishReason = Literal["stop", "length"]


class JobRefusedError(Exception):
    """The engine will not start this job; nothing ran and nothing is held. The message is for the client (a 400)."""


class EngineNotReadyError(Exception):
    """Asked for something that the engine knows only once its model is loaded (a 503)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sequence to run. `max_tokens` None leaves the length to the engine; `embed` asks for a vector and no tokens.

    `salt` separates caches: two jobs with different salts never share a cached block, an absent salt is not an empty
    one. `temperature` is None or 0 to 2, `top_p` None or above 0 to 1: the face has checked them, and None leaves them
    to the engine. Equal jobs with a seed give equal answers. `logprobs` is how many of the likeliest tokens are wanted
    beside each chosen one, 0 for the chosen one's alone; None wants none, and is all that an engine without
    `has_logprobs` is given.
    """

    model: str
    prompt: Sequence[int]
    max_tokens: int | None = None
    salt: str | None = None
    embed: bool = False
    ignore_eos: bool = False
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as they are billed. `cached_tokens` is the part of the prompt that was not computed again."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """How a sequence ended by itself. An aborted one has no end: its sink hears nothing more."""

    reason: FinishReason
    usage: Usage
    vector: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token's natural log probability (at most 0, or minus infinity), and the likeliest tokens with theirs,
    the best first: as many as the job asked for."""

    token_id: int
    logprob: float
    top: Sequence[tuple[int, float]] = ()


class Sink(Protocol):
    """The listener of one sequence."""

    def prefilled(self, usage: Usage) -> None:
        """The prompt is computed; the usage so far, with what came from the cache."""

    def tokens(self, pieces: Sequence[str], logprobs: Sequence[TokenLogprob] | None = None) -> None:
        """The text of one or more new tokens, one string a token; a string is empty while its character is incomplete.
        `logprobs` has one entry a piece where the job asked for them, else it is None."""

    def finished(self, end: End) -> None:
        """The sequence is over and holds nothing any more."""

    def failed(self) -> None:
        """The engine gave the sequence up in the middle, for no fault of its job, and holds nothing of it any more: a
        500, or a stream that is cut."""


class Sequencing(Protocol):
    """A started sequence, as far as its owner may touch it."""

    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation free of API dialect. Tools are texts because every template prints them, and prints them first."""

    turns: Sequence[Turn]
    tools: Sequence[str] = ()


class Tokenizer(Protocol):
    """Equal beginnings of text give equal beginnings of ids, and `chat` keeps that over whole conversations."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Any ids of 0 to 2**63: what stands for nothing is left out or shown as U+FFFD, and never an error."""

    def token_bytes(self, token: int) -> bytes:
        """What one token of the vocabulary stands for: a character may be split over several. A control token's are
        its name's."""

    def chat(self, chat: Chat, *, open_answer: bool = True, open_turn: bool = False) -> list[int]:
        """The ids of the rendered conversation; with `open_answer` it ends where the assistant begins to speak, with
        `open_turn` where its last turn's text does, so that this can go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A look at the engine now. `queried_tokens` and `hit_tokens` are the prefix cache's, in tokens, as vLLM counts
    them."""

    running: int = 0
    waiting: int = 0
    peak_running: int = 0
    kv_usage: float = 0.0
    blocks: int = 0
    block_tokens: int = 16
    prompt_tokens: int = 0
    generated_tokens: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    finished: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """What stands behind the face."""

    @property
    def models(self) -> Sequence[str]:
        """The names it answers to; the first is the default."""

    @property
    def max_model_len(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def has_logprobs(self) -> bool:
        """Whether a job may ask for log probabilities; where it may not, the face refuses the request."""

    def start(self, job: Job, sink: Sink) -> Sequencing:
        """Takes the job in, or raises JobRefusedError. Model, length and sampling were checked by the face; whether the
        prompt's ids are in the vocabulary is for the engine to check."""

    def stats(self) -> Stats: ...

    def close(self) -> None:
        """Aborts what runs and gives back threads, sockets and memory."""
