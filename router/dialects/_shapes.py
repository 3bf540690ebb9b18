"""What is read of OpenAI's bodies, and of the usage in any answer: only the fields that say something here.

Apart from the code that reads them, so that what is compiled holds no such class.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class Message(msgspec.Struct, gc=False):
    role: Any = ""
    content: Any = None
    tool_calls: Any = None
    name: Any = None
    tool_call_id: Any = None


class Chat(msgspec.Struct, gc=False):
    messages: list[Message] = []
    model: Any = None
    stream: Any = False
    tools: Any = None
    cache_salt: Any = None
    priority: Any = None
    prompt_cache_key: Any = None


class Plain(msgspec.Struct, gc=False):
    """Completions, embeddings, responses, rerank, score and tokenize: whichever field carries the text."""

    model: Any = None
    stream: Any = False
    prompt: Any = None
    input: Any = None
    messages: Any = None
    instructions: Any = None
    query: Any = None
    text_1: Any = None
    tools: Any = None
    cache_salt: Any = None
    priority: Any = None
    prompt_cache_key: Any = None


class Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None


class StreamChoice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    text: Any = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[StreamChoice] = []
    type: Any = None


Count = Annotated[int, msgspec.Meta(ge=0)]


class CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class ReportedUsage(msgspec.Struct, gc=False):
    """Usage in OpenAI's and in Anthropic's names."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: CachedTokens | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: CachedTokens | None = None
    cache_read_input_tokens: Count | None = None


class Reporting(msgspec.Struct, gc=False):
    usage: ReportedUsage | None = None


read_chat = msgspec.json.Decoder(Chat).decode
read_plain = msgspec.json.Decoder(Plain).decode
read_chunk = msgspec.json.Decoder(Chunk).decode
read_usage = msgspec.json.Decoder(Reporting).decode
