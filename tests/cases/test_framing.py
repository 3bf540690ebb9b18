"""40, 42, 44, 46, 47, 48: bytes and their framing, both ways, and streams as workers really send them."""

import asyncio
import gzip
import json
import zlib

import openai
import pytest

from router.events import AttemptFailed
from tests.stories.test_official_clients import CHUNK, MESSAGES, client_of
from tests.support.blunt import Wire, blunt
from tests.support.client import HELLO, STREAM, Client, chunked, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, EVENTS, Answer, Worker, event, reply, stream

BOTH = pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
USAGE = {"prompt_tokens": 70, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 64}}
PLAIN = b'{"choices": [{"index": 0, "message": {"content": "' + b"word " * 60 + b'"}}], "usage": {"prompt_tokens": 7}}'
BIG = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"a" * 2_000_000 + b'"}]}'


def joined(answer: Answer) -> bytes:
    return b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))


# 40: compressed answers.


def deflated(data: bytes) -> bytes:
    return zlib.compress(data)


CODINGS = {
    "gzip": (lambda data: gzip.compress(data, mtime=0), gzip.decompress),
    "deflate": (deflated, zlib.decompress),
    # What the gateway has no decoder for passes all the same: nothing here decodes.
    "br": (lambda data: b"\x1b" + data, lambda data: data[1:]),
    "zstd": (lambda data: b"\x28\xb5\x2f\xfd" + data, lambda data: data[4:]),
    "gzip, br": (lambda data: b"\x1b" + gzip.compress(data, mtime=0), lambda data: gzip.decompress(data[1:])),
}


@pytest.mark.parametrize("accepts", [None, "gzip", "gzip, br;q=0.5", "identity"])
@pytest.mark.parametrize("coding", CODINGS)
async def test_a_coded_answer_keeps_bytes_coding_and_length(stage: Stage, coding: str, accepts: str | None) -> None:
    """Whether the client said that it takes it or not: the worker answered what it was asked."""
    encode, decode = CODINGS[coding]
    coded = encode(PLAIN)
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"unhealthy_after": 1000})
    for status in (200, 400, 404, 429, 500, 503):
        worker.answer = reply(coded, status, ("Content-Encoding", coding), ("Vary", "Accept-Encoding"))
        for body in (HELLO, STREAM):
            got = await ask(running.port, post(body, headers=[("Accept-Encoding", accepts)] if accepts else []))
            assert (got.status, got.whole, got.body) == (status, True, coded)
            assert (got.one("content-encoding"), got.one("content-length")) == (coding, str(len(coded)))
            assert got.one("vary") == "Accept-Encoding"
            assert decode(got.body) == PLAIN
    told = worker.requests[-1].one("accept-encoding")
    assert told == (accepts.encode() if accepts else None)


@pytest.mark.parametrize("framing", ["chunked", "eof"])
@pytest.mark.parametrize("coding", CODINGS)
async def test_a_coded_stream_passes_piece_for_piece(stage: Stage, coding: str, framing: str) -> None:
    encode, decode = CODINGS[coding]
    plain = event("one") + event("two", usage=USAGE) + DONE
    coded = encode(plain)
    gate = asyncio.Event()
    head = (*EVENTS, ("content-encoding", coding))
    worker = await stage.worker(answer=Answer(headers=head, pieces=(coded[:9], gate, coded[9:]), framing=framing))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    got = await client.head()
    assert await client.piece(got) == coded[:9], "the first piece waits for nothing"
    gate.set()
    await client.rest(got)
    assert (got.whole, got.body) == (True, coded)
    assert decode(got.body) == plain
    await eventually(lambda: running.finished)
    assert not running.finished[0].cut


# 42: requests as they may be framed, and workers that do not wait for them.


