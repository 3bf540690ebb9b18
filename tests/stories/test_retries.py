"""Another worker is asked only when the request certainly did not run; generations are counted at the workers."""

import asyncio

import pytest

from router.core.health import DRAIN, PROBE_OK, UNDRAIN
from router.events import AttemptFailed
from tests.support.client import HELLO, STREAM, Response, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Worker, event, full_backlog, reply, stream

BOTH = pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
BUSY = reply(b'{"error": "busy"}', 503, ("retry-after", "7"))
LIMITED = reply(b'{"error": "slow down"}', 429, ("retry-after", "3"))
GOOD = reply(b'{"good": true}')


async def fleet(stage: Stage, *answers: Answer, **settings: object) -> tuple[Running, list[Worker]]:
    """A gateway whose first request goes to the workers in this order."""
    workers = [await stage.worker(answer=answer) for answer in answers]
    routing = {"routing": {"policy": "tests.support.in_order", **settings.pop("routing", {})}}  # type: ignore[dict-item]
    named = [{"url": worker.url, "id": f"w{at}"} for at, worker in enumerate(workers)]
    return await stage.gateway(*named, **routing, **settings), workers


def tries(workers: list[Worker]) -> list[int]:
    return [len(worker.requests) for worker in workers]


def kinds(running: Running) -> list[str]:
    return [event.kind for event in running.told(AttemptFailed)]


@BOTH
@pytest.mark.parametrize("answer", [BUSY, LIMITED], ids=["503", "429"])
async def test_a_worker_that_says_it_is_busy_is_passed_over(stage: Stage, body: bytes, answer: Answer) -> None:
    running, workers = await fleet(stage, answer, GOOD)
    got = await ask(running.port, post(body))
    assert (got.status, got.body) == (200, b'{"good": true}')
    assert (got.one("x-router-worker"), got.one("x-router-reason")) == ("w1", "retry")
    assert tries(workers) == [1, 1]
    assert [worker.started for worker in workers] == [0, 1]
    assert (running.finished[0].tries, running.finished[0].status) == (2, 200)
    assert [seat.health.state.value for seat in running.seats.values()] == ["ready", "ready"]


async def test_both_workers_get_the_same_bytes_and_the_same_id(stage: Stage) -> None:
    running, workers = await fleet(stage, BUSY, GOOD)
    got = await ask(running.port, post(headers=[("X-Kept", "yes")]))
    first, second = (worker.requests[0] for worker in workers)
    assert first.body == second.body == HELLO
    assert first.one("x-request-id") == second.one("x-request-id") == (got.one("x-request-id") or "").encode()
    assert [name for name, _ in first.headers] == [name for name, _ in second.headers]


@BOTH
async def test_when_all_are_busy_the_last_ones_answer_is_passed_on_as_it_came(stage: Stage, body: bytes) -> None:
    running, workers = await fleet(stage, BUSY, LIMITED)
    got = await ask(running.port, post(body))
    assert (got.status, got.body) == (429, b'{"error": "slow down"}')
    assert (got.one("retry-after"), got.one("content-type")) == ("3", "application/json")
    assert got.one("x-router-worker") == "w1"
    assert tries(workers) == [1, 1]


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_tries_are_bounded_and_each_worker_is_asked_once(stage: Stage, most: int) -> None:
    running, workers = await fleet(stage, BUSY, BUSY, BUSY, BUSY, routing={"max_tries": most})
    got = await ask(running.port, post())
    assert (got.status, got.body) == (503, b'{"error": "busy"}')
    assert tries(workers) == [1] * most + [0] * (4 - most)


async def test_a_busy_answer_longer_than_what_is_held_is_passed_on(stage: Stage) -> None:
    big = b'{"error": "' + b"x" * 200_000 + b'"}'
    running, workers = await fleet(stage, reply(big, 503), GOOD)
    got = await ask(running.port, post())
    assert (got.status, got.body, got.whole) == (503, big, True)
    assert tries(workers) == [1, 0]


