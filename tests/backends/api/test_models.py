"""The model list."""

from typing import Any


async def test_every_name_has_an_entry_with_vllms_extra_fields(mock: Any) -> None:
    worker = await mock("--model", "one", "--model", "two", "--model", "one")
    answer = (await worker.http.get("/v1/models")).json()
    assert [entry["id"] for entry in answer["data"]] == ["one", "two"]
    assert answer["object"] == "list"
    for entry in answer["data"]:
        assert entry["max_model_len"] == 131_072
        assert entry["owned_by"] == "vllm"
        assert entry["root"] == entry["id"]


async def test_the_default_model_is_mock_model(mock: Any) -> None:
    worker = await mock()
    assert (await worker.http.get("/v1/models")).json()["data"][0]["id"] == "mock-model"
    assert (await worker.chat()).json()["model"] == "mock-model"
