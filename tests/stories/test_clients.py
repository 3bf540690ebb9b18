"""Clients as they come: slow, greedy, wrong, old, or simply large."""

import asyncio
import json

import pytest

from router.events import Finished
from tests.support.client import CHAT, HELLO, STREAM, Client, chunked, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, event, reply, stream

ANTHROPIC = "/v1/messages"
BIG = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"a" * 2_000_000 + b'"}]}'


# Bodies as they may be framed.


@pytest.mark.parametrize("pieces", [1, 3, 50])
async def test_a_chunked_body_reaches_the_worker_with_a_length(stage: Stage, pieces: int) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    size = len(HELLO) // pieces + 1
    parts = [HELLO[at : at + size] for at in range(0, len(HELLO), size)]
    answer = await ask(running.port, post(chunked(*parts), headers=[("Transfer-Encoding", "chunked")]))
    assert answer.status == 200
    assert worker.bodies == [HELLO]
    assert worker.requests[0].one("content-length") == b"%d" % len(HELLO)


async def test_chunk_extensions_and_trailers_are_left_here(lane: Stage) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker)
    body = b"%x;ext=1\r\n%s\r\n0\r\nX-Late: 1\r\nAuthorization: Bearer late\r\n\r\n" % (len(HELLO), HELLO)
    client = await lane.client(running)
    await client.send(post(body, headers=[("Transfer-Encoding", "chunked")]) * 3)
    assert [(await client.answer()).status for _ in range(3)] == [200] * 3
    assert worker.bodies == [HELLO] * 3
    for request in worker.requests:
        assert request.all("x-late") == request.all("authorization") == []


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_in_slow_pieces_arrives_whole(stage: Stage, framing: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    whole = (
        post()
        if framing == "length"
        else post(chunked(HELLO[:9], HELLO[9:]), headers=[("Transfer-Encoding", "chunked")])
    )
    await client.send(*[whole[at : at + 40] for at in range(0, len(whole), 40)], gap=0.02)
    assert (await client.answer()).status == 200
    assert worker.bodies == [HELLO]


async def test_one_byte_at_a_time_is_a_request_too(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for byte in post():
        await client.send(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await client.answer()).status == 200
    assert worker.bodies == [HELLO]


async def test_expect_100_continue_is_answered_here(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    request = post(BIG, headers=[("Expect", "100-continue")])
    await client.send(request[: -len(BIG)])
    assert (await client.head()).status == 100
    await client.send(BIG)
    assert (await client.answer()).status == 200
    assert worker.bodies == [BIG]
    assert worker.requests[0].all("expect") == []


async def test_a_body_that_is_not_wanted_is_refused_instead_of_continued(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"body_bytes": 1000})
    client = await stage.client(running)
    await client.send(post(BIG, headers=[("Expect", "100-continue")])[: -len(BIG)])
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert worker.requests == []


CONFLICTS = {
    "a length and chunks": [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
    "chunks and a length": [("Transfer-Encoding", "chunked"), ("Content-Length", "5")],
    "two lengths": [("Content-Length", "5"), ("Content-Length", "6")],
    "a list of lengths": [("Content-Length", "5, 6")],
    "a negative length": [("Content-Length", "-1")],
    "a signed length": [("Content-Length", "+5")],
    "a hexadecimal length": [("Content-Length", "0x5")],
    "chunks that are not last": [("Transfer-Encoding", "chunked, identity")],
    "two codings": [("Transfer-Encoding", "identity"), ("Content-Length", "5")],
}
FIRST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HEAD_FAULTS = {
    "a folded header": FIRST + b"Host: a\r\nX-A: 1\r\n folded: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a space before the colon": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length : 2\r\n\r\n{}",
    "a NUL in a header": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX: \x00\r\nContent-Length: 2\r\n\r\n{}",
    "a tunnel": b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n",
    "nonsense": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a bare carriage return": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\rX: b\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", CONFLICTS)
async def test_conflicting_framing_is_refused_and_the_connection_closes(lane: Stage, name: str) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker)
    client = await lane.client(running)
    smuggled = post(b'{"model": "m", "prompt": "smuggled"}')
    await client.send(post(b"0\r\n\r\n" + smuggled, headers=CONFLICTS[name]))
    answer = await client.answer()
    assert (answer.status, answer.code, answer.one("connection")) == (400, "invalid_request", "close")
    assert await client.closed() == b""
    assert worker.requests == []


@pytest.mark.parametrize("name", HEAD_FAULTS)
async def test_what_is_no_http_is_refused_and_the_connection_closes(lane: Stage, name: str) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker)
    client = await lane.client(running)
    await client.send(HEAD_FAULTS[name])
    answer = await client.answer()
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert await client.closed() == b""
    assert worker.requests == []
    assert [(event.status, event.path) for event in running.finished] == [(400, "other")]


async def test_nothing_ambiguous_ever_reaches_a_worker(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    smuggled = post(b'{"model": "m", "prompt": "smuggled"}')
    requests = {name: post(b"0\r\n\r\n" + smuggled, headers=headers) for name, headers in CONFLICTS.items()}
    for name, request in {**requests, **HEAD_FAULTS}.items():
        client = await stage.client(running)
        await client.send(request)
        assert (await client.head()).status == 400, name
        await client.closed()
        assert worker.requests == [], name


async def test_bare_line_feeds_are_refused_or_read_as_one_request(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post().replace(b"\r\n", b"\n"))
    status = (await client.answer()).status
    assert (status, worker.bodies) in ((400, []), (200, [HELLO]))


async def test_two_equal_lengths_are_no_excuse(stage: Stage) -> None:
    """RFC 9110 allows to take them as one; the parser here does not, and nothing is forwarded twice either way."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    lengths = [("Content-Length", str(len(HELLO)))] * 2
    assert (await ask(running.port, post(headers=lengths))).status == 400
    assert worker.requests == []


# Limits.


async def test_a_declared_body_over_the_limit_is_refused_before_it_comes(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"body_bytes": 1000})
    client = await stage.client(running)
    await client.send(post(b"", length=1001))
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert worker.requests == []


async def test_an_undeclared_body_over_the_limit_is_refused_as_it_comes(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"body_bytes": 1000})
    client = await stage.client(running)
    await client.send(post(b"%x\r\n%s\r\n" % (1001, b"a" * 1001), headers=[("Transfer-Encoding", "chunked")]))
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert worker.requests == []


async def test_a_body_at_the_limit_passes(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"body_bytes": len(HELLO)})
    assert (await ask(running.port, post())).status == 200


async def test_a_refused_client_that_goes_on_sending_still_reads_why(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"body_bytes": 1000})
    client = await stage.client(running)
    await client.send(post(BIG))
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "request_too_large")


async def test_a_refused_client_that_never_stops_sending_is_cut(lane: Stage) -> None:
    running = await lane.gateway(await lane.worker(), limits={"body_bytes": 1000})
    client = await lane.client(running)
    await client.send(post(b"", length=10**12))
    assert (await client.answer()).status == 413

    async def sending() -> None:
        while True:
            await client.send(b"a" * 100)
            await asyncio.sleep(0.1)

    began = asyncio.get_running_loop().time()
    task = asyncio.ensure_future(sending())
    assert await client.closed() == b""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert asyncio.get_running_loop().time() - began < 8


@pytest.mark.parametrize("many", [True, False], ids=["many headers", "one header"])
async def test_large_headers_are_refused(lane: Stage, many: bool) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker, limits={"header_bytes": 10_000})
    client = await lane.client(running)
    headers = [(f"X-{at}", "a" * 10) for at in range(2000)] if many else [("X-A", "a" * 20_000)]
    await client.send(post(headers=headers))
    answer = await client.answer()
    assert (answer.status, answer.code) == (431, "headers_too_large")
    await client.closed()
    assert worker.requests == []
    assert [(event.status, event.code) for event in running.told(Finished)] == [(431, "headers_too_large")]


async def test_headers_without_an_end_are_refused(lane: Stage) -> None:
    running = await lane.gateway(await lane.worker(), limits={"header_bytes": 10_000})
    client = await lane.client(running)
    await client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\n", *[b"X-%d: %s\r\n" % (at, b"a" * 500) for at in range(30)]
    )
    assert (await client.answer()).status == 431


async def test_headers_below_the_limit_pass_beside_a_large_body(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"header_bytes": 10_000})
    headers = [(f"X-{at}", "a" * 20) for at in range(200)]
    assert (await ask(running.port, post(BIG, headers=headers))).status == 200
    assert worker.requests[0].one("x-199") == b"a" * 20


async def test_a_slow_body_is_given_up(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, timeouts={"client_read_seconds": 0.3})
    client = await stage.client(running)
    await client.send(post(HELLO[:10], length=1000))
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert worker.requests == []
    assert [event.status for event in running.finished] == [408]


async def test_a_body_that_keeps_coming_has_all_the_time_it_needs(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, timeouts={"client_read_seconds": 0.6})
    client = await stage.client(running)
    await client.send(post(b"", length=len(HELLO)), *[HELLO[at : at + 9] for at in range(0, len(HELLO), 9)], gap=0.15)
    assert (await client.answer()).status == 200


async def test_slow_headers_are_given_up_however_they_trickle(lane: Stage) -> None:
    running = await lane.gateway(await lane.worker(), timeouts={"client_read_seconds": 0.3})
    client = await lane.client(running)
    await client.send(b"POST /v1/chat/completions HTTP/1.1\r\n")

    async def trickling() -> None:
        for at in range(100):
            await client.send(b"X-%d: 1\r\n" % at)
            await asyncio.sleep(0.05)

    task = asyncio.ensure_future(trickling())
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [event.status for event in running.finished] == [408]


async def test_a_connection_that_says_nothing_is_closed(lane: Stage) -> None:
    running = await lane.gateway(await lane.worker(), timeouts={"client_read_seconds": 0.3})
    client = await lane.client(running)
    assert await client.closed() == b""
    assert running.finished == []


async def test_a_slow_reader_holds_up_its_worker_and_is_cut_in_the_end(lane: Stage) -> None:
    """Memory stays bounded: what the worker could send is what fits the buffers on the way."""
    total = 64_000_000
    endless = stream(*[b"data: " + b"x" * 65_000 + b"\n\n"] * (total // 65_000))
    worker = await lane.worker(answer=endless)
    running = await lane.gateway(worker, timeouts={"client_write_seconds": 0.5, "idle_seconds": 1.0})
    client = await lane.client(running, receive_buffer=4096)
    await client.send(post(STREAM))
    assert (await client.head()).status == 200
    await eventually(lambda: worker.aborted == 1, "the slow reader was not cut")
    assert worker.sent < total / 2
    await eventually(lambda: running.finished)
    assert (running.finished[0].status, running.finished[0].cancelled_in) == (499, "streaming")


async def test_a_slow_reader_gets_everything_in_its_own_time(stage: Stage) -> None:
    """While the client is slow, the worker's silence is not its own."""
    pieces = [b"%06d" % at + b"x" * 50_000 for at in range(400)]
    worker = await stage.worker(answer=stream(*pieces))
    running = await stage.gateway(worker, timeouts={"idle_seconds": 0.6})
    client = await stage.client(running, receive_buffer=4096)
    await client.send(post(STREAM))
    answer = await client.head()
    await asyncio.sleep(1.0)
    assert worker.sent < sum(map(len, pieces)) * 0.9
    await client.rest(answer)
    assert answer.whole
    assert answer.body == b"".join(pieces)


async def test_a_slow_reader_holds_up_its_next_answer_too(stage: Stage) -> None:
    """Of the first answer something waits in the gateway still: the second must not gather behind it."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    size = await what_stays_here(stage, running)
    worker.answer = reply(b"x" * size)
    client = await stage.client(running, receive_buffer=4096)
    await client.send(post())
    first = await client.head()
    await eventually(lambda: worker.sent >= 2 * size)
    pieces = [b"%06d" % at + b"x" * 50_000 for at in range(800)]
    worker.answer = stream(*pieces)
    await client.send(post(STREAM))
    await asyncio.sleep(1.0)
    assert worker.sent < 2 * size + 20_000_000
    await client.rest(first)
    second = await client.answer()
    assert (first.body, second.body) == (b"x" * size, b"".join(pieces))
    assert first.whole
    assert second.whole


async def test_one_who_never_reads_a_finished_answer_is_cut(lane: Stage) -> None:
    """The worker is done and the rest waits in the gateway for a client that does not read."""
    worker = await lane.worker()
    running = await lane.gateway(worker, timeouts={"client_write_seconds": 0.4})
    client = await lane.client(running, receive_buffer=4096)
    size = await what_stays_here(lane, running)
    worker.answer = reply(b"x" * size, keep_alive=False)
    await client.send(post(headers=[("Connection", "close")]))
    assert (await client.head()).status == 200
    await eventually(lambda: running.finished[-1].status == 200)
    await eventually(lambda: not running.server.server_state.connections, "the connection stays for ever")


async def what_stays_here(stage: Stage, running: Running) -> int:
    """A size of answer that fits no socket's buffers whole, so that some of it waits in the gateway."""
    worker = stage.workers[0]
    worker.answer = Answer(pieces=[b"x" * 20_000] * 1000, gap=0.001, framing="chunked")
    client = await stage.client(running, receive_buffer=4096)
    await client.send(post())
    await client.head()
    paused = [each for each in running.server.server_state.connections if each.cycle is not None]
    await eventually(lambda: paused[0].flow.write_paused)
    client.drop()
    sent = worker.sent
    await eventually(lambda: worker.running == 0)
    return sent


# Connections.


async def test_a_connection_serves_many_requests(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for at in range(5):
        answer = await client.ask(post(b'{"model": "m", "prompt": "%d"}' % at))
        assert (answer.status, answer.all("connection")) == (200, [])
    assert len(worker.requests) == 5
    assert (await client.ask(get("/healthz"))).status == 200


async def test_a_client_that_asks_for_it_is_hung_up_on(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    client = await stage.client(running)
    answer = await client.ask(post(headers=[("Connection", "close")]))
    assert (answer.status, answer.one("connection")) == (200, "close")
    assert await client.closed() == b""


async def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    worker = await stage.worker(answer=lambda seen: reply(seen.body, delay=0.1 if b'"0"' in seen.body else 0.0))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    bodies = [b'{"model": "m", "prompt": "%d"}' % at for at in range(5)]
    await client.send(b"".join(post(body, "/v1/completions") for body in bodies) + get("/healthz"))
    assert [(await client.answer()).body for _ in range(6)] == [*bodies, b"ok\n"]
    assert [event.status for event in running.finished] == [200] * 5


async def test_a_pipelined_stream_is_whole_too(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(event("1"), event("2"), DONE, gap=0.02))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM) * 3)
    for _ in range(3):
        answer = await client.answer()
        assert answer.whole
        assert answer.body == event("1") + event("2") + DONE


async def test_a_pipelined_large_body_arrives(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(delay=0.05))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post() + post(BIG) + post())
    assert [(await client.answer()).status for _ in range(3)] == [200] * 3
    assert worker.bodies == [HELLO, BIG, HELLO]


async def test_rubbish_behind_a_request_never_stands_in_its_answer(lane: Stage) -> None:
    worker = await lane.worker(answer=stream(event("1"), stop=1, ending="hang"))
    running = await lane.gateway(worker)
    client = await lane.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    await client.piece(answer)
    await client.send(b"\x00rubbish\r\n\r\n")
    await client.rest(answer)
    assert answer.body == event("1")
    assert not answer.whole
    await eventually(lambda: worker.aborted == 1)


@pytest.mark.parametrize("close", [True, False])
async def test_an_old_client_gets_an_answer_that_ends_with_the_connection(lane: Stage, close: bool) -> None:
    worker = await lane.worker(answer=stream(event("1"), DONE))
    running = await lane.gateway(worker)
    client = await lane.client(running)
    headers = [] if close else [("Connection", "keep-alive")]
    answer = await client.ask(post(STREAM, version="1.0", headers=headers))
    assert (answer.status, answer.all("transfer-encoding")) == (200, [])
    assert (answer.body, answer.whole) == (event("1") + DONE, True)


async def test_an_old_client_gets_a_length_where_there_is_one(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    client = await stage.client(running)
    answer = await client.ask(post(version="1.0"))
    assert (answer.status, answer.body) == (200, b'{"object": "answer"}')
    assert await client.closed() == b""


async def test_a_kept_connection_is_closed_when_it_idles_for_long(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    running.server.config.timeout_keep_alive = 1
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    assert await client.closed() == b""


async def test_the_time_of_a_kept_connection_stops_when_a_request_begins(stage: Stage) -> None:
    """A look at the model list, and behind it a stream that outlasts the keep-alive time."""
    worker = await stage.worker(answer=stream(*[event(str(at)) for at in range(8)], DONE, gap=0.2))
    running = await stage.gateway(worker)
    running.server.config.timeout_keep_alive = 1
    client = await stage.client(running)
    assert (await client.ask(get("/v1/models"))).status == 200
    answer = await client.ask(post(STREAM))
    assert answer.whole
    assert answer.body.endswith(DONE)


@pytest.mark.parametrize("pieces", [1, 2, 400])
async def test_an_offer_to_upgrade_is_ignored(lane: Stage, pieces: int) -> None:
    """Java's client offers HTTP/2 in its first request."""
    worker = await lane.worker()
    running = await lane.gateway(worker)
    client = await lane.client(running)
    offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAEAAEAAAAIAAAAB")]
    request = post(headers=offer)
    size = len(request) // pieces + 1
    for _ in range(2):
        for at in range(0, len(request), size):
            await client.send(request[at : at + size])
            await asyncio.sleep(0)
        assert (await client.answer()).status == 200
    assert worker.bodies == [HELLO, HELLO]
    for name in ("connection", "upgrade", "http2-settings"):
        assert worker.requests[0].all(name) == []
    assert (await client.ask(get("/healthz", "Connection: Upgrade", "Upgrade: websocket"))).status == 200


async def test_the_full_form_of_a_target_is_read(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    assert (await ask(running.port, post(path=f"http://gateway{CHAT}?a=1"))).status == 200
    assert worker.requests[0].target == f"{CHAT}?a=1".encode()


# What is asked for.


NO_JSON = (b"", b"{", b"not json", b'{"model": "m"', b"{'model': 'm'}", b'{"a": 1} trailing', b"\xff")


@pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
async def test_a_body_that_is_no_json_is_refused(stage: Stage, path: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    openai = {
        "message": "The request body is not valid JSON.", "type": "invalid_request_error", "param": None,
        "code": "invalid_json",
    }  # fmt: skip
    for body in NO_JSON:
        answer = await ask(running.port, post(body, path))
        assert answer.status == 400, body
        assert running.finished[-1].code == "invalid_json", body
        if path == CHAT:
            assert answer.json() == {"error": openai}, body
        else:
            assert answer.json()["type"] == "error", body
            assert answer.json()["error"]["type"] == "invalid_request_error", body
    assert worker.requests == []


async def test_an_unknown_path_is_a_404_in_json(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for path in (
        "/v1",
        "/v1/",
        "/v2/chat/completions",
        "/v1/chat/completions/",
        "//",
        "/admin",
        "/.env",
        "/%00",
        "/a%2f",
    ):
        answer = await ask(running.port, post(path=path))
        assert (answer.status, answer.code) == (404, "unknown_path"), path


async def test_a_wrong_method_is_a_405(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for method in (b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"):
        answer = await ask(running.port, post().replace(b"POST", method, 1))
        assert (answer.status, answer.code, answer.one("allow")) == (405, "method_not_allowed", "POST"), method
    assert (await ask(running.port, post(path="/healthz"))).code == "method_not_allowed"


async def test_refusals_have_the_form_of_the_api_that_was_asked(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), auth={"api_keys": ["secret"]})
    stage.headers = [("Authorization", "Bearer secret")]
    for request in (post(path=ANTHROPIC), get(ANTHROPIC)):
        answer = await ask(running.port, request)
        assert answer.json()["type"] == "error", request
    for request in (post(path=CHAT), get(CHAT)):
        answer = await ask(running.port, request)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
async def test_refusals_of_a_bad_head_have_that_form_too(lane: Stage, path: str) -> None:
    running = await lane.gateway(await lane.worker(), limits={"header_bytes": 5000})
    both = [("Transfer-Encoding", "chunked"), ("Content-Length", "1")]
    for headers, status in (([("X-A", "a" * 10_000)], 431), (both, 400)):
        answer = await ask(running.port, post(path=path, headers=headers))
        assert answer.status == status
        assert ("code" in answer.json()["error"]) is (path == CHAT)
        assert "type" in answer.json()["error"]


async def models(stage: Stage, *names: str) -> Running:
    return await stage.gateway(*[await stage.worker(models=(name,)) for name in names])


async def test_an_unknown_model_is_a_404(stage: Stage) -> None:
    running = await models(stage, "a", "b")
    answer = await ask(running.port, post(b'{"model": "c", "messages": []}'))
    assert (answer.status, answer.code, answer.json()["error"]["param"]) == (404, "model_not_found", "model")


async def test_a_missing_model_is_refused_where_several_are_served(stage: Stage) -> None:
    running = await models(stage, "a", "b")
    for body in (b'{"messages": []}', b'{"model": null}', b'{"model": ""}', b'{"model": 7}', b'{"model": ["a"]}'):
        answer = await ask(running.port, post(body))
        assert (answer.status, answer.code, answer.json()["error"]["param"]) == (400, "invalid_request", "model"), body


async def test_a_missing_model_needs_no_name_where_one_is_served(stage: Stage) -> None:
    running = await models(stage, "a", "a")
    for body in (b'{"messages": []}', b'{"model": null}', b'{"model": 7}'):
        assert (await ask(running.port, post(body))).status == 200, body


async def test_a_model_goes_to_the_worker_that_serves_it(stage: Stage) -> None:
    running = await models(stage, "a", "b")
    for at in range(6):
        name = "ab"[at % 2]
        assert (await ask(running.port, post(json.dumps({"model": name, "prompt": str(at)}).encode()))).status == 200
    assert [{request.json()["model"] for request in worker.requests} for worker in stage.workers] == [{"a"}, {"b"}]


async def test_paths_may_be_added(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, routing={"pass_through": ["/v1/audio/speech"]})
    body = b'{"model": "m", "input": "say it"}'
    assert (await ask(running.port, post(body, "/v1/audio/speech?x=1"))).status == 200
    assert worker.requests[0].target == b"/v1/audio/speech?x=1"


async def test_a_thousand_connections_that_say_nothing_stop_nobody(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), timeouts={"connect_seconds": 5})
    idle: list[Client] = [await stage.client(running) for _ in range(300)]
    assert (await ask(running.port, post())).status == 200
    assert len(idle) == 300


async def test_a_request_refused_before_it_was_one_has_an_id_too(stage: Stage) -> None:
    if not stage.fast:
        return  # plain uvicorn answers these itself
    running = await stage.gateway(await stage.worker())
    got = await ask(running.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n bad fold\r\n\r\n")
    assert got.status == 400
    assert got.one("x-request-id") == running.finished[-1].request_id != ""
