"""Asks a gateway as a closed loop of users does, and reads every stream to its end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from bench.engine_load import Case, Talk

PATIENCE = 120.0  # seconds without a byte; a long queue of cold prompts on a busy machine takes a good part of it


@dataclass(slots=True)
class Answer:
    """What came of one request; `error` says why it is none. Times are seconds on one monotonic clock."""

    began: float
    ended: float = 0.0
    first_token: float | None = None
    worker: str = ""
    reason: str = ""
    text: str = ""
    finish: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    @property
    def ttft(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.began


async def ask_all(url: str, model: str, case: Case, talks: Sequence[Talk], each: Callable[[], None]) -> list[Answer]:
    """So many users take talk after talk from one list. `each` is called after every answer."""
    left = iter(talks)
    answers: list[Answer] = []
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:

        async def user() -> None:
            for talk in left:
                messages = [{"role": "system", "content": talk.system}]
                for question in talk.questions:
                    messages.append({"role": "user", "content": question})
                    answer = await ask(client, model, messages, case.answer_tokens)
                    answers.append(answer)
                    each()
                    messages.append({"role": "assistant", "content": answer.text})

        await asyncio.gather(*(user() for _ in range(case.users)))
    return answers


async def ask(client: httpx.AsyncClient, model: str, messages: list[dict[str, str]], tokens: int) -> Answer:
    """One streamed chat. Never raises for what the gateway or an engine does."""
    body = {
        "model": model, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    answer = Answer(began=time.perf_counter())
    done = False
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            answer.worker = response.headers.get("x-router-worker", "")
            answer.reason = response.headers.get("x-router-reason", "")
            if response.status_code != 200:
                said = (await response.aread()).decode("utf-8", "replace")
                answer.error = f"status {response.status_code}: {said[:200]}"
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    _take(answer, json.loads(line[6:]))
    except (httpx.HTTPError, ValueError) as wrong:
        answer.error = f"{type(wrong).__name__}: {wrong}"
    answer.ended = time.perf_counter()
    if answer.error is None and not (done and answer.finish and answer.prompt_tokens):
        answer.error = "the stream ended early"
    return answer


def _take(answer: Answer, event: dict[str, Any]) -> None:
    for choice in event.get("choices") or []:
        text = (choice.get("delta") or {}).get("content")
        if text:
            if answer.first_token is None:
                answer.first_token = time.perf_counter()
            answer.text += text
        answer.finish = choice.get("finish_reason") or answer.finish
    usage = event.get("usage")
    if usage:
        answer.prompt_tokens = usage["prompt_tokens"]
        answer.output_tokens = usage["completion_tokens"]
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
