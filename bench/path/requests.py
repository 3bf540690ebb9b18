"""The requests as they go over the wire, in the file that the load generator reads."""

from __future__ import annotations

from pathlib import Path

from bench.load import SESSIONS, body
from bench.path.cases import Case

# The session's name stands in a header too: some of the peers route by it, and one of them by just this one.
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    b"authorization: Bearer sk-test\r\nuser-agent: OpenAI/Python 1.0\r\naccept: application/json\r\n"
    b"x-session-id: session-%d\r\ncontent-length: %d\r\n\r\n%s"
)


def request(session: int, size: int, *, stream: bool) -> bytes:
    chat = body(session, size, stream=stream)
    return HEAD % (session, len(chat), chat)


def write(folder: Path, case: Case) -> Path:
    """A file of one request for each session, each after its length in four bytes, little end first."""
    path = folder / f"{case.size}{'-stream' if case.stream else ''}.requests"
    if not path.exists():
        sessions = (request(session, case.size, stream=case.stream) for session in range(SESSIONS))
        path.write_bytes(b"".join(len(each).to_bytes(4, "little") + each for each in sessions))
    return path
