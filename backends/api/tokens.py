"""vLLM's `/tokenize` and `/detokenize`."""

from typing import Any

import msgspec

from backends.face import Call, Route
from backends.prompts import conversation, token_lists
from backends.wire import ApiError, read, send_json


class TokenizeBody(msgspec.Struct, kw_only=True):
    """A text or a conversation; `return_token_strs` adds each token's text."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Any] | None = None
    tools: list[Any] | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False


class DetokenizeBody(msgspec.Struct, kw_only=True):
    tokens: list[int]
    model: str | None = None


def tokenize(call: Call) -> None:
    body = read(call.body(), TokenizeBody)
    call.model(body.model)
    tokenizer = call.engine.tokenizer
    if body.messages is not None:
        chat = conversation(body.messages, body.tools or ())
        ids = tokenizer.chat(chat, open_answer=body.add_generation_prompt)
    elif body.prompt is not None:
        ids = tokenizer.encode(body.prompt)
    else:
        raise ApiError(400, "`prompt` or `messages` is required.", param="prompt")
    texts = [tokenizer.decode([token]) for token in ids] if body.return_token_strs else None
    shown = {"count": len(ids), "max_model_len": call.engine.max_model_len, "tokens": ids, "token_strs": texts}
    send_json(call.answer, shown)


def detokenize(call: Call) -> None:
    body = read(call.body(), DetokenizeBody)
    call.model(body.model)
    ids = token_lists(body.tokens, call.engine.tokenizer, "tokens")[0] if body.tokens else []
    send_json(call.answer, {"prompt": call.engine.tokenizer.decode(ids)})


ROUTES = (Route("POST", "/tokenize", tokenize), Route("POST", "/detokenize", detokenize))