async def test_a_busy_answer_whose_body_never_ends_is_let_go(stage: Stage) -> None:
    stuck = stream(b"busy", status=503, stop=1, ending="hang")
    running, workers = await fleet(stage, stuck, GOOD, timeouts={"idle_seconds": 0.5})
    got = await ask(running.port, post())
    assert (got.status, got.body) == (200, b'{"good": true}')
    assert tries(workers) == [1, 1]


async def test_a_busy_worker_and_one_that_cannot_be_reached_give_the_busy_ones_answer(stage: Stage) -> None:
    running, workers = await fleet(stage, BUSY, GOOD, health={"interval_seconds": 60})
    await workers[1].refuse()
    got = await ask(running.port, post())
    assert (got.status, got.body, got.one("retry-after")) == (503, b'{"error": "busy"}', "7")
    assert got.one("x-router-worker") == "w0"
    assert kinds(running) == ["status_503", "refused"]


UNCHANGED = {
    "400": reply(b'{"error": {"message": "too long", "code": 400}}', 400),
    "401": reply(b'{"error": "who are you"}', 401, ("www-authenticate", "Bearer")),
    "404": reply(b'{"error": "no such model"}', 404),
    "422": reply(b'{"detail": [{"loc": ["body"]}]}', 422),
    "429": LIMITED,
    "500": reply(b'{"error": "CUDA out of memory"}', 500),
    "503": BUSY,
    "HTML 502": Answer(status=502, headers=(("content-type", "text/html"),), pieces=(b"<h1>Bad Gateway</h1>",)),
    "200 with an error": reply(b'{"error": {"message": "what", "code": 1}}'),
    "299": reply(b"{}", 299),
    "chunked 400": Answer(status=400, pieces=(b'{"error":', b' "x"}'), framing="chunked"),
    "unframed 500": Answer(status=500, pieces=(b"oops",), framing="eof", headers=(("content-type", "text/plain"),)),
}


@BOTH
async def test_a_workers_own_answer_is_passed_on_unchanged(stage: Stage, body: bytes) -> None:
    running, [worker] = await fleet(stage, GOOD, health={"unhealthy_after": 100})
    for count, (name, answer) in enumerate(UNCHANGED.items(), 1):
        worker.answer = answer
        got = await ask(running.port, post(body))
        assert (got.status, got.whole) == (answer.status, True), name
        assert got.body == b"".join(answer.pieces), name  # type: ignore[arg-type]
        for header, value in answer.headers:
            assert got.one(header) == value, name
        assert len(worker.requests) == count, name
        assert running.finished[-1].status == answer.status, name


@BOTH
async def test_no_other_status_is_tried_elsewhere(stage: Stage, body: bytes) -> None:
    running, workers = await fleet(stage, GOOD, GOOD, health={"unhealthy_after": 100})
    for status in (400, 401, 404, 422, 500, 502, 504):
        workers[0].answer = reply(b"{}", status)
        assert (await ask(running.port, post(body))).status == status
    assert tries(workers) == [7, 0]


async def test_a_worker_that_refuses_is_passed_over_and_not_counted(stage: Stage) -> None:
    running, workers = await fleet(
        stage, GOOD, GOOD, GOOD, GOOD, BUSY, GOOD, routing={"max_tries": 2}, health={"interval_seconds": 60}
    )
    for worker in workers[:4]:
        await worker.refuse()
    got = await ask(running.port, post())
    assert (got.status, got.one("x-router-worker"), got.one("x-router-reason")) == (200, "w5", "retry")
    assert kinds(running) == ["refused"] * 4 + ["status_503"]
    assert tries(workers) == [0, 0, 0, 0, 1, 1]


