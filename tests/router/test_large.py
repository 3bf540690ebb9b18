"""Large bodies are read one at a time, with the loop's other work in between."""

import asyncio

import pytest

from router.large import LARGE, OneByOne
from tests.router.conftest import Connect
from tests.support.gateway import Stage
from tests.support.stories import Desk


async def test_one_step_is_taken_in_each_turn_of_the_loop_in_order() -> None:
    told: list[str] = []
    steps = OneByOne()
    for name in "abc":
        steps.add(lambda name=name: told.append(name))  # type: ignore[misc]
    assert told == []
    for _ in range(5):
        asyncio.get_running_loop().call_soon(told.append, "-")
        await asyncio.sleep(0)
    assert "".join(told).replace("-", "") == "abc"
    assert "ab" not in "".join(told), "other work comes in between"
    assert len(steps) == 0


async def test_a_step_that_adds_another_does_not_lose_it() -> None:
    told: list[int] = []
    steps = OneByOne()
    steps.add(lambda: (told.append(1), steps.add(lambda: told.append(2)))[0])
    for _ in range(4):
        await asyncio.sleep(0)
    assert told == [1, 2]


def body(size: int) -> bytes:
    return b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * size + b'"}]}'


async def test_a_large_body_is_read_in_the_next_turn_and_a_small_one_at_once() -> None:
    desk = Desk()
    desk.ask(body(100))
    assert len(desk.sent) == 1
    desk.ask(body(LARGE))
    assert len(desk.sent) == 1
    await asyncio.sleep(0)
    assert len(desk.sent) == 2
    assert desk.sent[1].body == body(LARGE)


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_client_that_leaves_before_its_turn_is_sent_nowhere(turns: int) -> None:
    desk = Desk()
    journey, _ = desk.ask(body(LARGE))
    journey.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert desk.sent == []
    assert desk.at_rest()


async def test_many_large_bodies_at_once_are_all_answered(stage: Stage, connect: Connect) -> None:
    running = await stage.gateway(await stage.worker())
    http = connect(running)
    answers = await asyncio.gather(*(http.post("/v1/chat/completions", content=body(LARGE + at)) for at in range(12)))
    assert [answer.status_code for answer in answers] == [200] * 12
