"""37, 39: a client that leaves takes its request with it, wherever that is, and leaves nothing used up."""

import asyncio
import json
from random import Random

import pytest

from router.core.health import PROBE_OK
from tests.support.blunt import Wire, blunt, silent
from tests.support.client import STREAM, Client, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import event, reply, stream

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank",
         "/v1/score", "/tokenize", "/detokenize")  # fmt: skip
SOON = 1.5  # a second, and what a loaded machine takes to notice
NEVER = reply(stop=-1, ending="hang")
BIG = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"a" * 8_000_000 + b'"}]}'


def now() -> float:
    return asyncio.get_running_loop().time()


def any_body(streaming: bool) -> bytes:
    """Read on every path: each takes the field it knows."""
    fields = {"model": "m", "input": "text", "prompt": "text", "messages": [{"role": "user", "content": "text"}]}
    return json.dumps(fields | ({"stream": True} if streaming else {})).encode()


async def told_one(running: Running, phase: str) -> None:
    await eventually(lambda: running.finished, "its end was not told")
    assert [(event.status, event.cancelled_in) for event in running.finished] == [(499, phase)]


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_on_every_path_the_worker_is_told_within_a_second(stage: Stage, streaming: bool) -> None:
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway(worker)
    for count, path in enumerate(PATHS, 1):
        client = await stage.client(running)
        await client.send(post(any_body(streaming), path))
        await eventually(lambda: worker.running == 1)
        dropped = now()
        client.drop(reset=count % 2 == 0)
        await eventually(lambda count=count: worker.aborted == count, f"{path}: the worker was never told")
        assert worker.aborted_at[-1] - dropped < SOON, path
    await eventually(lambda: len(running.finished) == len(PATHS))
    assert {(told.status, told.cancelled_in) for told in running.finished} == {(499, "waiting")}
    assert {told.path for told in running.finished} == set(PATHS)
    assert running.state(worker) == "ready"
    assert (await running.metrics())['prefix_router_cancelled_total{phase="waiting"}'] == len(PATHS)


WAYS = {"drops": lambda client: client.drop(), "resets": lambda client: client.drop(reset=True),
        "half-closes": lambda client: client.half_close()}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_after_any_number_of_events_however_it_leaves(stage: Stage, way: str, after: int) -> None:
    """Then the worker is silent: no write fails, so only the client's leaving tells."""
    events = [event(str(at)) for at in range(after)]
    worker = await stage.worker(answer=stream(*events, stop=after, ending="hang"))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    for _ in range(after):
        await client.piece(answer)
    dropped = now()
    WAYS[way](client)
    await eventually(lambda: worker.aborted == 1, "the worker was never told")
    assert worker.aborted_at[0] - dropped < SOON
    await told_one(running, "streaming")
    assert running.state(worker) == "ready"


