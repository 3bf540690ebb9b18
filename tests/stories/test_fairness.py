"""Who goes first when all wait: the more important, and within one importance each tenant by its share."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.client import Response, post
from tests.support.gates import Gates
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Worker

KEYS = [
    {"tenant": "many", "key": "many"},
    {"tenant": "few", "key": "few"},
    {"tenant": "big", "key": "big", "weight": 3},
    {"tenant": "boss", "key": "boss", "priority": True},
]
FULL = {"max": 100, "wait_seconds": 60}


def named(name: str, *, key: str = "", words: int = 1, priority: str | None = None) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * words}], "user": name, "priority": 1}
    headers = [("x-api-key", key)] if key else []
    headers += [("x-priority", priority)] if priority is not None else []
    return post(json.dumps(body).encode(), headers=headers)


class Scene:
    """A worker that takes one at a time and is at one; the story's requests wait in the order they are asked."""

    def __init__(self, stage: Stage, running: Running, worker: Worker, gates: Gates) -> None:
        self.stage, self.running, self.worker, self.gates = stage, running, worker, gates

    async def ask(self, *requests: bytes) -> None:
        for request in requests:
            before = len(self.running.house.room)
            self.gates.asking.append(asyncio.ensure_future(ask(self.running.port, request)))
            await eventually(lambda before=before: len(self.running.house.room) == before + 1)

    async def order(self) -> list[str]:
        """The order in which the worker was given them."""
        await self.gates.all(200)
        return [seen.json()["user"] for seen in self.gates.seen][1:]


async def scene(stage: Stage, *, keys: bool = True, **settings: Any) -> Scene:
    gates = Gates()
    worker = await stage.worker(answer=gates)
    auth = {"api_keys": KEYS if keys else []}
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1}, **{"auth": auth, "queue": FULL, **settings})
    stage.headers = [("x-api-key", "few")] if keys else []
    gates.asking.append(asyncio.ensure_future(ask(running.port, named("first", key="few" if keys else ""))))
    await eventually(lambda: worker.running == 1)
    return Scene(stage, running, worker, gates)


async def test_a_tenant_that_floods_does_not_hold_up_another(stage: Stage) -> None:
    set_up = await scene(stage)
    await set_up.ask(*[named(f"many {at}", key="many", words=600) for at in range(10)])
    await set_up.ask(*[named(f"few {at}", key="few", words=600) for at in range(3)])
    order = await set_up.order()
    assert [name for name in order if "few" in name] == ["few 0", "few 1", "few 2"]
    assert [name for name in order if "many" in name] == [f"many {at}" for at in range(10)]
    assert order.index("few 2") <= 7


async def test_shares_are_of_tokens_and_by_weight(stage: Stage) -> None:
    """Four of big's requests are as long as one of few's: with three times the weight it has twelve to each."""
    set_up = await scene(stage)
    await set_up.ask(*[named(f"few {at}", key="few", words=800) for at in range(3)])
    await set_up.ask(*[named(f"big {at}", key="big", words=200) for at in range(24)])
    order = await set_up.order()
    second = [at for at, name in enumerate(order) if "few" in name][1]
    before = sum("big" in name for name in order[:second])
    assert 6 <= before <= 20


async def test_a_flood_that_fills_the_queue_makes_room_for_another_tenant(stage: Stage) -> None:
    set_up = await scene(stage, queue={"max": 6, "wait_seconds": 60})
    await set_up.ask(*[named(f"many {at}", key="many") for at in range(6)])
    many, few = set_up.gates.asking[1:], []
    for at in range(3):
        few.append(asyncio.ensure_future(ask(set_up.running.port, named(f"few {at}", key="few"))))
        pushed: Response = await many[5 - at]
        assert (pushed.status, pushed.code) == (429, "overloaded")
    assert (await ask(set_up.running.port, named("few 3", key="few"))).status == 429
    set_up.gates.asking = [*many[:3], *few]
    assert set(await set_up.order()) == {*(f"many {at}" for at in range(3)), *(f"few {at}" for at in range(3))}


async def test_only_a_key_that_may_is_heard_with_its_priority(stage: Stage) -> None:
    set_up = await scene(stage)
    await set_up.ask(
        named("few", key="few", priority="-5"),
        named("many", key="many", priority="rubbish"),
        named("boss late", key="boss", priority="7"),
        named("boss", key="boss", priority="-1"),
    )
    assert await set_up.order() == ["boss", "few", "many", "boss late"]
    assert await asyncio.gather(*[_status(set_up, name) for name in ("boss", "few")]) == [400, 200]


async def _status(set_up: Scene, key: str) -> int:
    answer = await ask(set_up.running.port, named("bad", key=key, priority="soon"))
    if answer.status == 400:
        assert answer.json()["error"]["param"] == "x-priority"
        assert "whole number" in answer.json()["error"]["message"]
    return answer.status


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
async def test_the_body_s_own_field_counts_as_vllm_has_it_and_goes_on_untouched(stage: Stage, path: str) -> None:
    set_up = await scene(stage, keys=False, queue={**FULL, "open_priorities": True})
    bodies = [
        b'{"model": "m", "user": "%d",  "priority" : %s, "prompt": "x", "messages": []}' % (at, priority)
        for at, priority in enumerate((b"3", b"-2", b'"-9"', b"true", b"-99999999999999999999999", b"null"))
    ]
    await set_up.ask(*[post(body, path) for body in bodies])
    order = [4, 1, 2, 3, 5, 0]  # what is no whole number counts for nothing, and one beyond all bounds as the bound
    assert await set_up.order() == [str(at) for at in order]
    assert set_up.worker.bodies[1:] == [bodies[at] for at in order]


async def test_the_header_goes_before_the_body_and_both_are_bounded(stage: Stage) -> None:
    set_up = await scene(stage, keys=False, queue={**FULL, "open_priorities": True})
    await set_up.ask(
        named("a", priority="2"),
        named("b", priority="0"),
        named("c", priority="-999999"),
        named("d", priority="-10"),
        named("e"),
    )
    assert sorted(set_up.running.house.room._turns) == [-10, 0, 1, 2]
    assert await set_up.order() == ["c", "d", "b", "e", "a"]


async def test_without_leave_nobody_is_heard(stage: Stage) -> None:
    set_up = await scene(stage, keys=False)
    await set_up.ask(named("a", priority="5"), named("b", priority="-5"), named("c", priority="x"))
    assert await set_up.order() == ["a", "b", "c"]
