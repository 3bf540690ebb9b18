"""Facts that happened, small and frozen. Whoever wants to know them is a listener (`observe/`), and removable."""

from __future__ import annotations

import msgspec

from router.types import WorkerState


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """A worker was chosen for one attempt, `at` seconds of the clock."""

    request_id: str
    worker: str
    model: str
    reason: str
    key_depth: int
    prompt_tokens: int
    predicted_cached_tokens: int
    passed: tuple[str, ...]
    at: float


class AttemptFailed(msgspec.Struct, frozen=True, gc=False):
    """An attempt at a worker failed; `retried` says whether another follows. `reason`: why this worker was chosen;
    empty when it is sent there again on a fresh connection, which is no further choice."""

    worker: str
    kind: str
    retried: bool
    reason: str = ""
    model: str = ""
    predicted_cached_tokens: int = 0


class FirstToken(msgspec.Struct, frozen=True, gc=False):
    """The first event with content came, after so many seconds of those `allowed` by the promise."""

    model: str
    seconds: float
    allowed: float = 0.0


class Shadowed(msgspec.Struct, frozen=True, gc=False):
    """A second policy was asked too: what its choice and the one made would cost, in tokens until the first token."""

    policy: str
    differs: bool
    cost: float
    made: float


class Queued(msgspec.Struct, frozen=True, gc=False):
    """A request left the waiting room, for a worker (`admitted`) or not. `how`: admitted, expired, pushed_out, gone or
    no_worker. `warm`: of one that waited for the worker that holds its prompt, whether it got that one."""

    seconds: float
    admitted: bool
    priority: int = 0
    how: str = ""
    warm: bool | None = None


class NoPlace(msgspec.Struct, frozen=True, gc=False):
    """The waiting room took a request not in: it was full, or the wait too long."""

    priority: int


class Limited(msgspec.Struct, frozen=True, gc=False):
    """A caller asked for more than its rate allows, of `kind` requests or prompt_tokens."""

    kind: str


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False):
    """A request's time was up in this phase."""

    phase: str


class Finished(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A request is over, whoever answered it. `status` is 499 when the client went away.

    Never holds prompt text or keys. Times are seconds since the request's first byte, None for what never came.
    `chance_cached_tokens`: what a worker drawn at random was expected to hold.
    `hashes` are the prefix's chained hashes and `prompt_bytes` its canonical length, for the replay of a log, and only
    there when asked for. `client`: the address that asks; `resumed`: how often another worker went on with the stream.
    """

    request_id: str
    path: str
    model: str
    status: int
    code: str | None = None
    tenant: str | None = None
    stream: bool = False
    worker: str | None = None
    reason: str | None = None
    policy: str | None = None
    tries: int = 0
    key_depth: int = 0
    prompt_tokens: int = 0
    output_tokens: int | None = None
    predicted_cached_tokens: int = 0
    cached_tokens: int | None = None
    usage_reported: bool = False
    chance_cached_tokens: int = 0
    first_byte_seconds: float | None = None
    first_token_seconds: float | None = None
    decision_seconds: float = 0.0
    seconds: float = 0.0
    cancelled_in: str | None = None
    cut: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    hashes: tuple[int, ...] | None = None
    prompt_bytes: int = 0
    client: str = ""
    resumed: int = 0


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """A stream that could be gone on with broke: another worker `went_on`, this one, or it was `cut` after this one."""

    worker: str
    result: str


class WorkerChanged(msgspec.Struct, frozen=True, gc=False):
    """A worker's state moved."""

    worker: str
    before: WorkerState
    after: WorkerState
    cause: str


class WorkerLeft(msgspec.Struct, frozen=True, gc=False):
    """A worker is known no more; its series go with it."""

    worker: str


class Panicked(msgspec.Struct, frozen=True, gc=False):
    """Nearly all workers look bad (`began`), or no longer do."""

    began: bool


Event = (
    Chosen
    | AttemptFailed
    | FirstToken
    | Shadowed
    | Queued
    | NoPlace
    | Limited
    | DeadlinePassed
    | Finished
    | Resumed
    | WorkerChanged
    | WorkerLeft
    | Panicked
)
