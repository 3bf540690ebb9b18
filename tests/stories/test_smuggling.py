"""Requests that somebody on the way could read differently: refused, their connection closed, nothing served of them.

The worker's side holds to the same law: an answer that can be read in two ways is a broken one.
"""

import pytest

from tests.support.client import CHAT, HELLO, Client, chunked, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Answer, Worker

LINE = f"POST {CHAT} HTTP/1.1\r\n".encode()
HOST = b"Host: localhost\r\n"
HIDDEN = post(b'{"model": "m", "prompt": "smuggled"}')
ZERO = b"0\r\n\r\n"


def head(*fields: bytes, line: bytes = LINE, host: bytes = HOST) -> bytes:
    return line + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n"


def framed(*fields: bytes) -> bytes:
    """A request with these fields, and one hidden behind its shorter reading."""
    return head(*fields) + ZERO + HIDDEN


def in_chunks(body: bytes) -> bytes:
    return head(b"Transfer-Encoding: chunked") + body + HIDDEN


CHUNKED, LENGTH = b"Transfer-Encoding: chunked", b"Content-Length: 5"
FRAMING = {
    "a length and chunks": framed(LENGTH, CHUNKED),
    "chunks and a length": framed(CHUNKED, LENGTH),
    "two lengths": framed(LENGTH, b"Content-Length: 6"),
    "two equal lengths": framed(LENGTH, LENGTH),
    "a list of lengths": framed(b"Content-Length: 5, 5"),
    "a signed length": framed(b"Content-Length: +5"),
    "a negative length": framed(b"Content-Length: -5"),
    "a hexadecimal length": framed(b"Content-Length: 0x5"),
    "a length with a gap": framed(b"Content-Length: 5 5"),
    "a length with an underscore": framed(b"Content-Length: 0_5"),
    "a length beyond all measure": framed(b"Content-Length: " + b"9" * 40),
    "an empty length": framed(b"Content-Length: "),
    "an empty coding": framed(b"Transfer-Encoding: "),
    "chunked twice": framed(b"Transfer-Encoding: chunked, chunked"),
    "chunked in two lines": framed(CHUNKED, CHUNKED),
    "chunked not last": framed(b"Transfer-Encoding: chunked, identity"),
    "chunked not first": framed(b"Transfer-Encoding: gzip, chunked"),
    "chunked in two steps": framed(b"Transfer-Encoding: gzip", CHUNKED),
    "identity": framed(b"Transfer-Encoding: identity"),
    "another coding": framed(b"Transfer-Encoding: xchunked"),
    "a quoted coding": framed(b'Transfer-Encoding: "chunked"'),
    "a coding with a parameter": framed(b"Transfer-Encoding: chunked;q=1"),
    "a coding behind a vertical tab": framed(b"Transfer-Encoding: \x0bchunked"),
    "a coding that is misspelt": framed(LENGTH, b"Transfer_Encoding: chunked"),
    "a length that is misspelt": framed(LENGTH, b"Content_Length: 60"),
    "chunks of an old client": head(CHUNKED, line=LINE.replace(b"1.1", b"1.0")) + ZERO + HIDDEN,
}
LINES = {
    "a folded field": head(b"X-A: 1", b" folded: 2") + HIDDEN,
    "a folded first field": LINE + b" Host: a\r\n\r\n" + HIDDEN,
    "a bare line feed in a field": head(b"X-A: 1\nTransfer-Encoding: chunked") + ZERO + HIDDEN,
    "bare line feeds all over": (head(LENGTH) + ZERO).replace(b"\r\n", b"\n") + HIDDEN,
    "a head that ends in a bare line feed": head(LENGTH)[:-2] + b"\n" + ZERO + HIDDEN,
    "a bare carriage return in a field": head(b"X-A: 1\rX-B: 2") + HIDDEN,
    "a head that ends in a bare carriage return": head(LENGTH)[:-1] + ZERO + HIDDEN,
    "a space before the colon": head(b"Content-Length : 5") + ZERO + HIDDEN,
    "a tab before the colon": head(b"X-A\t: 5") + HIDDEN,
    "a field without a colon": head(b"X-A") + HIDDEN,
    "a field without a name": head(b": 1") + HIDDEN,
    "a name with a space": head(b"X A: 1") + HIDDEN,
    "a name with a bracket": head(b"X(A: 1") + HIDDEN,
    "a name beyond ASCII": head(b"X\xff: 1") + HIDDEN,
    "a NUL in a name": head(b"X\x00: 1") + HIDDEN,
    "a NUL in a value": head(b"X-A: \x00") + HIDDEN,
    "a control byte in a value": head(b"X-A: \x01") + HIDDEN,
    "a DEL in a value": head(b"X-A: \x7f") + HIDDEN,
    "no host": head(host=b"") + HIDDEN,
    "two hosts": head(HOST[:-2]) + HIDDEN,
    "two hosts of an old client": head(HOST[:-2], line=LINE.replace(b"1.1", b"1.0")) + HIDDEN,
    "two hosts in one": head(host=b"Host: a, b\r\n") + HIDDEN,
    "a host with a path": head(host=b"Host: a/b\r\n") + HIDDEN,
    "a host with a gap": head(host=b"Host: a b\r\n") + HIDDEN,
    "HTTP/2.0": head(line=LINE.replace(b"1.1", b"2.0")) + HIDDEN,
    "HTTP/0.9": head(line=LINE.replace(b"1.1", b"0.9")) + HIDDEN,
    "HTTP/1.2": head(line=LINE.replace(b"1.1", b"1.2")) + HIDDEN,
    "HTTP/1.10": head(line=LINE.replace(b"1.1", b"1.10")) + HIDDEN,
    "no version": head(line=LINE.replace(b" HTTP/1.1", b"")) + HIDDEN,
    "a space behind the version": head(line=LINE.replace(b"1.1", b"1.1 ")) + HIDDEN,
    "a method nobody knows": head(line=LINE.replace(b"POST", b"FOO")) + HIDDEN,
    "a method in small letters": head(line=LINE.replace(b"POST", b"post")) + HIDDEN,
    "a NUL in the target": head(line=LINE.replace(b"chat", b"\x00")) + HIDDEN,
    "a target beyond ASCII": head(line=LINE.replace(b"chat", b"\xff")) + HIDDEN,
    "a target with a gap": head(line=LINE.replace(b"chat", b"a b")) + HIDDEN,
    "the head of a proxy": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + HIDDEN,
    "the head of a proxy, version 2": b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + b"\x01" * 12 + HIDDEN,
}
TARGETS = {  # what plain uvicorn cuts off before anybody sees it
    "a fragment": head(line=LINE.replace(b" HTTP", b"#part HTTP")) + HIDDEN,
    "a fragment behind a query": head(line=LINE.replace(b" HTTP", b"?a=1#part HTTP")) + HIDDEN,
    "a full form without a path": head(line=b"POST http://localhost HTTP/1.1\r\n") + HIDDEN,
    "a full form with a user": head(line=f"POST http://a@b{CHAT} HTTP/1.1\r\n".encode()) + HIDDEN,
    "a full form of something else": head(line=f"POST ftp://a{CHAT} HTTP/1.1\r\n".encode()) + HIDDEN,
}
CHUNKS = {
    "a bare line feed behind a size": in_chunks(b"2\n{}\r\n0\r\n\r\n"),
    "a bare line feed behind a chunk": in_chunks(b"2\r\n{}\n0\r\n\r\n"),
    "a bare line feed at the end": in_chunks(b"2\r\n{}\r\n0\r\n\n"),
    "a bare line feed in an extension": in_chunks(b"2;a\n{}\r\n0\r\n\r\n"),
    "a bare carriage return behind a size": in_chunks(b"2\r{}\r\n0\r\n\r\n"),
    "a control byte in an extension": in_chunks(b"2;a\x00b\r\n{}\r\n0\r\n\r\n"),
    "a quotation that does not end": in_chunks(b'2;a="\r\n{}\r\n0\r\n\r\n'),
    "a size with a space": in_chunks(b"2 \r\n{}\r\n0\r\n\r\n"),
    "a size behind a space": in_chunks(b" 2\r\n{}\r\n0\r\n\r\n"),
    "a size with a sign": in_chunks(b"+2\r\n{}\r\n0\r\n\r\n"),
    "a size with an underscore": in_chunks(b"0_2\r\n{}\r\n0\r\n\r\n"),
    "a size with a prefix": in_chunks(b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a size beyond all measure": in_chunks(b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n"),
    "no size": in_chunks(b"\r\n{}\r\n0\r\n\r\n"),
    "a chunk that is longer than it says": in_chunks(b"1\r\n{}\r\n0\r\n\r\n"),
    "a length among the trailers": in_chunks(b"2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "a coding among the trailers": in_chunks(b"2\r\n{}\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
}


async def refused(running: Running, worker: Worker, requests: dict[str, bytes], *sizes: int) -> None:
    """Each is answered with one 400 on a connection that closes, however it comes in, and nothing is served of it."""
    for name, request in requests.items():
        for size in sizes:
            client = await Client.connect(running.port)
            try:
                await client.send(*[request[at : at + size] for at in range(0, len(request), size)])
                answer = await client.head()
                rest = await client.closed()
            except ConnectionError:  # it was closed while this one was still talking
                continue
            finally:
                await client.close()
            assert (answer.status, answer.one("connection")) == (400, "close"), name
            assert b"HTTP/1.1 2" not in rest, f"{name}: something behind it was answered"
    assert worker.requests == []


@pytest.mark.parametrize("faults", [FRAMING, LINES, TARGETS, CHUNKS], ids=["framing", "lines", "targets", "chunks"])
async def test_what_can_be_read_in_two_ways_is_refused(lane: Stage, faults: dict[str, bytes]) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker)
    await refused(running, worker, faults, 1_000_000, 7)
    assert {(event.status, event.code) for event in running.finished} == {(400, "invalid_request")}


