"""Tokenize and detokenize."""

from typing import Any

import pytest


async def test_text_goes_to_ids_and_back(mock: Any) -> None:
    worker = await mock()
    text = "Ebbe und Flut, 潮汐 🌊\n"
    answer = (await worker.ask("/tokenize", {"prompt": text, "return_token_strs": True})).json()
    assert answer["count"] == len(answer["tokens"])
    assert "".join(answer["token_strs"]) == text
    assert answer["max_model_len"] == 131_072
    assert (await worker.ask("/detokenize", {"tokens": answer["tokens"]})).json() == {"prompt": text}
    assert (await worker.ask("/detokenize", {"tokens": []})).json() == {"prompt": ""}


async def test_a_conversation_has_the_ids_that_a_chat_counts(mock: Any) -> None:
    worker = await mock()
    messages = [{"role": "user", "content": "What is a tide?"}]
    ids = (await worker.ask("/tokenize", {"messages": messages})).json()
    chat = (await worker.ask("/v1/chat/completions", {"messages": messages})).json()
    assert ids["count"] == chat["usage"]["prompt_tokens"]


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {}), ("/detokenize", {}), ("/detokenize", {"tokens": [-1]})])
async def test_what_is_missing_is_a_400(mock: Any, path: str, body: Any) -> None:
    worker = await mock()
    assert (await worker.ask(path, body)).status_code == 400
