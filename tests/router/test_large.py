"""Large bodies are read one at a time, with the loop's other work in between."""

import asyncio

import pytest

from router.large import LARGE, OneByOne, parts_of
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


@pytest.mark.parametrize(
    ("text", "parts"), [(b"{}", 1), (b'{"a": [1, 2, 3]}', 2), (b"[" + b"1," * 100 + b"1]", 11), (b"[[],[],[]]", 4)]
)
def test_the_parts_of_a_body_are_what_reading_it_costs(text: bytes, parts: int) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize("part", [b"{},", b"[],", b"[1],", b'{"role":"user"},'])
async def test_a_body_of_a_million_parts_is_refused_before_it_is_read(part: bytes) -> None:
    desk = Desk()
    _, sink = desk.ask(b'{"model": "m", "messages": [' + part * 1_000_000 + b"{}]}")
    for _ in range(3):
        await asyncio.sleep(0)
    assert sink.status == 413
    assert b"limits.body_parts" in sink.data
    assert desk.at_rest()


async def test_long_token_lists_and_long_texts_pass() -> None:
    desk = Desk()
    desk.ask(b'{"model": "m", "prompt": [' + b"12345, " * 200_000 + b"1]}")
    desk.ask(b'{"model": "m", "prompt": "' + b"for (i = 0, j = 1; a[i] < b[j]; i++) { x, y } " * 20_000 + b'"}')
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(desk.sent) == 2
