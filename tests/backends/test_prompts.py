"""Messages to conversations, and prompts to ids."""

from typing import Any

import pytest

from backends.contract import Turn
from backends.mock.tokenizer import MockTokenizer
from backends.prompts import conversation, text_of, token_lists
from backends.wire import ApiError


def test_a_text_and_one_text_part_of_it_are_the_same() -> None:
    assert text_of("abc") == text_of([{"type": "text", "text": "abc"}]) == text_of(["a", "bc"])


def test_other_parts_count_by_their_content_and_stay_short() -> None:
    one, other = ([{"type": "image_url", "image_url": {"url": "x" * 9000 + end}}] for end in "ab")
    assert text_of(one) != text_of(other)
    assert len(text_of(one)) < 40


def test_tool_calls_without_content_are_not_nothing() -> None:
    chat = conversation([{"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}])
    assert chat.turns == (Turn("assistant", '[{"id":"c1"}]'),)


def test_a_system_text_of_its_own_comes_first() -> None:
    chat = conversation([{"role": "user", "content": "q"}], [{"b": 1, "a": 2}], "s")
    assert chat.turns == (Turn("system", "s"), Turn("user", "q"))
    assert chat.tools == ('{"b":1,"a":2}',)


@pytest.mark.parametrize("message", [None, "text", {}, {"role": 1}])
def test_a_message_without_a_role_is_refused(message: Any) -> None:
    with pytest.raises(ApiError):
        conversation([message])


@pytest.mark.parametrize("value", [{"odd": 1}, 5, [5, None]])
def test_odd_content_is_taken_as_its_json(value: Any) -> None:
    assert text_of(value)


def test_prompts_become_one_list_of_ids_each() -> None:
    tokenizer = MockTokenizer()
    assert token_lists([7, 8], tokenizer, "prompt") == [[7, 8]]
    assert token_lists(["abcd", [5]], tokenizer, "prompt") == [tokenizer.encode("abcd"), [5]]
