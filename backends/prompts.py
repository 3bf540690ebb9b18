"""What clients send as a prompt, in all its shapes, made into a conversation or into token ids.

Nothing is refused that a real worker would take: text parts give their text, every other part stands as a short digest
(its content still makes a difference, its megabytes do not), tool calls as their JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from xxhash import xxh3_64_hexdigest

from backends.contract import Chat, Tokenizer, Turn
from backends.wire import ApiError


def conversation(messages: Sequence[Any], tools: Sequence[Any] = (), system: Any = None) -> Chat:
    """Raises ApiError where a message is no object or has no role."""
    first = [] if system is None else [Turn("system", text_of(system))]
    turns = [turn(message, place) for place, message in enumerate(messages)]
    return Chat((*first, *turns), tuple(compact(tool) for tool in tools))


def turn(message: Any, place: int) -> Turn:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ApiError(400, f"messages[{place}] needs a text as its role.", param="messages")
    text = text_of(message.get("content"))
    if message.get("tool_calls"):
        text += compact(message["tool_calls"])
    return Turn(message["role"], text)


def text_of(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(map(_part, content))
    return compact(content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else "part"
    return f"<{kind}:{xxh3_64_hexdigest(compact(part).encode('utf-8', 'surrogatepass'))}>"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def token_lists(value: Any, tokenizer: Tokenizer, field: str) -> list[list[int]]:
    """A text, texts, ids, or lists of ids: one list of ids each. Empty ones are refused, as vLLM does."""
    many = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    found = [tokenizer.encode(one) if isinstance(one, str) else one for one in many]
    for ids in found:
        if not isinstance(ids, list) or not ids or not all(map(_is_token, ids)):
            message = f"`{field}` must be a text, a list of texts, token ids, or a list of these, and not empty."
            raise ApiError(400, message, param=field)
    return found


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