@BOTH
async def test_when_every_worker_refuses_the_answer_is_no_ready_worker(stage: Stage, body: bytes) -> None:
    running, workers = await fleet(stage, GOOD, GOOD, GOOD, routing={"max_tries": 2}, health={"interval_seconds": 60})
    for worker in workers:
        await worker.refuse()
    got = await ask(running.port, post(body))
    assert (got.status, got.code, got.one("content-type")) == (503, "no_ready_worker", "application/json")
    assert got.one("retry-after")
    assert kinds(running) == ["refused"] * 3


async def test_a_connection_that_does_not_come_about_in_time_is_a_refusal(stage: Stage) -> None:
    listener, waiting, port = full_backlog()
    try:
        good = await stage.worker(answer=GOOD)
        slow = {"url": f"http://127.0.0.1:{port}", "id": "w0"}
        routing = {"policy": "tests.support.in_order", "max_tries": 1}
        limits = {"health": {"timeout_seconds": 0.2}, "timeouts": {"connect_seconds": 0.3}}
        running = await stage.gateway(slow, {"url": good.url, "id": "w1"}, routing=routing, ready=False, **limits)
        await running.ready(1)
        call_well(running, "w0")
        got = await ask(running.port, post())
        assert (got.status, got.one("x-router-worker")) == (200, "w1")
        assert kinds(running) == ["connect_timeout"]
        await good.refuse()
        call_well(running, "w0")
        running.seats.pop("w1", None)
    finally:
        for sock in (listener, *waiting):
            sock.close()


async def test_when_no_connection_comes_about_at_all_the_limit_is_named(stage: Stage) -> None:
    listener, waiting, port = full_backlog()
    try:
        limits = {"health": {"interval_seconds": 60}, "timeouts": {"connect_seconds": 0.3}}
        running = await stage.gateway(f"http://127.0.0.1:{port}", ready=False, **limits)
        call_well(running, f"127.0.0.1:{port}")
        got = await ask(running.port, post())
        assert (got.status, got.code) == (504, "worker_timeout")
    finally:
        for sock in (listener, *waiting):
            sock.close()


def call_well(running: Running, worker_id: str) -> None:
    """As a good probe would."""
    running.house.signal(running.seats[worker_id], PROBE_OK)


