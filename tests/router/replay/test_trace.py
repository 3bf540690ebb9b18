"""Any of three forms, told apart by the first line."""

import json

import pytest

from router.core.fingerprint import fingerprint
from router.replay.rows import TraceError
from router.replay.trace import read
from tests.support.replays import conversations, written

LOGGED = {
    "time": "2026-03-01T00:00:01.000Z", "request_id": "r", "worker": "w", "prompt_tokens": 250,
    "hashes": fingerprint(b"x" * 1000, 0).hashes,
}  # fmt: skip


def lines(*objects: object) -> list[bytes]:
    return written(objects).splitlines(keepends=True)  # type: ignore[arg-type]


def test_block_traces_are_known_by_their_names() -> None:
    rows = read(lines(*conversations(3, 2)))
    assert len(rows) == 6
    assert rows[0].item().tokens == 3 * 512


def test_full_text_is_known_by_its_input() -> None:
    (row,) = read(lines({"timestamp": 5, "input": "hello there", "session": "s"}))
    assert (row.at, row.session, row.item().tokens) == (0.0, "s", 2)


def test_full_text_may_be_counted_exactly() -> None:
    (row,) = read(lines({"timestamp": 5, "input": "1 2 3 4"}), exact=True)
    assert row.item().prefix.tokens == row.item().tokens


def test_an_access_log_is_known_by_its_request_ids_and_its_gaps_are_passed() -> None:
    dropped = {"time": "2026-03-01T00:00:00.000Z", "dropped_lines": 3}
    (row,) = read(lines(dropped, LOGGED, dropped))
    assert list(row.item().names) == LOGGED["hashes"]


def test_blank_lines_are_passed_and_a_limit_holds_in_time() -> None:
    held = lines(*conversations(3, 2))
    rows = read([b"\n", *reversed(held), b"  \n"], limit=2)
    assert [row.at for row in rows] == [0.0, 0.4]


def test_the_head_may_be_shared() -> None:
    session = {"input_length": 1024, "output_length": 1, "head_tokens": 512}
    held = lines(*({**session, "timestamp": 0, "session": f"s_{at}", "hash_ids": [at, at + 1]} for at in (2, 4)))
    apart, shared = ([row.item().names[0] for row in read(held, shared_head=head)] for head in (False, True))
    assert apart[0] != apart[1]
    assert shared[0] == shared[1]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([], "the trace is empty"),
        ([b"\n"], "the trace is empty"),
        ([b"\n", b"hello\n"], "line 2: not JSON"),
        ([b"\xff\xfe\n"], "line 1: not JSON"),
        (lines({"prompt": "x"}), "line 1: expected a JSON object a line with `hash_ids`"),
        (lines([1, 2]), "line 1: expected a JSON object a line"),
        (lines({"hash_ids": [1]}), "line 1: .*missing required field `timestamp`"),
        (lines(*conversations(1, 1), {"hash_ids": "x"}), r"line 2: .*\$.hash_ids"),
        ([*lines(*conversations(1, 1)), b'{"hash_ids": ['], "line 2: "),
        (lines({**conversations(1, 1)[0], "input_length": 0}), "line 1: Expected `int` >= 1"),
        (lines({**LOGGED, "hashes": None}), r"log\.hashes: true"),
        (lines({"timestamp": 1, "input": 3}), "line 1: Expected `str`, got `int`"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(held: list[bytes], expected: str) -> None:
    with pytest.raises(TraceError, match=expected):
        read(held)


def test_lone_surrogates_do_no_harm() -> None:
    text = json.dumps({"timestamp": 0, "input": "a b"}).encode()
    assert len(read([text])) == 1
