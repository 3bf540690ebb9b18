"""What is known of a request so far, and at its end the one fact that the log and the metrics are made of."""

from __future__ import annotations

from router.contracts import Ask, Usage
from router.core.choose import Choice
from router.events import Finished
from router.proxy.relay import NO_USAGE

MOST_MODEL = 128  # characters of a client's model name that reach a log


class Record:
    __slots__ = ("attempts", "bytes_in", "cached", "choice", "first_byte", "first_token", "model", "path", "predicted",
                 "request_id", "started", "stream", "tenant", "tokens")  # fmt: skip

    def __init__(self, request_id: str, path: str, started: float) -> None:
        self.request_id = request_id
        self.path = path
        self.started = started
        self.model = ""
        self.tenant: str | None = None
        self.stream = False
        self.attempts = 0
        self.bytes_in = 0
        self.choice: Choice | None = None
        self.first_byte: float | None = None
        self.first_token: float | None = None
        self.tokens = 0.0
        self.predicted = 0.0

    def asked(self, model: str | None, ask: Ask, *, stream: bool) -> None:
        self.model = (model or "")[:MOST_MODEL]
        self.stream = stream
        self.tokens = ask.prefix.tokens

    def attempted(self, choice: Choice) -> None:
        self.attempts += 1
        self.choice = choice
        self.predicted = choice.expected

    def finished(
        self,
        now: float,
        status: int,
        *,
        policy: str,
        ask: Ask | None,
        usage: Usage = NO_USAGE,
        code: str | None = None,
        cancelled_in: str | None = None,
        cut: bool = False,
        bytes_out: int = 0,
        hashes: bool = False,
    ) -> Finished:
        choice = self.choice
        return Finished(
            request_id=self.request_id,
            path=self.path,
            model=self.model,
            status=status,
            code=code,
            tenant=self.tenant,
            stream=self.stream,
            worker=choice.seat.id if choice else None,
            reason=choice.reason.value if choice else None,
            policy=policy if choice else None,
            tries=self.attempts,
            key_depth=ask.key.depth if ask else 0,
            prompt_tokens=int(self.tokens) if usage.prompt is None else usage.prompt,
            output_tokens=usage.output,
            predicted_cached_tokens=int(self.predicted),
            cached_tokens=usage.cached,
            usage_reported=usage.prompt is not None,
            first_byte_seconds=self.first_byte,
            first_token_seconds=self.first_token,
            seconds=now - self.started,
            cancelled_in=cancelled_in,
            cut=cut,
            bytes_in=self.bytes_in,
            bytes_out=bytes_out,
            hashes=tuple(ask.prefix.hashes) if hashes and ask else None,
        )
