"""What goes in comes out: bodies byte for byte both ways, each piece as it arrives, headers by the hop-by-hop law."""

import asyncio
import gzip

import pytest

from tests.support.client import CHAT, HELLO, STREAM, post
from tests.support.gateway import Stage, ask
from tests.support.worker import DONE, Answer, event, reply, stream, zipped

ODD_BODIES = {
    "unknown fields": b'{"model":"m","messages":[],"chat_template_kwargs":{"a":"b"},"x_future":{"a":[1,{"b":null}]}}',
    "big integers and 1.0": b'{"model": "m", "seed": 123456789012345678901234567890, "temperature": 1.0, "top_p": 1e0}',
    "duplicate keys": b'{"model": "m", "messages": [], "n": 1, "n": 2}',
    "non-ASCII": '{"model": "m", "messages": [{"role": "user", "content": "Grüße, 世界 🌍"}]}'.encode(),
    "lone surrogates": b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800 \\udfff"}]}',
    "invalid UTF-8": b'{"model": "m", "messages": [{"role": "user", "content": "\xff\xfe\x80"}]}',
    "odd spacing": b'\r\n {\t"model" :"m" ,"messages":[ ] }\n\n',
    "a byte order mark": b'\xef\xbb\xbf{"model": "m", "messages": []}',
    "NaN": b'{"model": "m", "messages": [], "logit_bias": {"1": NaN}}',
    "a list": b'[{"model": "m"}]',
    "a number": b"42",
    "null": b"null",
    "messages of another shape": b'{"model": "m", "messages": {"role": 1}}',
    "deep nesting": b'{"model": "m", "x": ' + b"[" * 300 + b"]" * 300 + b"}",
    "a megabyte": b'{"model": "m", "messages": [{"role": "user", "content": "' + b"long " * 200_000 + b'"}]}',
}


async def test_a_request_body_reaches_the_worker_byte_for_byte(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for name, body in ODD_BODIES.items():
        assert (await ask(running.port, post(body))).status == 200, name
        assert worker.bodies[-1] == body, name
        assert worker.requests[-1].one("content-length") == b"%d" % len(body), name


async def test_every_shape_of_prompt_passes(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    bodies = [b'{"model":"m","prompt":%s}' % prompt for prompt in (b'"a"', b'["a","b"]', b"[1,2]", b"[[1,2],[3,4]]")]
    for body in bodies:
        assert (await ask(running.port, post(body, "/v1/completions"))).status == 200
    assert worker.bodies == bodies


PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank",
         "/v1/score", "/tokenize", "/detokenize")  # fmt: skip


async def test_every_path_reaches_the_same_path_of_the_worker(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for path in PATHS:
        assert (await ask(running.port, post(b'{"model": "m", "input": "text"}', path))).status == 200
    assert [request.target for request in worker.requests] == [path.encode() for path in PATHS]
    assert {request.method for request in worker.requests} == {"POST"}


ANSWERS = {
    "a length": reply(b'{"choices": [ ] , "x": 1.0}\n'),
    "chunks": stream(b"data: one\n\ndata: t", b"wo\n\n", DONE),
    "no framing": Answer(pieces=(b"until ", b"the end"), framing="eof"),
    "nothing": reply(b""),
    "bytes of every kind": reply(bytes(range(256)) * 300),
    "comments and empty events": stream(b": still here\n\n", b"retry: 5000\n\n", b"id: 7\n\ndata:\n\n", DONE),
    "carriage returns": stream(b'data: {"a": 1}\r\n\r\n', b"data:{}\r\r", b"data: [DONE]\r\n\r\n"),
    "NDJSON": stream(b'{"a": 1}\n', b'{"b": 2}\n', headers=(("content-type", "application/x-ndjson"),)),
}


@pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
async def test_an_answer_reaches_the_client_byte_for_byte(stage: Stage, body: bytes) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for name, given in ANSWERS.items():
        worker.answer = given
        answer = await ask(running.port, post(body))
        assert (answer.status, answer.whole) == (200, True), name
        assert answer.body == b"".join(piece for piece in given.pieces if isinstance(piece, bytes)), name
        assert answer.one("content-type") == dict(given.headers)["content-type"], name


async def test_each_piece_goes_on_as_it_arrives(stage: Stage) -> None:
    """The worker sends the next piece only once the client has the one before, whole event or not."""
    gates = [asyncio.Event() for _ in range(4)]
    pieces = [event("one"), b"data: {", b'"two": 2}\n', b"\n"]
    worker = await stage.worker(
        answer=stream(*[each for pair in zip(pieces, gates, strict=True) for each in pair], DONE)
    )
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    for piece, gate in zip(pieces, gates, strict=True):
        assert await client.piece(answer) == piece
        gate.set()
    await client.rest(answer)
    assert answer.whole
    assert answer.body == b"".join(pieces) + DONE


async def test_the_head_goes_on_before_any_piece(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=stream(gate, DONE))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    assert (await client.head()).status == 200
    gate.set()


async def test_the_head_waits_for_the_workers(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=lambda _: reply(b'{"error": "no"}', 422, delay=0.3))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    reading = asyncio.ensure_future(client.head())
    await asyncio.sleep(0.1)
    assert not reading.done()
    assert (await reading).status == 422
    gate.set()


@pytest.mark.parametrize("plain", [reply(b'{"answer": "' + b"a" * 500 + b'"}'), reply(b'{"error": "x"}', 400)])
@pytest.mark.parametrize("accepts", [True, False])
async def test_a_compressed_answer_passes_as_it_is(stage: Stage, plain: Answer, accepts: bool) -> None:
    worker = await stage.worker(answer=zipped(plain))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post(headers=[("Accept-Encoding", "gzip")] if accepts else []))
    assert (answer.status, answer.one("content-encoding")) == (plain.status, "gzip")
    assert answer.one("content-length") == str(len(answer.body))
    assert gzip.decompress(answer.body) == plain.pieces[0]
    assert worker.requests[0].one("accept-encoding") == (b"gzip" if accepts else None)


async def test_a_compressed_stream_passes_as_it_is(stage: Stage) -> None:
    plain = stream(event("one"), DONE)
    worker = await stage.worker(answer=zipped(plain))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post(STREAM))
    assert answer.whole
    assert gzip.decompress(answer.body) == event("one") + DONE


