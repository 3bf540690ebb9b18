"""A request's body reaches the worker as it came: what the gateway does not know is not its to drop or to mend."""

import asyncio
import base64
import json

import pytest

from tests.support.client import in_chunks, post
from tests.support.endpoints import forms
from tests.support.gateway import Stage, ask
from tests.support.worker import DONE, Worker, cut, echo, event, reply, stream

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank",
         "/v1/score", "/tokenize", "/detokenize")  # fmt: skip
every_path = pytest.mark.parametrize("path", PATHS)

ODD: dict[str, bytes] = {
    "unknown fields": b'"chat_template_kwargs":{"style":"short"},"min_p":0.05,"x_future":{"a":[1,{"b":null}]}',
    "a large integer": b'"seed": 123456789012345678901234567890, "logit_bias": {"50256": -100}',
    "numbers in every form": b'"temperature": 1.0, "top_p": 1e0, "x": [1.50, -0.0, 0.1e-7, 1E+2]',
    "the same key twice": b'"n": 1, "n": 2, "messages": [], "model": "m"',
    "escapes": rb'"x": "\u00e9\/\n\u0000\ud83d\ude00", "\u0061": "\u0061"',
    "no ASCII": '"x": "Grüße, 世界 🌍 \u202e\u2028"'.encode(),
    "lone surrogates": rb'"x": "\ud800 \udfff", "user": "\udc00"',
    "no UTF-8": b'"x": "\xff\xfe\x80"',
    "no number": b'"x": NaN, "y": -Infinity',
    "odd spaces": b'\r\n\t  "x"  :  1\n\n , "y":2\t',
    "empty things": b'"": "", "x": {}, "y": [], "z": null',
    "depth": b'"x": ' + b"[" * 200 + b"]" * 200,
    "two megabytes": b'"x": "' + b"words and " * 200_000 + b'"',
}


def body_of(fields: bytes, *, stream: bool) -> bytes:
    said = b'"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi", "query": "hi"'
    return b'{"model": "m", %s, "stream": %s, %s}' % (fields, b"true" if stream else b"false", said)


@every_path
@forms
async def test_a_body_passes_byte_for_byte_on_every_path(stage: Stage, path: str, stream: bool) -> None:
    worker = await stage.worker()
    client = await stage.client(await stage.gateway(worker))
    for name, fields in ODD.items():
        body = body_of(fields, stream=stream)
        assert (await client.ask(post(body, path))).status == 200, name
        assert worker.bodies[-1] == body, name
        assert worker.requests[-1].target == path.encode()
        assert worker.requests[-1].one("content-length") == b"%d" % len(body)
        assert worker.requests[-1].one("content-type") == b"application/json"


@every_path
async def test_a_body_in_chunks_is_the_same_body(stage: Stage, path: str) -> None:
    worker = await stage.worker()
    client = await stage.client(await stage.gateway(worker))
    for name in ("unknown fields", "no UTF-8", "odd spaces"):
        body = body_of(ODD[name], stream=False)
        assert (await client.ask(in_chunks(body, path))).status == 200, name
        assert worker.bodies[-1] == body, name


@forms
async def test_a_body_cut_anywhere_is_the_same_body(stage: Stage, stream: bool) -> None:
    """Within a letter, a number, an escape: wherever the network cuts."""
    worker = await stage.worker()
    client = await stage.client(await stage.gateway(worker))
    body = body_of(ODD["no ASCII"] + b"," + ODD["escapes"], stream=stream)
    whole = post(body)
    for at in range(len(whole) - len(body), len(whole), 7):
        await client.send(*cut(whole, at), gap=0.001)
        assert (await client.answer()).status == 200
    assert set(worker.bodies) == {body}


async def test_what_the_worker_tells_back_is_what_was_sent(stage: Stage) -> None:
    client = await stage.client(await stage.gateway(await stage.worker(answer=echo)))
    body = body_of(ODD["lone surrogates"], stream=False)
    headers = [("X-Future", "a, b"), ("Accept-Language", "de;q=0.5"), ("X-Empty", "")]
    told = (await client.ask(post(body, "/v1/chat/completions?x=%20y", headers))).json()
    assert (told["method"], told["path"]) == ("POST", "/v1/chat/completions?x=%20y")
    assert base64.b64decode(told["body"]) == body
    passed = {name.lower(): value for name, value in told["headers"]}
    assert (passed["x-future"], passed["accept-language"], passed["x-empty"]) == ("a, b", "de;q=0.5", "")


async def test_every_worker_that_is_tried_gets_the_same_bytes(stage: Stage) -> None:
    bodies = [body_of(fields, stream=False) for fields in ODD.values()]
    workers = [await stage.worker(answer=reply(b"{}", 503)) for _ in range(3)]
    running = await stage.gateway(*workers)
    for body in bodies:
        seen = [len(worker.requests) for worker in workers]
        assert (await ask(running.port, post(body))).status == 503
        tried = [worker for worker, count in zip(workers, seen, strict=True) if len(worker.requests) > count]
        assert tried
        assert {worker.bodies[-1] for worker in tried} == {body}


async def test_bodies_that_run_at_once_are_not_mixed(stage: Stage) -> None:
    workers = [await stage.worker(answer=echo) for _ in range(2)]
    running = await stage.gateway(*workers)

    async def one(at: int) -> None:
        body = json.dumps({"model": "m", "prompt": f"number {at} " * (at * 40 + 1), "n": at}).encode()
        client = await stage.client(running)
        request = post(body, "/v1/completions")
        await client.send(*cut(request, len(request) // 3, len(request) // 2), gap=0.01)
        assert base64.b64decode((await client.answer()).json()["body"]) == body

    await asyncio.gather(*[one(at) for at in range(40)])


ANSWERS = [
    reply(b'{ "x" : 1.0, "x": 2,\n "big": 123456789012345678901234567890, "\\u0061": "\xff" }'),
    stream(*cut(event("Grüße 🌍", x_future={"a": 1.0}) + b'data: {"n":1e0, "n":NaN}\n\n' + DONE, 5, 31, 90, -3)),
]


@every_path
@pytest.mark.parametrize("answer", ANSWERS, ids=["plain", "streaming"])
async def test_an_answer_passes_byte_for_byte_on_every_path(stage: Stage, path: str, answer: object) -> None:
    worker: Worker = await stage.worker(answer=answer)
    client = await stage.client(await stage.gateway(worker))
    got = await client.ask(post(body_of(ODD["escapes"], stream=True), path))
    assert got.whole
    assert got.body == b"".join(worker.answer.pieces)