async def test_a_worker_that_answers_before_the_body_is_read(stage: Stage) -> None:
    """Its answer passes, and its connection, on which the rest of the body still stands, serves nobody else."""
    connections: list[int] = []

    async def answers_early(wire: Wire) -> None:
        connections.append(id(wire))
        if wire.length > 1000:
            await wire.write(b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno")
            await asyncio.sleep(30)  # it never reads on
        else:
            await wire.body()
            await wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with blunt(answers_early) as worker:
        running = await stage.gateway(f"http://{worker.id}", timeouts={"first_byte_seconds": 5})
        client = await stage.client(running)
        big = await client.ask(post(b'{"model": "m", "prompt": "' + b"a" * 20_000_000 + b'"}'))
        assert (big.status, big.body) == (413, b"no")
        small = await client.ask(post())
        assert (small.status, small.body) == (200, b"ok")
        assert connections[0] != connections[1]


async def test_a_worker_that_answers_early_and_hangs_up(stage: Stage) -> None:
    """It is an answer if it came; in no case is it asked again, and the next request is served."""

    async def refuses(wire: Wire) -> None:
        if wire.length > 1000:
            await wire.write(b"HTTP/1.1 413 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
            wire.writer.close()
        else:
            await wire.body()
            await wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with blunt(refuses) as worker:
        running = await stage.gateway(f"http://{worker.id}", health={"unhealthy_after": 1000})
        for count in range(1, 6):
            got = await ask(running.port, post(BIG))
            assert (got.status, got.body) == (413, b"no") or (got.status, got.code) == (502, "worker_failed")
            assert worker.requests == count
        assert (await ask(running.port, post())).status == 200


async def test_a_worker_that_answers_as_soon_as_it_has_the_head(stage: Stage) -> None:
    """A whole stream, while the body is still on its way."""
    bodies: list[bytes] = []

    async def eager(wire: Wire) -> None:
        await wire.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await wire.write(chunked(event("1"))[:-5])
        bodies.append(await wire.body())
        await wire.write(chunked(event("2"), DONE))

    async with blunt(eager) as worker:
        running = await stage.gateway(f"http://{worker.id}")
        client = await stage.client(running)
        for _ in range(2):
            got = await client.ask(post(BIG))
            assert (got.status, got.whole, got.body) == (200, True, event("1") + event("2") + DONE)
        assert bodies == [BIG, BIG]


async def test_a_flood_of_interim_answers_stays_here(stage: Stage) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" * 2000
    worker = await stage.worker(answer=stream(event("1"), DONE, interim=interim))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for body in (HELLO, STREAM):
        got = await client.ask(post(body))
        assert (got.status, got.whole, got.body, got.all("link")) == (200, True, event("1") + DONE, [])
    assert [told.status for told in running.finished] == [200, 200]


async def test_interim_answers_without_end_are_no_answer(stage: Stage) -> None:
    """They keep nothing alive: the limit on the first byte of the answer goes on."""

    async def forever(wire: Wire) -> None:
        await wire.body()
        while True:
            await wire.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.05)

    async with blunt(forever) as worker:
        running = await stage.gateway(f"http://{worker.id}", timeouts={"first_byte_seconds": 0.6})
        got = await ask(running.port, post())
        assert (got.status, got.code) == (504, "worker_timeout")
        assert worker.requests == 1


BODILESS = {
    "204": b"HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n",
    "204 that declares nothing": b"HTTP/1.1 204 No Content\r\nx-a: b\r\ncontent-length: 0\r\n\r\n",
    "304": b'HTTP/1.1 304 Not Modified\r\nx-a: b\r\netag: "1"\r\n\r\n',
    "304 that declares what it would be": b"HTTP/1.1 304 Not Modified\r\nx-a: b\r\ncontent-length: 500\r\n\r\n",
    "304 that declares chunks": b"HTTP/1.1 304 Not Modified\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n",
}


@BOTH
@pytest.mark.parametrize("name", BODILESS)
async def test_an_answer_that_has_no_body_hangs_nobody(stage: Stage, name: str, body: bytes) -> None:
    """Twice on one connection, and then an answer with a body: nothing of it may be misread as a body."""
    worker = await stage.worker(answer=Answer(raw=BODILESS[name]))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for _ in range(2):
        await client.send(post(body))
        got = await client.head()
        assert (got.status, got.one("x-a"), got.all("transfer-encoding")) == (int(name[:3]), "b", [])
    worker.answer = reply()
    after = await client.ask(post(body))
    assert (after.status, after.body) == (200, b'{"object": "answer"}')


async def test_a_body_of_length_zero_ends(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for answer in (reply(b""), stream(), stream(b""), Answer(pieces=(), framing="eof")):
        worker.answer = answer if b"" not in answer.pieces or answer.framing == "length" else stream()
        got = await client.ask()
        assert (got.status, got.body, got.whole) == (200, b"", True)


SMUGGLED = post(b'{"model": "m", "prompt": "smuggled"}')
FRAMES = {
    "one chunk": (chunked(HELLO), True),
    "a byte a chunk": (chunked(*[bytes((byte,)) for byte in HELLO]), True),
    "sizes in capitals and zeros": (b"000%X\r\n%s\r\n000\r\n\r\n" % (len(HELLO), HELLO), True),
    "chunk extensions": (b'%x;a=b;c="d"\r\n%s\r\n0;last\r\n\r\n' % (len(HELLO), HELLO), True),
    "trailers": (b"%x\r\n%s\r\n0\r\nX-Late: 1\r\n\r\n" % (len(HELLO), HELLO), True),
    "a size that is no number": (b"zz\r\n{}\r\n0\r\n\r\n", False),
    "a size with a sign": (b"+2\r\n{}\r\n0\r\n\r\n", False),
    "a size with 0x": (b"0x2\r\n{}\r\n0\r\n\r\n", False),
    "a size too big for any number": (b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n", False),
    "a chunk longer than its size": (b"2\r\n{} \r\n0\r\n\r\n", False),
}


@pytest.mark.parametrize("name", FRAMES)
async def test_chunks_become_one_length_or_a_400(lane: Stage, name: str) -> None:
    framed, good = FRAMES[name]
    worker = await lane.worker()
    running = await lane.gateway(worker)
    client = await lane.client(running)
    await client.send(post(framed, headers=[("Transfer-Encoding", "chunked")]) + (b"" if good else SMUGGLED))
    got = await client.answer()
    if good:
        assert got.status == 200
        assert worker.bodies == [HELLO]
        assert worker.requests[0].one("content-length") == b"%d" % len(HELLO)
        assert worker.requests[0].all("transfer-encoding") == worker.requests[0].all("x-late") == []
        assert (await client.ask()).status == 200
    else:
        assert (got.status, got.code) == (400, "invalid_request")
        assert await client.closed() == b""
        assert worker.requests == []


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_expect_with_two_megabytes(stage: Stage, framing: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    more = [("Transfer-Encoding", "chunked")] if framing == "chunked" else []
    for _ in range(2):
        head = post(BIG if not more else b"", headers=[("Expect", "100-Continue"), *more])
        await client.send(head.removesuffix(BIG))
        assert (await client.head()).status == 100
        await client.send(BIG if not more else chunked(BIG[:1_000_000], BIG[1_000_000:]))
        assert (await client.answer()).status == 200
    assert worker.bodies == [BIG, BIG]
    assert [seen.all("expect") for seen in worker.requests] == [[], []]
    assert [seen.all("transfer-encoding") for seen in worker.requests] == [[], []]


async def test_a_client_that_does_not_wait_to_be_asked(stage: Stage) -> None:
    """It says Expect and sends its body at once, as some do."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(headers=[("Expect", "100-continue")]))
    got = await client.head()
    if got.status == 100:
        got = await client.head()
    assert (got.status, (await client.rest(got)).body) == (200, b'{"object": "answer"}')
    assert worker.bodies == [HELLO]


# 44: usage however the stream comes.


async def reported(running: Running, worker: str) -> tuple[float, float]:
    samples = await running.metrics()
    prompt = samples.get('prefix_router_prompt_tokens_total{model="m"}', 0)
    return prompt, samples.get(f'prefix_router_cached_tokens_total{{model="m",worker="{worker}"}}', 0)


LAST = event("", usage=USAGE, choices=[])
ENDS = {
    "as it should": LAST + DONE,
    "carriage returns": (LAST + DONE).replace(b"\n", b"\r\n"),
    "bare carriage returns": (LAST + DONE).replace(b"\n", b"\r"),
    "no space behind the colon": (LAST + DONE).replace(b"data: ", b"data:"),
    "no DONE": LAST,
    "no line end at all": LAST.rstrip(b"\n"),
    "one line end": LAST[:-1],
    "no line end behind DONE": LAST + DONE.rstrip(b"\n"),
    "a name and an id before the data": b"event: message\nid: 7\n" + LAST + DONE,
    "comments behind it": LAST + b": bye\n\n" * 20 + DONE,
    "null usage in every event before": event("x", usage=None) * 5 + LAST + DONE,
    "a smaller usage in every event before": event("x", usage={"prompt_tokens": 70, "completion_tokens": 1})
    + LAST
    + DONE,
    "usage inside a text": event('\\"usage\\": {\\"prompt_tokens\\": 9}') + LAST + event('"usage"') + DONE,
}


@pytest.mark.parametrize("name", ENDS)
async def test_usage_is_counted_once_wherever_the_stream_is_cut(stage: Stage, name: str) -> None:
    """Two pieces, cut at every third byte and around every line end; the client's bytes are the worker's."""
    end = ENDS[name]
    whole = event("0") + end
    begin = len(event("0")) - 2
    cuts = [at for at in range(begin, len(whole) + 1)
            if (at - begin) % 9 == 0 or {*whole[at - 1 : at + 1]} & {10, 13}]  # fmt: skip
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for cut in cuts:
        worker.answer = stream(*[piece for piece in (whole[:cut], whole[cut:]) if piece])
        got = await client.ask(post(STREAM))
        assert (got.whole, got.body) == (True, whole), cut
    assert await reported(running, worker.id) == (70 * len(cuts), 64 * len(cuts))
    assert {(told.prompt_tokens, told.output_tokens) for told in running.finished} == {(70, 3)}


async def test_one_byte_at_a_time_with_time_in_between(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(*[bytes((byte,)) for byte in LAST + DONE], gap=0.001))
    running = await stage.gateway(worker)
    got = await ask(running.port, post(STREAM))
    assert (got.whole, got.body) == (True, LAST + DONE)
    assert await reported(running, worker.id) == (70, 64)


async def test_a_byte_order_mark_stays_and_disturbs_nothing(stage: Stage) -> None:
    mark = b"\xef\xbb\xbf"
    worker = await stage.worker(answer=stream(mark + event("1") + event("2"), LAST, DONE))
    running = await stage.gateway(worker)
    got = await ask(running.port, post(STREAM))
    assert got.body == mark + event("1") + event("2") + LAST + DONE
    assert await reported(running, worker.id) == (70, 64)


async def test_twenty_megabytes_on_one_line(stage: Stage) -> None:
    """They pass as they come, are not kept, and what stands behind them is still read."""
    piece, count = b"y" * 65_536, 320
    worker = await stage.worker(answer=stream(b"data: ", *[piece] * count, b"\n\n", LAST, DONE))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    got = await client.head()
    size = 0
    while (data := await client.piece(got)) is not None:
        size += len(data)
        got.pieces[:-1] = []
    assert got.whole
    assert size == len(piece) * count + len(b"data: \n\n" + LAST + DONE)
    assert await reported(running, worker.id) == (70, 64)


ANTHROPIC = [
    (
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 6, '
        b'"cache_read_input_tokens": 64, "output_tokens": 1}}}\n\n'
    ),
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "x"}}\n\n',
    b'event: message_delta\ndata: {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}\n\n',
    b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
]


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_the_other_dialects_usage_too(stage: Stage, ends: bytes) -> None:
    whole = b"".join(ANTHROPIC).replace(b"\n", ends)
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    cuts = range(1, len(whole), 11)
    for cut in cuts:
        worker.answer = stream(whole[:cut], whole[cut:])
        got = await client.ask(post(STREAM, "/v1/messages"))
        assert (got.whole, got.body) == (True, whole)
    assert {(told.prompt_tokens, told.cached_tokens, told.output_tokens) for told in running.finished} == {(70, 64, 3)}
    assert await reported(running, worker.id) == (70 * len(cuts), 64 * len(cuts))


# 46: what stands between the events.


QUIRKS = {
    "comments": b": still here\n\n",
    "a comment without a blank line": b": still here\n",
    "a time to reconnect": b"retry: 5000\n\n",
    "an id alone": b"id: 7\n\n",
    "blank lines": b"\n\n\n",
    "data with nothing": b"data:\n\n",
    "an event's name alone": b"event: ping\n\n",
}


async def read_by_the_official_client(target: Running | Worker) -> list[str | None] | str:
    """The text of a stream, or what the client raises: it takes an event without data for a fault."""
    async with client_of(target) as client:  # type: ignore[arg-type]
        answer = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        try:
            return [chunk.choices[0].delta.content async for chunk in answer]
        except ValueError as wrong:
            return type(wrong).__name__


@pytest.mark.parametrize("name", QUIRKS)
async def test_the_official_client_reads_with_a_gateway_what_it_reads_without(stage: Stage, name: str) -> None:
    quirk = QUIRKS[name]
    pieces = [quirk, event("Hello", **CHUNK), quirk, event(", world", **CHUNK), quirk, DONE]
    worker = await stage.worker(answer=stream(*pieces, gap=0.01))
    running = await stage.gateway(worker)
    direct = await read_by_the_official_client(worker)
    assert await read_by_the_official_client(running) == direct
    if name in ("comments", "blank lines"):
        assert direct == ["Hello", ", world"]
    assert (await ask(running.port, post(STREAM))).body == b"".join(pieces)


async def test_during_a_long_silence_the_gateway_says_nothing_of_its_own(stage: Stage) -> None:
    """Neither before the worker's status nor inside a half-sent event."""
    gates = [asyncio.Event() for _ in range(2)]
    first, second = event("Hello", **CHUNK)[:20], event("Hello", **CHUNK)[20:]
    worker = await stage.worker(answer=stream(gates[0], first, gates[1], second, DONE, delay=0.5))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    reading = asyncio.ensure_future(client.head())
    await asyncio.sleep(0.3)
    assert not reading.done(), "nothing before the worker's status"
    got = await reading
    gates[0].set()
    assert await client.piece(got) == first
    waiting = asyncio.ensure_future(client.piece(got))
    await asyncio.sleep(0.5)
    assert not waiting.done(), "nothing in the middle of an event"
    gates[1].set()
    assert await waiting == second
    assert (await client.rest(got)).body == first + second + DONE


# 47: errors of workers, streaming or not.


ERROR = b'{"error": {"message": "the worker says no", "type": "x", "param": null, "code": "own"}}'
REFUSALS = {
    **{str(status): reply(ERROR, status) for status in (400, 401, 403, 404, 409, 413, 422, 500, 504)},
    "429": reply(ERROR, 429, ("Retry-After", "17"), ("X-RateLimit-Remaining", "0")),
    "429 by date": reply(ERROR, 429, ("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")),
    "503": reply(ERROR, 503, ("Retry-After", "5")),
    "an HTML 502": Answer(
        status=502, headers=(("content-type", "text/html; charset=utf-8"),), pieces=(b"<h1>No</h1>",)
    ),
    "events with a 400": stream(b"data: " + ERROR + b"\n\n", status=400),
    "an empty 500": Answer(status=500, headers=(), pieces=(b"",)),
    "a plain text 400": Answer(status=400, headers=(("content-type", "text/plain"),), pieces=(b"no",), framing="eof"),
    "200 with an error": reply(ERROR),
    "200 with an error in an event": stream(b"data: " + ERROR + b"\n\n", DONE),
    "an odd status": reply(ERROR, 529),
}
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


@pytest.mark.parametrize("path", PATHS)
async def test_a_workers_refusal_is_the_same_whether_a_stream_was_asked_for(stage: Stage, path: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"unhealthy_after": 1000})
    for name, answer in REFUSALS.items():
        worker.answer = answer
        for body in (HELLO, STREAM):
            got = await ask(running.port, post(body, path))
            assert (got.status, got.whole, got.body) == (answer.status, True, joined(answer)), name
            for header, value in answer.headers:
                assert got.one(header.lower()) == value, name
            assert got.all("content-type") == [value for header, value in answer.headers if header == "content-type"]


@BOTH
@pytest.mark.parametrize("path", PATHS)
async def test_a_worker_that_is_not_there_is_an_error_in_json(stage: Stage, path: str, body: bytes) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 60})
    await worker.refuse()
    got = await ask(running.port, post(body, path))
    assert (got.status, got.one("content-type"), got.whole) == (503, "application/json", True)
    assert got.json()["error"]["message"]
    assert got.one("retry-after")


# 48: streams that a worker cuts.


FINISH = event("", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
THREE = (event("1"), event("2"), event("3"))
CUTS = {
    "after the head": (stream(stop=0), b""),
    "after three events": (stream(*THREE, stop=3), b"".join(THREE)),
    "in an event": (stream(*THREE, b'data: {"cho', stop=4), b"".join(THREE) + b'data: {"cho'),
    "between an event's two line ends": (stream(event("1")[:-1], stop=1), event("1")[:-1]),
    "short of its length": (Answer(headers=EVENTS, pieces=THREE, length=9_999, stop=3), b"".join(THREE)),
    "after the finish": (stream(*THREE, FINISH, stop=4), b"".join(THREE) + FINISH),
    "after DONE": (stream(*THREE, DONE, stop=4), b"".join(THREE) + DONE),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("name", CUTS)
async def test_a_cut_answer_is_cut_for_the_client(stage: Stage, name: str, ending: str, path: str) -> None:
    """No terminating chunk, nothing invented; the failure is the worker's, and nothing stays in flight."""
    answer, passed = CUTS[name]
    worker = await stage.worker(answer=Answer(**{**vars(answer), "ending": ending}))
    other = await stage.worker(models=("other",))
    running = await stage.gateway(worker, other, health={"unhealthy_after": 1000})
    for body in (HELLO, STREAM):
        got = await ask(running.port, post(body, path))
        assert (got.status, got.whole, got.body) == (200, False, passed)
    assert [told.cut for told in running.finished] == [True, True]
    assert [(told.worker, told.kind) for told in running.told(AttemptFailed)] == [(worker.id, "broken")] * 2
    assert running.seat(worker).load.in_flight == 0
    assert other.requests == []
    samples = await running.metrics()
    assert samples[f'prefix_router_worker_failures_total{{kind="broken",worker="{worker.id}"}}'] == 2


@pytest.mark.parametrize("name", CUTS)
async def test_the_official_client_sees_the_cut(stage: Stage, name: str) -> None:
    """All but the last of the cases: behind DONE it no longer looks."""
    answer, _ = CUTS[name]
    pieces = [
        piece.replace(b'"object"', b'"id": "c1", "created": 1, "model": "m", "object"') for piece in answer.pieces
    ]
    running = await stage.gateway(await stage.worker(answer=Answer(**{**vars(answer), "pieces": pieces})))
    async with client_of(running) as client:
        stream_ = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        if name == "after DONE":
            assert len([chunk async for chunk in stream_]) == 3
            return
        with pytest.raises((openai.APIConnectionError, openai.APIError, Exception)) as caught:
            async for _ in stream_:
                pass
        assert type(caught.value).__name__ in ("RemoteProtocolError", "APIConnectionError", "JSONDecodeError")


async def test_a_cut_storm_is_told_of_every_single_one(stage: Stage) -> None:
    """A thousand streams of which some are reset: not one of those ends well, not one of the others badly."""
    worker = await stage.worker()
    ends = {b"cut": stream(event("1"), event("2"), stop=1, ending="reset"), b"well": stream(event("1"), DONE)}
    worker.answer = lambda seen: ends[b"cut" if b'"cut"' in seen.body else b"well"]
    running = await stage.gateway(worker, health={"unhealthy_after": 10_000})

    async def one(at: int) -> tuple[bool, bool]:
        cut = at % 7 == 0
        client = await Client.connect(running.port)
        body = json.dumps({"model": "m", "stream": True, "prompt": "cut" if cut else "well"}).encode()
        got = await client.ask(post(body, "/v1/completions"))
        await client.close()
        assert got.status == 200
        return cut, got.whole

    for begin in range(0, 300, 50):
        seen = await asyncio.gather(*[one(at) for at in range(begin, begin + 50)])
        assert all(whole is not cut for cut, whole in seen)


async def test_an_end_without_done_does_not_hang(stage: Stage) -> None:
    """The worker ends its stream as framing asks, but says no DONE, or keeps its connection open behind it."""
    pieces = (event("1"), FINISH)
    for answer in (stream(*pieces), Answer(headers=EVENTS, pieces=pieces, framing="eof"),
                   Answer(headers=EVENTS, pieces=pieces)):  # fmt: skip
        worker = await stage.worker(answer=answer)
        running = await stage.gateway(worker)
        got = await ask(running.port, post(STREAM))
        assert (got.whole, got.body) == (True, b"".join(pieces))
        assert not running.finished[0].cut
        await running.stop()
