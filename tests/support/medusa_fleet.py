"""Workers with the real model behind a gateway, in processes of their own, and what clients see of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.medusa_process import PATIENCE, Process, process
from tests.support.processes import gateway

MODEL = "smollm2-135m"
SMALL = ("--max-running", "4", "--max-model-len", "768", "--cache-blocks", "256", "--drain-seconds", "0")
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "completions": "/v1/completions"}


def chat(question: str, system: str = "You are brief.", most: int = 16, **more: Any) -> dict[str, Any]:
    turns = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": MODEL, "messages": turns, "max_tokens": most, **more}


def messages(question: str, system: str = "You are brief.", most: int = 16, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": question}]
    return {"model": MODEL, "system": system, "messages": turns, "max_tokens": most, **more}


@dataclass(kw_only=True)
class Heard:
    """A stream as its client heard it. `first`: seconds until the first text; `comments`: lines that are no data."""

    worker: str
    first: float = 0.0
    text: str = ""
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)

    @property
    def cached_tokens(self) -> int:
        return int(self.usage["prompt_tokens_details"]["cached_tokens"])

    def hear(self, event: dict[str, Any]) -> None:
        """One event of a chat, a completion or a message."""
        for choice in event.get("choices", ()):
            self.text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            self.finish = choice["finish_reason"] or self.finish
        delta = event.get("delta", {})
        self.text += delta.get("text", "")
        self.finish = delta.get("stop_reason") or self.finish
        self.usage |= event.get("usage") or event.get("message", {}).get("usage") or {}


@dataclass
class Front:
    """A gateway, or a worker asked directly."""

    http: httpx.Client

    def whole(self, body: dict[str, Any], path: str = PATHS["chat"]) -> httpx.Response:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer

    def hearing(self, body: dict[str, Any], path: str = PATHS["chat"]) -> Iterator[Heard]:
        """The same account after every line; a caller that stops listening closes the connection."""
        began = time.monotonic()
        with self.http.stream("POST", path, json={**body, "stream": True}) as answer:
            assert answer.status_code == 200, answer.read()
            heard = Heard(worker=answer.headers.get("x-router-worker", ""))
            for line in answer.iter_lines():
                if line.startswith(":"):
                    heard.comments.append(line)
                elif line.startswith("data: {"):
                    heard.hear(json.loads(line[6:]))
                if heard.text and not heard.first:
                    heard.first = time.monotonic() - began
                yield heard

    def heard(self, body: dict[str, Any], path: str = PATHS["chat"]) -> Heard:
        """The whole stream; of a chat or a completion with its usage."""
        usage = {} if path == PATHS["messages"] else {"stream_options": {"include_usage": True}}
        *_, last = self.hearing({**body, **usage}, path)
        return last

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self.http.get("/metrics").text, re.MULTILINE)
        return sum(map(float, found))


@dataclass
class Fleet:
    """`workers`: by the id that the gateway knows them by."""

    front: Front
    workers: dict[str, Front]
    processes: dict[str, Process]

    def is_at_rest(self) -> bool:
        """Nobody runs or waits at a worker, and the gateway has nothing charged to any."""
        rows = self.front.http.get("/admin/workers").json()["workers"]
        charged = [row[name] for row in rows for name in ("in_flight", "outstanding_tokens")]
        seats = [
            one.metric(f"vllm:num_requests_{name}") for one in self.workers.values() for name in ("running", "waiting")
        ]
        return not any(charged) and not any(seats)

    def of_workers(self, name: str) -> float:
        return sum(one.metric(name) for one in self.workers.values())


def address(worker: Process) -> str:
    return str(worker.http.base_url).removeprefix("http://").rstrip("/")


@contextmanager
def behind_a_gateway(*workers: Process, **settings: Any) -> Iterator[Fleet]:
    """These, which are loaded, as vLLM servers; `settings` are the gateway's."""
    known = [{"url": str(worker.http.base_url), "labels": {"engine": "vllm"}} for worker in workers]
    with gateway([], workers=known, **settings) as program, front_of(program.url) as front:
        named = {address(worker): worker for worker in workers}
        yield Fleet(front, {name: Front(worker.http) for name, worker in named.items()}, named)


@contextmanager
def front_of(url: str) -> Iterator[Front]:
    with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as http:
        yield Front(http)


@contextmanager
def loaded(*flags: tuple[str, ...]) -> Iterator[list[Process]]:
    """A worker for each of these, small besides; they load side by side."""
    with ExitStack() as stack:
        started = [stack.enter_context(process(*SMALL, *more)) for more in flags]
        yield [worker.until_loaded() for worker in started]
