"""Embeddings."""

from typing import Any

import openai
import pytest


async def test_the_official_client_reads_vectors_in_order(mock: Any) -> None:
    """It asks for base64 by itself."""
    worker = await mock()
    async with openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="k", max_retries=0) as client:
        answer = await client.embeddings.create(model="mock-model", input=["a tide", "rain", "a tide"])
        plain = await client.embeddings.create(model="mock-model", input="a tide", encoding_format="float")
    vectors = [entry.embedding for entry in answer.data]
    assert [entry.index for entry in answer.data] == [0, 1, 2]
    assert vectors[0] == vectors[2] != vectors[1]
    assert vectors[0] == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert answer.usage.prompt_tokens == 5


async def test_dimensions_cut_the_vector(mock: Any) -> None:
    worker = await mock()
    answer = (await worker.ask("/v1/embeddings", {"input": [1, 2, 3], "dimensions": 4})).json()
    assert len(answer["data"][0]["embedding"]) == 4


@pytest.mark.parametrize("value", ["", None, {}, [[]]])
async def test_no_input_is_a_400(mock: Any, value: Any) -> None:
    worker = await mock()
    assert (await worker.ask("/v1/embeddings", {"input": value})).status_code == 400
    assert (await worker.ask("/v1/embeddings", {})).status_code == 400
