"""The file of requests."""

import json
from pathlib import Path

import pytest

from bench.load import SESSIONS
from bench.path.cases import BY_NAME, CASES, Case
from bench.path.requests import write


def read(path: Path) -> list[bytes]:
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_session_has_a_whole_request_of_about_the_size(case: Case, tmp_path: Path) -> None:
    requests = read(write(tmp_path, case))
    assert len(requests) == SESSIONS
    for session, each in enumerate(requests):
        head, _, body = each.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        assert b"x-session-id: session-%d\r\n" % session in head
        assert head.endswith(b"content-length: %d" % len(body))
        assert json.loads(body)["stream"] is case.stream
        assert case.size * 0.85 < len(body) < case.size * 1.15


def test_sessions_differ_from_their_first_words_on(tmp_path: Path) -> None:
    requests = read(write(tmp_path, BY_NAME["json-2k"]))
    assert len({each.partition(b"\r\n\r\n")[2][:100] for each in requests}) == SESSIONS


def test_a_stream_and_a_plain_answer_have_files_of_their_own(tmp_path: Path) -> None:
    assert write(tmp_path, BY_NAME["sse"]) != write(tmp_path, BY_NAME["json-2k"])
