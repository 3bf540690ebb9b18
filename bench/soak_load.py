"""The soak's requests: chats with common beginnings, streams, large prompts, clients that leave or read slowly.

What a mock worker says is a function of the prompt, so an answer is right when it is what a worker that stands apart,
asked directly, says to the same prompt.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from bench.soak_client import Connection, Manner, Outcome

PATH = "/v1/chat/completions"
APPS, TURNS = 40, 6
CHECKED = 0.04  # of the prompts that come once: the others' answers are only read
TOKENS = {"stream": 16, "slow": 1500, "gone": 200}  # 4 for the others
KINDS = {"json": 52, "stream": 30, "once": 8, "big": 2, "gone": 6, "slow": 2}


@dataclass(frozen=True, slots=True)
class Request:
    kind: str
    body: bytes
    tokens: int
    stream: bool
    known: bool  # it comes again and again


class Load:
    """`users` send `rate` requests a second in all, for as long as `going`. `told` hears of every outcome."""

    def __init__(
        self, port: int, reference: int, rate: float, users: int, told: Callable[[Request, Outcome, str], None]
    ) -> None:
        self._port, self._reference, self._rate, self._users = port, reference, rate, users
        self._told = told
        self._dice = random.Random(1)
        self._ids = count(1)
        self._expected: dict[bytes, asyncio.Future[str]] = {}
        self._drawn: dict[tuple[str, int, int], Request] = {}
        self.going = True

    async def run(self) -> None:
        self._next_at = time.monotonic()
        await asyncio.gather(*(self._user() for _ in range(self._users)))

    async def _user(self) -> None:
        connection, reference = Connection(self._port), Connection(self._reference)
        while self.going:
            now = time.monotonic()
            self._next_at = max(self._next_at + 1 / self._rate, now - 1.0)
            await asyncio.sleep(max(0.0, self._next_at - now))
            request, request_id = self._draw(), f"soak-{next(self._ids)}"
            expected = await self._expect(request, reference) if request.known else None
            outcome = await connection.ask(PATH, request.body, request_id, self._manner(request.kind))
            if request.kind in ("once", "big") and outcome.whole and self._dice.random() < CHECKED:
                expected = await self._ask_reference(request, reference)
            self._told(request, outcome, fault_of(request, outcome, request_id, expected))
        connection.close()
        reference.close()

    def _draw(self) -> Request:
        (kind,) = self._dice.choices(list(KINDS), KINDS.values())
        app, turn = self._dice.randrange(APPS), self._dice.randrange(TURNS)
        if kind in ("once", "big"):
            text = f"{self._dice.getrandbits(64):x} " * (40 if kind == "once" else 12_000)
            return request_of(kind, app, turn, text)
        found = self._drawn.get((kind, app, turn))
        if found is None:
            found = self._drawn[kind, app, turn] = request_of(kind, app, turn)
        return found

    def _manner(self, kind: str) -> Manner:
        if kind == "gone":
            return Manner(leave_after=self._dice.random() * 0.3)
        return Manner(pause=0.02) if kind == "slow" else Manner()

    async def _expect(self, request: Request, reference: Connection) -> str:
        """What the worker apart says to a prompt that comes again; it is asked once."""
        waiting = self._expected.get(request.body)
        if waiting is None:
            waiting = self._expected[request.body] = asyncio.get_running_loop().create_future()
            waiting.set_result(await self._ask_reference(request, reference))
        return await waiting

    async def _ask_reference(self, request: Request, reference: Connection) -> str:
        outcome = await reference.ask(PATH, request.body, "reference", Manner())
        assert outcome.whole, "the worker apart did not answer"
        return said(request, outcome)


def request_of(kind: str, app: int, turn: int, text: str | None = None) -> Request:
    """The request of this app's turn; `text` stands in place of its last question."""
    messages = [{"role": "system", "content": f"You are app {app}. " + f"Rule {app} of the house. " * 60}]
    for at in range(turn + 1):
        messages += [{"role": "user", "content": f"question {at} of {app}: " + "why is it so? " * 12}]
        messages += [{"role": "assistant", "content": f"answer {at} of {app}"}] if at < turn else []
    if text is not None:
        messages[-1]["content"] = text
    stream, tokens = kind in ("stream", "gone", "slow"), TOKENS.get(kind, 4)
    asked = {"model": "mock-model", "messages": messages, "max_tokens": tokens, "stream": stream}
    return Request(kind, json.dumps(asked).encode(), tokens, stream, kind in ("json", "stream"))


def said(request: Request, outcome: Outcome) -> str:
    """The text of an answer. Raises ValueError for what is no answer."""
    if not request.stream:
        return str(json.loads(outcome.body)["choices"][0]["message"]["content"])
    if request.kind == "slow":  # too long to be read in full each time
        if not outcome.body.endswith(b"data: [DONE]\n\n") or outcome.body.count(b'"content"') < request.tokens:
            raise ValueError("a part is missing")
        return ""
    events = [line[6:] for line in bytes(outcome.body).split(b"\n\n") if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise ValueError("no [DONE]")
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    if not choices or choices[-1]["finish_reason"] != "length":
        raise ValueError("no finish reason")
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def fault_of(request: Request, outcome: Outcome, request_id: str, expected: str | None) -> str:
    """What is wrong with an answer that looks whole; empty when nothing is."""
    if outcome.status != 200 or not outcome.whole:
        return ""
    if outcome.request_id != request_id:
        return f"the answer to {outcome.request_id or 'nobody'} came to {request_id}"
    try:
        text = said(request, outcome)
    except (ValueError, KeyError, IndexError, TypeError) as wrong:
        return f"no answer: {type(wrong).__name__} {wrong}"
    return "another text" if expected is not None and text != expected else ""