BREAKS = {
    "closes after reading": reply(stop=-1),
    "resets after reading": reply(stop=-1, ending="reset"),
    "sends half a head": Answer(raw=b"HTTP/1.1 200 OK\r\ncontent-type: te", keep_alive=False),
    "speaks another protocol": Answer(raw=b"SSH-2.0-OpenSSH_9.2\r\n", keep_alive=False),
    "sends nonsense": Answer(raw=b"\x00\x01\x02nonsense" * 50, keep_alive=False),
    "upgrades": Answer(
        raw=b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello", keep_alive=False
    ),
    "hides an answer in an interim one": Answer(
        raw=b"HTTP/1.1 199 x\r\ntransfer-encoding: chunked\r\n\r\n2c\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nFORGED\r\n0\r\n\r\n",
        keep_alive=False,
    ),
    "declares two lengths": Answer(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"),
    "declares a length and chunks": Answer(
        raw=b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    ),
}


@BOTH
@pytest.mark.parametrize("name", BREAKS)
async def test_a_worker_that_breaks_before_its_answer_is_a_502_and_never_repeated(
    stage: Stage, name: str, body: bytes
) -> None:
    running, workers = await fleet(stage, BREAKS[name], GOOD)
    got = await ask(running.port, post(body))
    assert (got.status, got.code) == (502, "worker_failed")
    assert tries(workers) == [1, 0]
    assert kinds(running) == ["broken"]
    assert (running.finished[0].status, running.finished[0].code) == (502, "worker_failed")


@BOTH
async def test_the_limit_on_the_first_byte_is_a_504_and_never_repeated(stage: Stage, body: bytes) -> None:
    running, workers = await fleet(stage, reply(stop=-1, ending="hang"), GOOD, timeouts={"first_byte_seconds": 0.3})
    got = await ask(running.port, post(body))
    assert (got.status, got.code) == (504, "worker_timeout")
    assert tries(workers) == [1, 0]
    await eventually(lambda: workers[0].aborted == 1, "the worker was not told")
    assert kinds(running) == ["first_byte_timeout"]


async def test_slow_is_not_dead_within_the_limits(stage: Stage) -> None:
    """No limit on the whole: each silence is shorter than its limit, all together are longer than both."""
    slow = stream(*[event(str(at)) for at in range(6)], DONE, delay=0.2, gap=0.2)
    running, workers = await fleet(stage, slow, timeouts={"first_byte_seconds": 1.0, "idle_seconds": 1.0})
    got = await ask(running.port, post(STREAM))
    assert got.whole
    assert got.body.endswith(DONE)
    await eventually(lambda: workers[0].finished == 1)


async def test_a_stale_connection_is_replaced_once_and_the_request_runs_once(stage: Stage) -> None:
    """The worker closes its idle connection while the next request is on its way."""
    running, [worker] = await fleet(stage, GOOD)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    first = worker.accepted
    drop_next_unread(worker)
    assert (await client.ask()).status == 200
    assert worker.accepted > first
    await eventually(lambda: (worker.started, worker.finished) == (2, 2))
    assert kinds(running) == ["stale_connection"]
    assert running.seats["w0"].health.state.value == "ready"


def drop_next_unread(worker: Worker) -> None:
    """The worker closes each of its open connections as soon as something arrives, unread."""
    for peer in list(worker._peers):
        peer.close_on_data = True


async def test_every_worker_with_a_stale_connection_gets_its_own_second_chance(stage: Stage) -> None:
    running, workers = await fleet(stage, GOOD, GOOD)
    client = await stage.client(running)
    workers[0].answer = BUSY
    assert (await client.ask()).one("x-router-worker") == "w1"
    for seat in running.seats.values():
        seat.health.pressed_until = 0.0
    for worker in workers:
        drop_next_unread(worker)
    got = await client.ask()
    assert (got.status, got.one("x-router-worker")) == (200, "w1")
    assert kinds(running) == ["status_503", "stale_connection", "status_503", "stale_connection"]
    assert [worker.started for worker in workers] == [0, 2]


@BOTH
@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_worker_that_dies_while_it_computes_is_no_stale_connection(
    stage: Stage, body: bytes, ending: str
) -> None:
    """A kept connection that breaks long after the request was sent: the engine may have run, so it is not repeated."""
    running, workers = await fleet(stage, GOOD, GOOD)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    workers[0].answer = reply(stop=-1, ending=ending, delay=1.0)
    got = await client.ask(post(body))
    assert (got.status, got.code) == (502, "worker_failed")
    assert [worker.started for worker in workers] == [2, 0]


CUTS = {
    "after the head": (stream(stop=0), b""),
    "after three events": (stream(event("1"), event("2"), event("3"), stop=3), event("1") + event("2") + event("3")),
    "in the middle of an event": (stream(event("1"), b'data: {"cho', stop=2), event("1") + b'data: {"cho'),
    "by a reset": (stream(event("1"), stop=1, ending="reset"), event("1")),
    "short of its length": (Answer(pieces=(b"12345",), length=10, stop=1), b"12345"),
    "in the middle of a chunk": (
        Answer(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nff\r\nmore", keep_alive=False),
        b"hellomore",
    ),
    "with a broken chunk": (
        Answer(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\nmore\r\n"),
        b"hello",
    ),
    "by a reset without any framing": (
        Answer(pieces=(b"until",), framing="eof", stop=1, ending="reset", headers=(("content-type", "text/plain"),)),
        b"until",
    ),
}


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("name", CUTS)
async def test_an_answer_that_a_worker_cuts_is_cut_for_the_client(stage: Stage, name: str, version: str) -> None:
    """Nothing is made up, nothing ends well, and nobody else is asked."""
    answer, passed = CUTS[name]
    running, workers = await fleet(stage, answer, GOOD)
    client = await stage.client(running)
    await client.send(post(STREAM, version=version))
    got: Response = await client.head()
    await client.rest(got)
    assert got.status == 200
    assert not got.whole
    if version == "1.1" or not stage.fast:
        assert got.body == passed
    assert passed.startswith(got.body)
    assert tries(workers) == [1, 0]
    assert [event.cut for event in running.finished] == [True]
    assert kinds(running) == ["broken"]


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_an_answer_that_ends_without_done_is_passed_on_as_it_is(stage: Stage, ending: str) -> None:
    last = event("", choices=[{"delta": {}, "finish_reason": "stop"}])
    running, _ = await fleet(stage, stream(event("1"), last))
    got = await ask(running.port, post(STREAM))
    assert got.whole
    assert got.body == event("1") + last


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_silence_longer_than_the_idle_limit_cuts_a_stream(stage: Stage, version: str) -> None:
    running, workers = await fleet(
        stage, stream(event("1"), stop=1, ending="hang"), GOOD, timeouts={"idle_seconds": 0.3}
    )
    client = await stage.client(running)
    await client.send(post(STREAM, version=version))
    got = await client.head()
    assert await client.piece(got) is not None
    await client.rest(got)
    assert not got.whole
    await eventually(lambda: workers[0].aborted == 1)
    assert tries(workers) == [1, 0]
    assert kinds(running) == ["idle_timeout"]
    assert running.finished[0].cut


async def test_an_answer_longer_than_its_length_ends_where_it_said(stage: Stage) -> None:
    """What follows is no part of it, and the connection is not used again."""
    running, [worker] = await fleet(stage, Answer(pieces=(b"12345MORE",), length=5))
    client = await stage.client(running)
    for _ in range(2):
        got = await client.ask()
        assert (got.body, got.whole) == (b"12345", True)
    assert worker.requests[0].connection != worker.requests[1].connection


async def test_two_answers_for_one_request_poison_no_other(stage: Stage) -> None:
    twice = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none" + b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntwo"
    running, [worker] = await fleet(stage, Answer(raw=twice))
    client = await stage.client(running)
    assert (await client.ask()).body == b"one"
    worker.answer = GOOD
    assert (await client.ask()).body == b'{"good": true}'


async def test_workers_connections_are_reused(stage: Stage) -> None:
    running, [worker] = await fleet(stage, GOOD)
    for _ in range(5):
        assert (await ask(running.port, post())).status == 200
    assert len({request.connection for request in worker.requests}) == 1


async def test_three_hundred_at_once_reach_one_worker_at_once(stage: Stage) -> None:
    gate = asyncio.Event()
    running, [worker] = await fleet(stage, stream(gate, DONE), timeouts={"connect_seconds": 5})
    asking = [asyncio.ensure_future(ask(running.port, post(STREAM))) for _ in range(300)]
    await eventually(lambda: worker.running == 300)
    assert next(iter(running.seats.values())).load.in_flight == 300
    gate.set()
    answers = await asyncio.gather(*asking)
    assert {(answer.status, answer.whole) for answer in answers} == {(200, True)}


async def test_a_request_that_kills_its_worker_at_once_does_not_walk_the_fleet(stage: Stage) -> None:
    """It looks as a stale connection does; what happens to it when it is sent again is the end of it."""
    running, workers = await fleet(stage, *[GOOD] * 5, routing={"max_tries": 2}, health={"interval_seconds": 60})
    client = await stage.client(running)
    for at, worker in enumerate(workers):  # every worker has a kept connection
        assert (await client.ask()).one("x-router-worker") == f"w{at}"
        running.house.signal(running.seats[f"w{at}"], DRAIN)
        drop_next_unread(worker)
        await worker.refuse(hang_up=False)
    for seat in running.seats.values():
        running.house.signal(seat, UNDRAIN)
    got = await client.ask()
    assert got.status in (502, 503)
    assert kinds(running) == ["stale_connection", "refused"]