@pytest.mark.parametrize("part", ["head", "body", "chunk"])
async def test_while_the_request_still_comes_in(stage: Stage, part: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    whole = {
        "head": post()[:60], "body": post(BIG)[:4_000_000],
        "chunk": post(b"ffff\r\n{", headers=[("Transfer-Encoding", "chunked")]),
    }[part]  # fmt: skip
    for reset in (False, True):
        client = await stage.client(running)
        await client.send(whole)
        await asyncio.sleep(0.05)
        client.drop(reset=reset)
    await asyncio.sleep(0.2)
    expected = [] if part == "head" else [(499, "receiving")] * 2
    await eventually(lambda: len(running.finished) == len(expected))
    assert [(told.status, told.cancelled_in) for told in running.finished] == expected
    assert worker.requests == []


async def test_while_the_request_goes_out_to_a_worker_that_does_not_read(stage: Stage) -> None:
    """Eight megabytes stand in the sockets' buffers and in the gateway; the worker's connection ends all the same."""

    async def never_reads(wire: Wire) -> None:
        wire.writer.transport.pause_reading()
        await asyncio.sleep(0.5)
        wire.writer.transport.resume_reading()
        await wire.body()

    async with blunt(never_reads) as worker:
        running = await stage.gateway(f"http://{worker.id}")
        client = await stage.client(running)
        await client.send(post(BIG))
        await eventually(lambda: worker.requests == 1)
        client.drop()
        await told_one(running, "waiting")
        await eventually(lambda: worker.gone >= 1, "the worker's connection stayed open")
        await eventually(lambda: not running.house.busy_connections())


# uvloop closes a half-made TLS connection by letting go of it, and says so.
LET_GO = pytest.mark.filterwarnings(
    "ignore:unclosed resource <TCPTransport", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@LET_GO
@pytest.mark.parametrize("way", WAYS)
async def test_in_the_middle_of_a_tls_handshake(stage: Stage, way: str) -> None:
    async with silent() as worker:
        settings = {"timeouts": {"connect_seconds": 30}, "health": {"interval_seconds": 60, "timeout_seconds": 0.2}}
        running = await stage.gateway(f"https://127.0.0.1:{worker.port}", ready=False, **settings)
        [seat] = running.seats.values()
        await eventually(lambda: seat.health.failed_probes)
        await eventually(lambda: worker.open == 0)
        running.house.signal(seat, PROBE_OK)
        client = await stage.client(running)
        await client.send(post())
        await eventually(lambda: worker.open == 1)
        await asyncio.sleep(0.1)  # it is in the handshake now
        WAYS[way](client)
        await told_one(running, "connecting")
        await eventually(lambda: worker.open == 0, "the half-made connection stayed open", within=3.0)


@LET_GO
async def test_a_tls_handshake_that_hangs_ends_at_the_connect_limit(stage: Stage) -> None:
    async with silent() as worker:
        settings = {"timeouts": {"connect_seconds": 0.4}, "health": {"interval_seconds": 60, "timeout_seconds": 0.2}}
        running = await stage.gateway(f"https://127.0.0.1:{worker.port}", ready=False, **settings)
        [seat] = running.seats.values()
        await eventually(lambda: seat.health.failed_probes)
        running.house.signal(seat, PROBE_OK)
        got = await ask(running.port, post())
        assert (got.status, got.code) == (504, "worker_timeout")
        await eventually(lambda: worker.open == 0, "the half-made connection stayed open", within=3.0)


CONNECTIONS = 10


@pytest.mark.parametrize("limited", [False, True], ids=["no limit", "a limit of ten connections"])
async def test_cancelling_at_random_uses_nothing_up(stage: Stage, limited: bool) -> None:
    """Clients leave in every phase, before connections are made too; then as many as the limit run at once again."""
    dice = Random(11)
    worker = await stage.worker(answer=lambda _: reply(delay=dice.random() * 0.05))
    limit = {"max_in_flight": CONNECTIONS} if limited else {}
    running = await stage.gateway({"url": worker.url, **limit}, health={"unhealthy_after": 1000})

    async def one() -> None:
        client = await Client.connect(running.port)
        await client.send(post(STREAM if dice.random() < 0.5 else any_body(False)))
        await asyncio.sleep(dice.choice([0.0, 0.001, 0.005, 0.02, 0.05]))
        client.drop(reset=dice.random() < 0.5)

    for turn in range(25):
        if turn % 5 == 0:
            await worker.hang_up()  # so that connections have to be made anew
        await asyncio.gather(*[one() for _ in range(2 * CONNECTIONS)])
    await stage.at_rest(running)
    gate = asyncio.Event()
    worker.answer = stream(gate, b"data: [DONE]\n\n")
    asking = [asyncio.ensure_future(ask(running.port, post())) for _ in range(CONNECTIONS)]
    await eventually(lambda: worker.running == CONNECTIONS, "places are used up")
    gate.set()
    assert [(await each).status for each in asking] == [200] * CONNECTIONS


async def test_a_task_that_is_cancelled_twice_gives_everything_back_once(stage: Stage) -> None:
    """A reset behind a half-close: two ways of leaving, a loop's turn apart."""
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway(worker)
    for turns in range(4):
        client = await stage.client(running)
        await client.send(post())
        await eventually(lambda turns=turns: worker.started == turns + 1)
        client.half_close()
        for _ in range(turns):
            await asyncio.sleep(0)
        client.drop(reset=True)
        await eventually(lambda turns=turns: worker.aborted == turns + 1)
    await eventually(lambda: len(running.finished) == 4)
    assert {told.status for told in running.finished} == {499}
    assert running.seat(worker).load.in_flight == 0
