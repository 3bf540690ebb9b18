"""The official OpenAI client and httpx, as people use them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from tests.support.client import CHAT, HELLO
from tests.support.gateway import Running, Stage, eventually
from tests.support.worker import DONE, event, full_backlog, reply, stream

MESSAGES = [{"role": "user", "content": "hello"}]
CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
WHOLE = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello, world"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}  # fmt: skip


@asynccontextmanager
async def client_of(running: Running, **options: object) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx.AsyncClient(trust_env=False, timeout=10)
    settings = {"api_key": "s3cret", "max_retries": 0, **options}
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", http_client=http, **settings) as made:  # type: ignore[arg-type]
        yield made


async def test_a_whole_answer(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(json.dumps(WHOLE).encode()))
    running = await stage.gateway(worker)
    async with client_of(running) as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "Hello, world"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 7
    assert worker.requests[0].json()["messages"] == MESSAGES
    assert worker.requests[0].one("authorization") == b"Bearer s3cret"


async def test_a_stream_with_all_that_a_worker_may_put_in_it(stage: Stage) -> None:
    pieces = [event("Hello", **CHUNK), b": still here\n\n", event(", ", **CHUNK), event("world", **CHUNK), DONE]
    running = await stage.gateway(await stage.worker(answer=stream(*pieces, gap=0.01)))
    async with client_of(running) as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        text = [chunk.choices[0].delta.content async for chunk in answer]
    assert text == ["Hello", ", ", "world"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, openai.BadRequestError), (401, openai.AuthenticationError), (404, openai.NotFoundError),
     (422, openai.UnprocessableEntityError), (429, openai.RateLimitError), (500, openai.InternalServerError),
     (503, openai.InternalServerError)],
)  # fmt: skip
async def test_a_workers_errors(stage: Stage, status: int, kind: type[openai.APIStatusError], streaming: bool) -> None:
    body = {"error": {"message": "the worker says no", "type": "x", "param": None, "code": "own"}}
    running = await stage.gateway(await stage.worker(answer=reply(json.dumps(body).encode(), status)))
    async with client_of(running) as client:
        with pytest.raises(kind, match="the worker says no") as caught:
            await client.chat.completions.create(model="m", messages=MESSAGES, stream=streaming)
    assert caught.value.status_code == status
    assert caught.value.request_id == caught.value.response.headers["x-request-id"]


async def test_the_gateways_own_errors(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), auth={"api_keys": ["s3cret"]})
    stage.headers = [("x-api-key", "s3cret")]
    async with client_of(running, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.chat.completions.create(model="m", messages=MESSAGES)
        assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
    async with client_of(running) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="nothing", messages=MESSAGES)
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        assert [model.id async for model in client.models.list()] == ["m"]


async def test_a_stream_that_is_cut_raises(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(answer=stream(event("1", **CHUNK), event("2", **CHUNK), stop=2)))
    async with client_of(running) as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        assert [(await anext(answer)).choices[0].delta.content for _ in range(2)] == ["1", "2"]
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            await anext(answer)


async def test_leaving_a_stream_stops_the_worker(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(event("1", **CHUNK), stop=1, ending="hang"))
    running = await stage.gateway(worker)
    async with client_of(running) as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        async for _ in answer:
            break
        await answer.close()
        await eventually(lambda: worker.aborted == 1)


async def test_a_call_that_is_cancelled_stops_the_worker(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(stop=-1, ending="hang"))
    running = await stage.gateway(worker)
    async with client_of(running) as client:
        call = asyncio.ensure_future(client.chat.completions.create(model="m", messages=MESSAGES))
        await eventually(lambda: worker.running == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await eventually(lambda: worker.aborted == 1)


async def test_httpx_decodes_what_the_worker_compressed(stage: Stage) -> None:
    from tests.support.worker import zipped

    running = await stage.gateway(await stage.worker(answer=zipped(reply(b'{"a": 1}'))))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.port}", trust_env=False) as client:
        answer = await client.post(CHAT, content=HELLO)
    assert answer.json() == {"a": 1}


async def test_httpx_may_send_its_body_in_pieces(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(HELLO), 7):
            yield HELLO[at : at + 7]
            await asyncio.sleep(0)

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.port}", trust_env=False) as client:
        for _ in range(2):
            assert (await client.post(CHAT, content=pieces())).status_code == 200
    assert worker.bodies == [HELLO, HELLO]


async def test_a_hundred_calls_over_one_client(stage: Stage) -> None:
    workers = [await stage.worker(answer=reply(json.dumps(WHOLE).encode(), delay=0.01)) for _ in range(3)]
    running = await stage.gateway(*workers)
    async with client_of(running) as client:
        calls = [
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"{at}"}])
            for at in range(100)
        ]
        answers = await asyncio.gather(*calls)
    assert len(answers) == sum(worker.started for worker in workers) == 100


def test_a_full_backlog_takes_no_connection() -> None:
    """The tool of other stories does what it says."""
    import socket

    listener, waiting, port = full_backlog()
    with socket.socket() as late:
        late.settimeout(0.1)
        with pytest.raises(TimeoutError):
            late.connect(("127.0.0.1", port))
    for sock in (listener, *waiting):
        sock.close()