@pytest.mark.parametrize("faults", [FRAMING, LINES], ids=["framing", "lines"])
async def test_the_plain_endpoint_refuses_bad_heads_too(stage: Stage, faults: dict[str, bytes]) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    await refused(running, worker, faults, 1_000_000)


async def test_nothing_of_a_bad_chunk_or_target_reaches_a_worker_in_either(stage: Stage) -> None:
    """Plain uvicorn answers in its own words, or hangs up."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for request in CHUNKS.values():
        client = await stage.client(running)
        await client.send(request)
        await client.closed()
    assert worker.requests == []
    for request in TARGETS.values():
        client = await stage.client(running)
        await client.send(request)
        assert (await client.head()).status == 400
        await client.closed()
    assert worker.requests == []


async def test_one_bad_request_ends_in_one_line_of_the_log(lane: Stage) -> None:
    """Also where it goes wrong in the middle of its body, when its story has begun."""
    running = await lane.gateway(await lane.worker())
    for request, path in ((FRAMING["two lengths"], "other"), (CHUNKS["a size with a sign"], CHAT)):
        before = len(running.finished)
        assert (await ask(running.port, request)).status == 400
        await eventually(lambda before=before: len(running.finished) > before)
        told = [(event.status, event.path, event.client) for event in running.finished[before:]]
        assert told == [(400, path, "127.0.0.1")]


async def test_what_stands_behind_a_last_request_is_not_served(lane: Stage) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker, limits={"body_bytes": 1000})
    for first in (
        post(headers=[("Connection", "close")]), post(version="1.0"), post(b"x" * 2000), head(b"X-A: " + b"a" * 70_000),
    ):  # fmt: skip
        client = await lane.client(running)
        await client.send(first + HIDDEN)
        assert b"HTTP/1.1" not in (await client.closed())[10:]
    assert all(b"smuggled" not in body for body in worker.bodies)


async def test_extensions_are_read_over_within_bounds(lane: Stage) -> None:
    worker = await lane.worker()
    running = await lane.gateway(worker)
    coded = [("Transfer-Encoding", "chunked")]
    assert (await ask(running.port, post(b'2;a=b;c="d;e"\r\n{}\r\n0;f\r\n\r\n', headers=coded))).status == 200
    assert worker.bodies == [b"{}"]
    worker.requests.clear()
    for endless in (b"2;a=" + b"x" * 500_000, b"0" * 500_000 + b"2", b"2\r\n{}\r\n0\r\nX-A: " + b"x" * 500_000):
        client = await lane.client(running)
        pieces = [endless[at : at + 1000] for at in range(0, len(endless), 1000)]
        try:
            await client.send(head(CHUNKED), *pieces, gap=0.0001)
            assert (await client.head()).status == 400, endless[:10]
        except ConnectionError:
            pass
        assert worker.requests == []


async def test_chunks_of_one_byte_are_a_body_too(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    body = b'{"model": "m", "prompt": "' + b"a" * 30_000 + b'"}'
    request = post(chunked(*[bytes((byte,)) for byte in body]), headers=[("Transfer-Encoding", "chunked")])
    client = await stage.client(running)
    await client.send(*[request[at : at + 1000] for at in range(0, len(request), 1000)], gap=0.0001)
    assert (await client.answer()).status == 200
    assert worker.bodies == [body]


async def test_trailers_never_become_headers(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, auth={"api_keys": ["secret"]})
    stage.headers = [("Authorization", "Bearer secret")]
    body = b"%x\r\n%s\r\n0\r\nAuthorization: Bearer secret\r\nX-Late: 1\r\n\r\n" % (len(HELLO), HELLO)
    coded = [("Transfer-Encoding", "chunked")]
    assert (await ask(running.port, post(body, headers=coded))).status == 401
    client = await stage.client(running)
    for _ in range(2):
        assert (await client.ask(post(body, headers=[*coded, *stage.headers]))).status == 200
    assert [seen.all("x-late") for seen in worker.requests] == [[], []]


GOOD = b'{"object": "answer"}'
BROKEN = {
    "two lengths": b"content-length: 20\r\ncontent-length: 21\r\n\r\n" + GOOD,
    "two equal lengths": b"content-length: 20\r\ncontent-length: 20\r\n\r\n" + GOOD,
    "a list of lengths": b"content-length: 20, 20\r\n\r\n" + GOOD,
    "a signed length": b"content-length: +20\r\n\r\n" + GOOD,
    "a length and chunks": b"content-length: 20\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(GOOD),
    "chunks and a length": b"transfer-encoding: chunked\r\ncontent-length: 20\r\n\r\n" + chunked(GOOD),
    "chunked twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(GOOD),
    "chunked not last": b"transfer-encoding: chunked, gzip\r\n\r\n" + chunked(GOOD),
    "another coding": b"transfer-encoding: gzip\r\n\r\n" + GOOD,
    "a bare line feed": b"x-a: 1\ncontent-length: 20\r\n\r\n" + GOOD,
    "a folded field": b"x-a: 1\r\n 2\r\ncontent-length: 20\r\n\r\n" + GOOD,
    "a NUL": b"x-a: \x00\r\ncontent-length: 20\r\n\r\n" + GOOD,
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_can_be_read_in_two_ways_is_broken(stage: Stage, name: str) -> None:
    worker = await stage.worker(answer=Answer(raw=b"HTTP/1.1 200 OK\r\n" + BROKEN[name]))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post())
    assert (answer.status, answer.code) == (502, "worker_failed")
    assert running.finished[-1].status == 502
    await eventually(lambda: worker.running == 0)


ENDLESS = {
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000,
    "fields": b"HTTP/1.1 200 OK\r\n" + b"x-a: 1\r\n" * 100_000,
    "one field": b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 800_000,
    "a status line": b"HTTP/1.1 200 " + b"a" * 800_000,
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_head_without_an_end_is_a_broken_answer(stage: Stage, name: str) -> None:
    worker = await stage.worker(answer=Answer(raw=ENDLESS[name]))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post())
    assert (answer.status, answer.code) == (502, "worker_failed")


@pytest.mark.parametrize("status", [b"000", b"099", b"99", b"2000"])
async def test_a_status_that_is_none_is_a_broken_answer(stage: Stage, status: bytes) -> None:
    worker = await stage.worker(answer=Answer(raw=b"HTTP/1.1 %s X\r\ncontent-length: 20\r\n\r\n%s" % (status, GOOD)))
    running = await stage.gateway(worker)
    assert (await ask(running.port, post())).status == 502
