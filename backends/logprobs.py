"""Log probabilities as OpenAI's two forms show them."""

from collections.abc import Iterable, Sequence
from typing import Any

from backends.choices import Scored
from backends.contract import Tokenizer

LEAST = -9999.0
"""Stands for minus infinity, which JSON cannot say; vLLM shows the same number."""


def chat_logprobs(scored: Iterable[Scored], tokenizer: Tokenizer) -> dict[str, Any]:
    """The chat form: one object a token, with its bytes, since one token may be a part of a character."""

    def shown(token: int, logprob: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token)
        return {"token": raw.decode("utf-8", "replace"), "logprob": max(logprob, LEAST), "bytes": list(raw)}

    tokens = [each.token for each in scored]
    content = [
        {**shown(token.token_id, token.logprob), "top_logprobs": [shown(*other) for other in token.top]}
        for token in tokens
    ]
    return {"content": content}


def text_logprobs(scored: Sequence[Scored], tokenizer: Tokenizer) -> dict[str, Any]:
    """The form of text completions: four lists. The chosen token is always among the likeliest that are shown."""

    def text(token: int) -> str:
        return tokenizer.token_bytes(token).decode("utf-8", "replace")

    def top(each: Scored) -> dict[str, float]:
        chosen = (each.token.token_id, each.token.logprob)
        found: dict[str, float] = {}
        for token, logprob in (*each.token.top, chosen):
            found.setdefault(text(token), max(logprob, LEAST))
        return found

    return {
        "text_offset": [each.start for each in scored],
        "token_logprobs": [max(each.token.logprob, LEAST) for each in scored],
        "tokens": [text(each.token.token_id) for each in scored],
        "top_logprobs": [top(each) for each in scored],
    }
