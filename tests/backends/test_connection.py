"""Bytes on a real socket: framing of requests, order of answers, clients that go."""

import asyncio
from typing import Any

import pytest

GET = b"GET /health HTTP/1.1\r\nhost: w\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nhost: w\r\nconnection: close\r\n\r\n"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


async def test_requests_sent_ahead_are_answered_in_order(mock: Any, post: Any) -> None:
    """Pipelining: the second answer does not overtake the slower first."""
    worker = await mock()
    answer = await worker.raw(
        post("/v1/chat/completions", CHAT, close=False) + GET + post("/tokenize", {"prompt": "a"})
    )
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"chat.completion") < answer.index(b"content-length: 0") < answer.index(b'"count"')


async def test_a_request_may_come_byte_by_byte(mock: Any, post: Any) -> None:
    worker = await mock()
    reader, writer = await worker.connect()
    for byte in post("/tokenize", {"prompt": "abcd"}):
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert b'"count":1' in await reader.read()
    writer.close()


async def test_a_chunked_request_body_is_put_together(mock: Any) -> None:
    worker = await mock()
    head = b"POST /tokenize HTTP/1.1\r\nhost: w\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    assert b'"count":1' in await worker.raw(head + b'8\r\n{"prompt\r\n9\r\n":"abcd"}\r\n0\r\n\r\n')


async def test_who_expects_a_go_ahead_gets_one(mock: Any) -> None:
    """Also when an answer is still under way: then after it."""
    worker = await mock()
    reader, writer = await worker.connect()
    head = (
        b"POST /tokenize HTTP/1.1\r\nhost: w\r\ncontent-length: 14\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n"
    )
    writer.write(GET + head)
    answer = await reader.readuntil(b"100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    writer.write(b'{"prompt":"a"}')
    assert b"200 OK" in await reader.read()
    writer.close()


@pytest.mark.parametrize(
    "bad",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: w\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nhost: w\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_a_400_after_the_good_ones_and_the_end(mock: Any, bad: bytes) -> None:
    worker = await mock()
    answer = await worker.raw(GET + bad)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400 Bad Request" in answer
    assert b'"code":400' in answer


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_beyond_the_limit_is_a_413_that_names_it_and_the_end(mock: Any, post: Any, chunked: bool) -> None:
    """It is read to its end, so that the client hears the answer, and kept nowhere."""
    worker = await mock()
    worker.server.body_limit = 1000
    fits = post("/tokenize", b'{"prompt":"' + b"a" * 987 + b'"}', close=False)
    large = post("/tokenize", b"x" * 100_000, close=False)
    if chunked:
        head = b"POST /tokenize HTTP/1.1\r\nhost: w\r\ntransfer-encoding: chunked\r\n\r\n"
        large = head + (b"3e8\r\n" + b"x" * 1000 + b"\r\n") * 100 + b"0\r\n\r\n"
    answer = await worker.raw(fits + large + GET)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.count(b"HTTP/1.1") == 2
    assert b"HTTP/1.1 413 " in answer
    assert b"may have 1000 bytes" in answer


async def test_an_old_client_is_answered_and_left(mock: Any, post: Any) -> None:
    worker = await mock()
    answer = await worker.raw(post("/v1/chat/completions", {**CHAT, "stream": True}, version="1.0"))
    assert b"chunked" not in answer
    assert answer.endswith(b"data: [DONE]\n\n")


async def test_an_upgrade_nobody_offers_is_a_plain_request(mock: Any) -> None:
    worker = await mock()
    answer = await worker.raw(b"GET /health HTTP/1.1\r\nhost: w\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_far_too_many_requests_ahead_are_all_answered_still(mock: Any) -> None:
    """Reading is paused, not given up."""
    worker = await mock()
    answer = await worker.raw(GET * 300 + LAST)
    assert answer.count(b"200 OK") == 301


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["waiting", "prefill", "decode"])
async def test_a_client_that_goes_ends_its_work_in_every_phase(
    mock: Any, post: Any, eventually: Any, stream: bool, phase: str
) -> None:
    """Nothing leaks: no sequence, no block, no connection; the next plain request is served."""
    slow = {"waiting": ("--max-running", "1"), "prefill": ("--prefill-tokens-per-second", "0.01"), "decode": ()}[phase]
    worker = await mock("--decode-tokens-per-second", "0.01", *slow)
    body = {**CHAT, "max_tokens": 1000, "stream": stream}
    clients = [await worker.connect() for _ in range(3)]
    for _, writer in clients:
        writer.write(post("/v1/chat/completions", body, close=False))
    await eventually(lambda: worker.ledger.started == 3)
    if phase == "decode":
        await eventually(lambda: worker.engine.stats().running == 3)
    for _, writer in clients:
        writer.close()
    await eventually(lambda: worker.ledger.aborted == 3)
    stats = worker.engine.stats()
    assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
    await eventually(lambda: not worker.server.connections)
    assert (await worker.http.get("/health")).status_code == 200
