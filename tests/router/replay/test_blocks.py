"""Block traces: names stand for prefixes, in every copy for its own."""

from router.replay.blocks import BlockLine, block_rows
from router.replay.item import BLOCK
from tests.support.replays import line, rows


def names(*lines: BlockLine, copy: int = 0, shared_head: bool = False) -> list[list[int]]:
    return [list(row.item(copy).names) for row in block_rows(lines, shared_head=shared_head)]


def test_equal_ids_are_equal_blocks() -> None:
    one, other = names(line(0, [7, 8]), line(1, [7, 9]))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_copies_have_blocks_of_their_own_but_for_those_named_by_text() -> None:
    (row,) = rows(line(0, ["head", 7]))
    itself, copy = row.item(0), row.item(1)
    assert itself.names[0] == copy.names[0]
    assert itself.names[1] != copy.names[1]
    assert itself.prefix.hashes[0] == copy.prefix.hashes[0]
    assert itself.prefix.hashes[-1] != copy.prefix.hashes[-1]


def test_prompts_that_share_blocks_share_the_rungs_within_them() -> None:
    one, other = (row.item().prefix for row in rows(line(0, [1, 2, 3]), line(1, [1, 2, 4])))
    same = [depth for depth, a, b in zip(one.depths, one.hashes, other.hashes, strict=False) if a == b]
    assert max(same) == 2 * BLOCK * 4


def test_a_last_block_that_is_not_full_takes_a_whole_ones_place() -> None:
    (row,) = block_rows([BlockLine(0, 700, 5, [1, 2])])
    assert (list(row.item().ends), row.item().tokens, row.item().prefix.tokens) == ([512, 1024], 700, 700)


def test_blocks_that_a_line_does_not_name_nobody_else_has() -> None:
    one, other = (row.item() for row in block_rows([BlockLine(0, 1500, 5, [1]), BlockLine(0, 1500, 5, [1])]))
    assert len(one.names) == len(other.names) == 3
    assert set(one.names) & set(other.names) == {one.names[0]}


def test_ids_beyond_the_length_are_left_out() -> None:
    (row,) = block_rows([BlockLine(0, 512, 5, [1, 2, 3])])
    assert len(row.item().names) == 1


def test_sessions_of_one_client_version_share_their_head_where_asked() -> None:
    lines = [line(0, [at * 10 + block for block in range(3)], session=f"s_{at}", head_tokens=1024) for at in (2, 4, 5)]
    apart = names(*lines)
    assert not set(apart[0]) & set(apart[1])
    two, four, five = names(*lines, shared_head=True)
    assert two[:2] == four[:2]
    assert two[2] != four[2]
    assert not set(two) & set(five)


def test_a_prompt_that_is_all_head_keeps_its_last_block() -> None:
    lines = [line(0, [at], session=name, head_tokens=4096) for at, name in enumerate("ab")]
    one, other = names(*lines, shared_head=True)
    assert one != other
