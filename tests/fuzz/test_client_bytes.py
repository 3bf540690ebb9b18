"""Any bytes from a client."""

import asyncio
import re
from random import Random

import pytest

from tests.fuzz.mutations import cut, mutated
from tests.fuzz.watching import watched
from tests.support.client import HELLO, STREAM, Client, chunked, get, post
from tests.support.gateway import Running, Stage
from tests.support.worker import DONE, Seen, event, reply, stream

AT_ONCE = 60
CODED = [("Transfer-Encoding", "chunked")]
SEEDS = [
    post(), post(STREAM), post(path="/v1/messages"), post(path="/v1/chat/completions?a=b"), post(version="1.0"),
    post(chunked(HELLO), headers=CODED), post(chunked(HELLO[:9], HELLO[9:]), headers=CODED), post() + post(STREAM),
    post(b"2;a=b\r\n{}\r\n0\r\nX-Late: 1\r\n\r\n", headers=CODED), get("/v1/models"), get("/healthz"), get("/nowhere"),
    post(headers=[("Expect", "100-continue")]), post(headers=[("Connection", "close")]) + post(),
    post(headers=[("Connection", "Upgrade"), ("Upgrade", "h2c")]), post(path="http://localhost/v1/chat/completions"),
    post(b"x" * 3000), post(b"", length=1000), get("/v1/chat/completions", "Origin: https://a.example"),
    post(headers=[("Transfer-Encoding", "chunked"), ("Content-Length", "5")]), post(headers=[("X-A", "a" * 5000)]),
]  # fmt: skip
STATUS = re.compile(rb"HTTP/1\.1 [1-5][0-9][0-9] ")


async def say(running: Running, dice: Random, data: bytes) -> None:
    """On a connection of its own, which ends in one of three ways."""
    client = await Client.connect(running.port)
    try:
        for piece in cut(dice, data):
            await client.send(piece)
            await asyncio.sleep(0)
        await asyncio.sleep(dice.choice((0, 0.005, 0.05)))
        ending = dice.randrange(3)
        if ending == 0:
            client.drop()
            return
        if ending == 1:
            client.half_close()
        heard = await client.closed()
        assert not heard or STATUS.match(heard), f"{data!r} was answered with {heard[:200]!r}"
    except (ConnectionError, RuntimeError, OSError):
        return  # it was hung up on while it spoke
    finally:
        await client.close()


async def test_any_bytes_of_a_client_are_answered_or_refused(
    stage: Stage, inputs: int, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(seen: Seen) -> object:
        return stream(event("1"), DONE) if b"stream" in seen.body else reply()

    watch = await watched(stage, await stage.worker(answer=answer), caplog)
    watch.running.server.config.timeout_keep_alive = 1
    for start in range(0, inputs, AT_ONCE):
        dices = [Random(f"{seed} {at}") for at in range(start, start + AT_ONCE)]
        await asyncio.gather(*[say(watch.running, dice, mutated(dice, SEEDS)) for dice in dices])
        await watch.look(f"FUZZ_SEED={seed}, inputs {start} to {start + AT_ONCE}")
