"""Traces with full text: real hashing, and the workers' own count of tokens."""

from router.replay.item import Item
from router.replay.textual import TEXT_BLOCK, TextLine, text_rows
from router.replay.tokens import token_ends

SYSTEM = "You are the assistant of a small observatory and answer in whole sentences. " * 8
LINES = [
    TextLine(0, SYSTEM + "Who looks at Mars tonight?", "Nobody does.", "a"),
    TextLine(1000, SYSTEM + "When does the moon rise?", "At nine.", "b"),
    TextLine(2000, SYSTEM + "Who looks at Mars tonight? Nobody does. Why?", "", "a"),
]


def items(copy: int = 0, *, exact: bool = False) -> list[Item]:
    return [row.item(copy) for row in text_rows(LINES, exact=exact)]


def common(one: Item, other: Item) -> int:
    return len(set(one.names) & set(other.names))


def test_the_worker_counts_tokens_of_its_own_and_the_router_estimates() -> None:
    first, *_ = items()
    text = LINES[0].input.encode()
    assert first.tokens == len(token_ends(text))
    assert first.prefix.tokens == len(text) / 4
    assert first.output == len(token_ends(b"Nobody does."))


def test_the_router_may_be_told_true_tokens() -> None:
    first, *_ = items(exact=True)
    assert first.prefix.tokens == first.tokens


def test_texts_share_the_full_blocks_within_what_they_have_in_common() -> None:
    first, second, third = items()
    assert common(first, second) == len(token_ends(SYSTEM.encode())) // TEXT_BLOCK
    assert common(first, third) == len(first.names)
    assert list(first.ends)[:2] == [16, 32]


def test_a_copy_parts_where_its_session_parts_from_the_others() -> None:
    (first, second, third), (copied, _, later) = items(), items(1)
    assert common(first, copied) == common(first, second)
    assert common(copied, later) == len(copied.names)
    assert common(third, later) == common(first, second)


def test_true_lengths_in_the_trace_are_believed() -> None:
    (row,) = text_rows([TextLine(0, SYSTEM, "", None, 1000, 7)], exact=True)
    made = row.item()
    assert (made.tokens, made.output, made.prefix.tokens) == (1000, 7, 1000)
    assert made.ends[-1] <= 1000


def test_an_empty_prompt_is_one_token() -> None:
    (row,) = text_rows([TextLine(0, "")])
    assert (row.item().tokens, list(row.item().names), row.item().prefix.tokens) == (1, [], 0)
