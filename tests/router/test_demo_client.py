"""The demo's client against a server that sends exactly the bytes it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import pytest

from router import demo_client
from router.demo_client import Answer, chat

EVENTS = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "deep "}}]},
    {"choices": [{"index": 0, "delta": {"content": "sea"}}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}},
    },
)
STREAM = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in EVENTS)
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nx-router-worker: worker-2\r\ntransfer-encoding: chunked\r\n\r\n"


def chunks(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


@asynccontextmanager
async def server(pieces: Iterable[bytes], pause: float = 0.0) -> AsyncIterator[tuple[int, list[bytes]]]:
    asked: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        asked.append(await reader.readexactly(length))
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1], asked
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def ask(*pieces: bytes, pause: float = 0.0) -> Answer:
    async with server(pieces, pause) as (port, _):
        return await chat("127.0.0.1", port, [{"role": "user", "content": "?"}], 2)


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_stream_is_read_however_it_is_cut(size: int) -> None:
    answer = await ask(HEAD + chunks(STREAM + DONE, size) + b"0\r\n\r\n")
    assert answer.error is None
    assert (answer.worker, answer.text) == ("worker-2", "deep sea")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 32


async def test_the_first_token_is_the_first_event_with_content() -> None:
    role, words = STREAM.split(b"\n\n", 1)
    answer = await ask(HEAD + chunks(role + b"\n\n", 999), chunks(words + DONE, 999) + b"0\r\n\r\n", pause=0.1)
    assert answer.ttft is not None
    assert 0.1 <= answer.ttft <= answer.ended - answer.began


async def test_usage_is_asked_for() -> None:
    async with server([HEAD + chunks(STREAM + DONE, 99) + b"0\r\n\r\n"]) as (port, asked):
        await chat("127.0.0.1", port, [{"role": "user", "content": "?"}], 7)
    body = json.loads(asked[0])
    assert (body["stream"], body["stream_options"], body["max_tokens"]) == (True, {"include_usage": True}, 7)


async def test_a_cut_connection_is_an_error() -> None:
    assert (await ask(HEAD + chunks(STREAM, 99))).error == "the connection was cut"


async def test_a_stream_without_its_end_is_an_error() -> None:
    assert (await ask(HEAD + chunks(STREAM, 99) + b"0\r\n\r\n")).error == "the stream ended early"


async def test_a_refusal_is_an_error_with_its_reason() -> None:
    body = b'{"error": {"message": "No worker is ready."}}'
    head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert (await ask(head + body)).error == "status 503: No worker is ready."


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", HEAD + chunks(b"data: {nonsense\n\n", 99)])
async def test_nonsense_is_an_error(said: bytes) -> None:
    error = (await ask(said)).error
    assert error is not None
    assert "could not be read" in error


async def test_a_closed_port_is_an_error() -> None:
    async with server([]) as (port, _):
        pass
    assert (await chat("127.0.0.1", port, [], 1)).error is not None


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_client, "PATIENCE", 0.1)
    answer = await ask(HEAD, pause=0.3)
    assert answer.error == "no complete answer within 0.1 s"