async def test_what_belongs_to_one_connection_does_not_cross_to_the_worker(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    headers = [
        ("Connection", "keep-alive, X-Secret-Hop"), ("X-Secret-Hop", "1"), ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic eDp5"), ("Proxy-Connection", "keep-alive"), ("Trailer", "x-t"),
        ("TE", "trailers"), ("X-Kept", "yes"), ("X-Twice", "1"), ("X-Twice", "2"),
        ("Traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
        ("Tracestate", "vendor=1"), ("Accept", "text/event-stream"), ("User-Agent", "tester/1"),
    ]  # fmt: skip
    assert (await ask(running.port, post(headers=headers))).status == 200
    seen = worker.requests[0]
    for name in (
        "connection",
        "x-secret-hop",
        "keep-alive",
        "te",
        "proxy-authorization",
        "proxy-connection",
        "trailer",
    ):
        assert seen.all(name) == [], name
    assert seen.all("x-twice") == [b"1", b"2"]
    assert seen.one("host") == worker.id.encode()
    assert seen.one("x-kept") == b"yes"
    assert seen.one("traceparent") == b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    assert seen.one("tracestate") == b"vendor=1"
    assert (seen.one("accept"), seen.one("user-agent")) == (b"text/event-stream", b"tester/1")


async def test_a_credential_named_in_connection_does_not_cross_either(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    headers = [("Connection", "Authorization, cookie"), ("Authorization", "Bearer mine"), ("Cookie", "a=b")]
    assert (await ask(running.port, post(headers=headers))).status == 200
    assert worker.requests[0].all("authorization") == []
    assert worker.requests[0].all("cookie") == []


async def test_what_belongs_to_one_connection_does_not_cross_to_the_client(stage: Stage) -> None:
    given = (
        ("content-type", "application/json"), ("Connection", "keep-alive, X-Worker-Hop"), ("X-Worker-Hop", "1"),
        ("Keep-Alive", "timeout=9"), ("Proxy-Authenticate", "Basic"), ("X-Kept", "yes"), ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"), ("X-Router-Worker", "an impostor"), ("X-Request-Id", "the worker's own"),
    )  # fmt: skip
    worker = await stage.worker(answer=Answer(headers=given))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post())
    for name in ("connection", "x-worker-hop", "keep-alive", "proxy-authenticate", "transfer-encoding"):
        assert answer.all(name) == [], name
    assert answer.all("set-cookie") == ["a=1", "b=2"]
    assert answer.one("x-kept") == "yes"
    assert answer.one("x-router-worker") == worker.id
    assert answer.one("x-request-id") != "the worker's own"
    assert answer.one("x-router-policy") == "prefix_cost"
    assert answer.one("x-router-reason") in ("home", "cold", "load", "warm")


async def test_trailers_do_not_become_headers(stage: Stage) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
    worker = await stage.worker(answer=Answer(raw=head + b"2\r\nok\r\n0\r\nx-late: 1\r\n\r\n"))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post())
    assert (answer.status, answer.body, answer.whole) == (200, b"ok", True)
    assert answer.all("x-late") == []
    assert answer.one("content-type") == "text/plain"


async def test_interim_answers_of_a_worker_stay_here(stage: Stage) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    worker = await stage.worker(answer=reply(interim=interim))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for _ in range(2):
        answer = await client.ask()
        assert (answer.status, answer.body, answer.all("link")) == (200, b'{"object": "answer"}', [])


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_has_none(stage: Stage, status: int) -> None:
    worker = await stage.worker(answer=Answer(raw=b"HTTP/1.1 %d Nothing\r\nx-a: b\r\n\r\n" % status))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for _ in range(2):
        answer = await client.ask()
        assert (answer.status, answer.one("x-a"), answer.all("transfer-encoding")) == (status, "b", [])


BASES = ("", "/", "/v1", "/v1/", "/base", "/base/", "/base/v1", "/a/b/v1/")


async def test_a_workers_base_path_stands_before_every_path_once(stage: Stage) -> None:
    for base in BASES:
        worker = await stage.worker()
        running = await stage.gateway(worker.url + base)
        assert (await ask(running.port, post(path=CHAT + "?a=%2F&b=1+2&c"))).status == 200
        expected = base.rstrip("/").removesuffix("/v1") + CHAT + "?a=%2F&b=1+2&c"
        assert worker.requests[0].target == expected.encode()
        assert list(running.seats) == [worker.id]
        await running.stop()


@pytest.mark.parametrize(
    "path", ["/v1/chat%2Fcompletions", "/v1/%63hat/completions", CHAT + "?x=%20&y=%C3%BC&y=2", CHAT + "?"]
)
async def test_escapes_and_queries_are_kept(stage: Stage, path: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    answer = await ask(running.port, post(path=path))
    if answer.status == 404:  # an escaped slash is no slash
        assert path == "/v1/chat%2Fcompletions"
        assert worker.requests == []
    else:
        assert worker.requests[0].target in (path.encode(), path.rstrip("?").encode())


IDS = {
    "short and safe": (["caller.id-1_A"], True),
    "128 characters": (["a" * 128], True),
    "129 characters": (["a" * 129], False),
    "tabs": (["a\tb"], False),
    "a terminal escape": ([b"a\x9b31m"], False),
    "not Latin": (["idé".encode()], False),
    "spaces": (["a b"], False),
    "empty": ([""], False),
    "30,000 characters": (["a" * 30_000], False),
}


async def test_a_callers_request_id_is_kept_when_it_is_short_and_safe(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for name, (given, kept) in IDS.items():
        answer = await ask(running.port, post(headers=[("X-Request-Id", value) for value in given]))
        own = answer.one("x-request-id")
        assert own, name
        assert worker.requests[-1].one("x-request-id") == own.encode(), name
        assert running.finished[-1].request_id == own, name
        assert (own == given[0]) is kept, name
        assert own.isascii(), name
        assert len(own) <= 128, name


async def test_a_request_id_sent_twice_becomes_one(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    answer = await ask(running.port, post(headers=[("X-Request-Id", "one"), ("X-Request-Id", "two")]))
    own = answer.one("x-request-id")
    assert worker.requests[0].one("x-request-id") == (own or "").encode()
    assert running.finished[0].request_id == own


async def test_ids_made_here_differ(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    client = await stage.client(running)
    assert len({(await client.ask()).one("x-request-id") for _ in range(20)}) == 20
