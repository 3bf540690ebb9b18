"""Any bytes from a worker."""

import asyncio
import json
from random import Random

import pytest

from tests.fuzz.mutations import mutated
from tests.fuzz.watching import watched
from tests.support.client import Client, chunked, post
from tests.support.gateway import Running, Stage
from tests.support.worker import DONE, Answer, Seen, event, reply

AT_ONCE = 60
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
SEEDS = [
    OK + b"content-length: 2\r\n\r\n{}", OK + b"transfer-encoding: chunked\r\n\r\n" + chunked(b"{", b"}"),
    OK + b"connection: close\r\n\r\n{}", EVENTS + b"transfer-encoding: chunked\r\n\r\n" + chunked(event("a"), DONE),
    EVENTS + b"\r\n" + event("a") + DONE, b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 2\r\n\r\n{}", b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + OK + b"content-length: 2\r\n\r\n{}",
    b"HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy", b"HTTP/1.1 304 Not Modified\r\n\r\n",
    b"HTTP/1.1 429 Busy\r\nretry-after: soon\r\ncontent-length: 4\r\n\r\nbusy", b"", b"\r\n",
    OK + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00",
    OK + b"transfer-encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nx-late: 1\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n\x00\x00",
    b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno" + OK + b"content-length: 2\r\n\r\n{}",
    EVENTS + b"transfer-encoding: chunked\r\n\r\n" + chunked(
        b'data: {"choices": [], "usage": {"prompt_tokens": 1e999, "completion_tokens": -1}}\n\n', b"data: [", DONE
    ),
]  # fmt: skip


async def hear(running: Running, at: int, data: bytes) -> None:
    """Ask for this input; the answer is whole, or it is cut."""
    client = await Client.connect(running.port)
    try:
        await client.send(post(json.dumps({"model": "m", "prompt": str(at), "stream": at % 2 == 0}).encode()))
        answer = await client.answer()
        assert 200 <= answer.status <= 599, data
    except (asyncio.IncompleteReadError, ConnectionError):
        raise AssertionError(f"{data!r} ended without an answer") from None
    finally:
        await client.close()


async def test_any_bytes_of_a_worker_are_an_answer_or_a_failure(
    stage: Stage, inputs: int, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    said: dict[str, Answer] = {}

    def answer(seen: Seen) -> Answer:
        return said.get(seen.json().get("prompt", ""), reply())

    watch = await watched(stage, await stage.worker(answer=answer), caplog)
    for start in range(0, inputs, AT_ONCE):
        for at in range(start, start + AT_ONCE):
            dice = Random(f"{seed} {at}")
            raw = mutated(dice, SEEDS)
            said[str(at)] = Answer(raw=raw, keep_alive=dice.random() < 0.2)
        batch = [hear(watch.running, at, said[str(at)].raw or b"") for at in range(start, start + AT_ONCE)]
        await asyncio.gather(*batch)
        await watch.look(f"FUZZ_SEED={seed}, inputs {start} to {start + AT_ONCE}")
        said.clear()
