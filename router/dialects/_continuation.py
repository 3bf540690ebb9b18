"""A request whose stream another worker can go on with, and how it is asked for the rest.

The new worker is sent the text so far as the beginning of its answer. That is only done where a text is all there is to
the answer: no tool call, no reasoning, and no shape that an engine holds it to, whose state no text tells.
"""

from __future__ import annotations

from typing import Any

import msgspec

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENGINES = frozenset(("llamacpp", "sglang", "vllm"))  # they go on with a last assistant message, where asked to
MOST_BODY = 4_194_304  # of a request that is kept while its stream runs

NEVER = (
    "audio", "best_of", "echo", "ebnf", "function_call", "functions", "grammar", "json_schema", "kv_transfer_params",
    "logprobs", "n", "prompt_embeds", "prompt_logprobs", "regex", "return_token_ids", "structural_tag",
    "structured_outputs", "suffix", "top_logprobs", "truncate_prompt_tokens", "use_beam_search",
)  # fmt: skip
NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})
PLAIN: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "modalities": (["text"],), "response_format": ({"type": "text"},),
    "tool_choice": ("auto", "none"),
}  # fmt: skip
AT_MOST = ("max_tokens", "max_completion_tokens", "n_predict")


def asked(body: bytes) -> dict[str, Any] | None:
    """A request's body, where it is plain JSON of a size that can be kept."""
    if len(body) > MOST_BODY:
        return None
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def can_go_on(path: str, body: bytes) -> bool:
    """Whether a stream that answers this may be gone on with by its text."""
    value = asked(body)
    if value is None or value.get("stream") is not True or not _is_plain(value):
        return False
    if path == COMPLETIONS:
        return isinstance(value.get("prompt"), str)
    return path == CHAT and _ends_open(value)


def _is_plain(value: dict[str, Any]) -> bool:
    """One plain text is asked for."""
    names = (*NEVER, *PLAIN, *(name for name in value if name.startswith("guided_")))
    return all(value.get(name) in (*NOTHING, *PLAIN.get(name, ())) for name in names)


def _ends_open(value: dict[str, Any]) -> bool:
    """A chat that awaits an answer, or goes on with one whose text can be added to."""
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        return False
    last, goes_on = messages[-1], value.get("continue_final_message") or False
    if last.get("role") != "assistant":
        return goes_on is False and value.get("add_generation_prompt", True) is True
    return goes_on is True and isinstance(last.get("content"), str) and not last.get("tool_calls")


def onward(path: str, body: bytes, text: str, spoken: int) -> bytes | None:
    """The request for the rest of an answer that said this text in so many tokens; None where nothing is left."""
    value = asked(body)
    if value is None or not text:
        return body
    for name in AT_MOST:
        most = value.get(name)
        if type(most) is int and most > 0:
            if most <= spoken:
                return None
            value[name] = most - spoken
    if type(value.get("min_tokens")) is int:
        value["min_tokens"] = max(0, value["min_tokens"] - spoken)
    _add(path, value, text)
    return msgspec.json.encode(value)


def _add(path: str, value: dict[str, Any], text: str) -> None:
    """Let the request's answer begin with this text."""
    if path != CHAT:
        value["prompt"] += text
    elif value.get("continue_final_message"):
        value["messages"][-1]["content"] += text
    else:
        value["messages"].append({"role": "assistant", "content": text})
        value.update(add_generation_prompt=False, continue_final_message=True)
