"""OpenAI's API, as vLLM, SGLang and llama.cpp speak it: chat, completions, embeddings and their neighbours."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from router.contracts import Usage
from router.dialects import _reading as reading
from router.dialects._shapes import Chat, Message, Plain, StreamChoice, read_chat, read_chunk, read_plain
from router.errors import Refusal
from router.prompt import CALL, NAME, NEXT, TEXT, TOOLS, Prompt, ids, opened, stable, tagged, text, turn

CHAT: Final = "/v1/chat/completions"
TURNS: Final = {role: opened(role) for role in ("system", "developer", "user", "assistant", "tool")}


class OpenAI:
    name = "openai"
    native = False
    paths = (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank", "/v1/score",
             "/tokenize", "/detokenize")  # fmt: skip

    def read(self, path: str, body: bytes) -> Prompt:
        if path == CHAT:
            chat = reading.decode(body, read_chat, Chat)
            return _prompt(chat, chat_text(chat.messages, chat.tools)) if chat else Prompt(b"")
        plain = reading.decode(body, read_plain, Plain)
        return _prompt(plain, _plain_text(plain)) if plain else Prompt(b"")

    def has_token(self, event: bytes) -> bool:
        data = reading.event_data(event)
        if not data or data == b"[DONE]":
            return False
        try:
            chunk = read_chunk(data)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            return False
        if not chunk.choices:
            return isinstance(chunk.type, str) and chunk.type.endswith(".delta")
        return any(_carries(choice) for choice in chunk.choices)

    def usage(self, tail: bytes) -> Usage:
        return reading.json_usage(tail)

    def refusal(self, refusal: Refusal) -> tuple[bytes, bytes]:
        error = {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.code}
        return b"application/json", reading.error_body({"error": error})


def chat_text(messages: list[Message], tools: Any) -> bytes:
    """A chat's canonical bytes: tools first, as most templates render them, then every turn.

    A tool's schema counts in the order of keys it was sent in, as it does for the engine.
    """
    out: list[bytes] = []
    if tools:
        tagged(out, TOOLS, stable(tools))
    for message in messages:
        content = message.content
        try:
            out += (TURNS[message.role], content.encode())
        except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
            turn(out, message.role if isinstance(message.role, str) else "")
            reading.content(out, content)
        if message.tool_calls:
            tagged(out, CALL, stable(message.tool_calls))
        if message.tool_call_id or message.name:
            tagged(out, NAME, stable([message.tool_call_id, message.name]))
    return b"".join(out)


def _plain_text(plain: Plain) -> bytes:
    out: list[bytes] = []
    if plain.tools:
        tagged(out, TOOLS, stable(plain.tools))
    if isinstance(plain.instructions, str):
        turn(out, "system")
        text(out, plain.instructions)
    if isinstance(plain.messages, list):
        return b"".join(out) + chat_text(_messages(plain.messages), None)
    for value in (plain.prompt, plain.input, plain.query, plain.text_1):
        if value is not None:
            _any_prompt(out, value)
    return b"".join(out)


def _any_prompt(out: list[bytes], value: Any) -> None:
    """The four shapes of `prompt` (text, texts, ids, lists of ids), and the turns of a response's `input`."""
    if isinstance(value, str):
        out.append(TEXT)
        text(out, value)
    elif isinstance(value, list) and value and all(type(item) is int for item in value):
        ids(out, value)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            if isinstance(item, dict) and ("role" in item or "content" in item):
                out.append(chat_text(_messages([item]), None))  # a turn's own mark parts it, as in a chat
                continue
            if at:
                out.append(NEXT)
            _any_prompt(out, item)
    elif value is not None:
        tagged(out, NAME, stable(value))


def _messages(values: list[Any]) -> list[Message]:
    return [msgspec.convert(reading.fields(value), Message) for value in values]


def _prompt(body: Chat | Plain, canonical: bytes) -> Prompt:
    return Prompt(
        canonical,
        body.model if isinstance(body.model, str) else None,
        body.stream is True,
        body.cache_salt if isinstance(body.cache_salt, str) else None,
        body.prompt_cache_key if isinstance(body.prompt_cache_key, str) else None,
        body.model is None or isinstance(body.model, str),
        body.priority if type(body.priority) is int else None,
    )


def _carries(choice: StreamChoice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)


def build() -> OpenAI:
    return OpenAI()
