"""SageMaker's one path."""

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"messages": [{"role": "user", "content": "a"}]}, "chat.completion"),
        ({"prompt": "a"}, "text_completion"),
        ({"input": "a"}, "list"),
    ],
)
async def test_the_bodys_shape_says_which_api_is_meant(mock: Any, body: Any, kind: str) -> None:
    worker = await mock()
    assert (await worker.ask("/invocations", body)).json()["object"] == kind


async def test_a_stream_comes_through_here_too(mock: Any) -> None:
    worker = await mock()
    answer = await worker.ask("/invocations", {"prompt": "a", "stream": True})
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("body", [{}, [], "text", None])
async def test_any_other_shape_is_a_400(mock: Any, body: Any) -> None:
    worker = await mock()
    assert (await worker.ask("/invocations", body)).status_code == 400
