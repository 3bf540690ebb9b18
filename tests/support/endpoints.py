"""The endpoints that read a prompt, and how the same words are said to each of them."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.support.client import post

Turns = Sequence[str]
"""The user's and the assistant's words in turn."""
ROLES = ("user", "assistant")


def turns_of(turns: Turns, *, parts: str | None = None) -> list[dict[str, Any]]:
    """As messages; `parts`: each text as a list of one part of this type."""
    return [
        {"role": ROLES[at % 2], "content": text if parts is None else [{"type": parts, "text": text}]}
        for at, text in enumerate(turns)
    ]


class Endpoint(NamedTuple):
    path: str
    said: Callable[[str, Turns], dict[str, Any]]
    part: str | None = None  # the type of a text part, where content may be a list of parts

    def body(self, system: str, *turns: str, **more: Any) -> bytes:
        return json.dumps({"model": "m", **self.said(system, turns), **more}).encode()

    def in_parts(self, system: str, *turns: str, **more: Any) -> bytes:
        """The same words as lists of parts."""
        said = self.said(system, turns)
        field = "input" if "input" in said else "messages"
        for message in said[field]:
            if isinstance(message["content"], str):
                message["content"] = [{"type": self.part, "text": message["content"]}]
        return json.dumps({"model": "m", **said, **more}).encode()

    def request(self, system: str, *turns: str, **more: Any) -> bytes:
        return post(self.body(system, *turns, **more), self.path)


def _chat(system: str, turns: Turns) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, *turns_of(turns)]}


def _messages(system: str, turns: Turns) -> dict[str, Any]:
    return {"system": system, "messages": turns_of(turns), "max_tokens": 16}


def _responses(system: str, turns: Turns) -> dict[str, Any]:
    return {"instructions": system, "input": turns_of(turns)}


def _completions(system: str, turns: Turns) -> dict[str, Any]:
    return {"prompt": "\n".join([system, *turns])}


def _ids(system: str, turns: Turns) -> dict[str, Any]:
    return {"prompt": [ord(character) for character in "\n".join([system, *turns])]}


def _tokenize(system: str, turns: Turns) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, *turns_of(turns)]}


def _embeddings(system: str, turns: Turns) -> dict[str, Any]:
    return {"input": "\n".join([system, *turns])}


CHAT = Endpoint("/v1/chat/completions", _chat, "text")
MESSAGES = Endpoint("/v1/messages", _messages, "text")
RESPONSES = Endpoint("/v1/responses", _responses, "input_text")
COMPLETIONS = Endpoint("/v1/completions", _completions)
IDS = Endpoint("/v1/completions", _ids)
TOKENIZE = Endpoint("/tokenize", _tokenize, "text")
EMBEDDINGS = Endpoint("/v1/embeddings", _embeddings)

TALKS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES, "completions": COMPLETIONS, "token ids": IDS}
"""Those that generate."""
PROMPTS = {**TALKS, "tokenize": TOKENIZE, "embeddings": EMBEDDINGS}

talks = pytest.mark.parametrize("endpoint", TALKS.values(), ids=TALKS)
prompts = pytest.mark.parametrize("endpoint", PROMPTS.values(), ids=PROMPTS)
parted = pytest.mark.parametrize("endpoint", [CHAT, MESSAGES, RESPONSES], ids=["chat", "messages", "responses"])
forms = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])

SYSTEM = "You are the assistant of a company that sells garden tools. Answer in one sentence, and be exact. " * 24


async def keys_of(running: Any, client: Any, requests: Sequence[bytes]) -> list[tuple[int, ...]]:
    """The prefix of each of these requests, as the gateway hashed it; log.hashes must be on."""
    before = len(running.finished)
    for request in requests:
        answer = await client.ask(request)
        assert answer.status == 200, answer.body
    found = [event.hashes for event in running.finished[before:]]
    assert len(found) == len(requests)
    return found
