"""Tenants behind one gateway: none can tell, by an engine's cache, what another asked."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.client import CHAT, get, post
from tests.support.gateway import Running, Stage, ask
from tests.support.processes import mock_workers
from tests.support.worker import reply

KEYS: dict[str, Any] = {"auth": {"api_keys": [{"tenant": "red", "key": "r3d-key"}, {"tenant": "red", "key": "r3d-too"},
                                              {"tenant": "blue", "key": "blu3-key"}]}}  # fmt: skip
RED, RED_TOO, BLUE = ([("Authorization", f"Bearer {key}")] for key in ("r3d-key", "r3d-too", "blu3-key"))
ODD = (
    b'{ "model":"m" ,\n"n":1.0, "big":123456789012345678901234567890, "x":1, "x":2, "messages":[{"role":"user",'
    b'"content":"say \\"cache_salt\\": \\u00e9\\/","cache_salt":"deep"}], "seed":-0.0e-7 }\r\n'
)


async def sent(running: Running, stage: Stage, body: bytes, headers: Any = RED, path: str = CHAT) -> bytes:
    """What the worker is given of this body."""
    answer = await ask(running.port, post(body, path, headers))
    assert answer.status == 200, answer.body
    seen = stage.workers[0].requests[-1]
    assert seen.one("content-length") == b"%d" % len(seen.body)
    return seen.body


def salt_in(body: bytes) -> str:
    value = json.loads(body)["cache_salt"]
    assert isinstance(value, str)
    assert len(value) == 32
    return value


@pytest.fixture
async def running(stage: Stage) -> Running:
    stage.headers = RED
    return await stage.gateway(await stage.worker(), **KEYS)


async def test_the_salt_is_the_only_change_to_a_body(stage: Stage, running: Running) -> None:
    salt = salt_in(await sent(running, stage, b'{"model": "m"}'))
    put_in = b'{"cache_salt":"%s",' % salt.encode()
    assert await sent(running, stage, ODD) == put_in + ODD[1:]
    with_own = ODD.replace(b'"n":1.0', b'"cache_salt" :  "mine", "n":1.0')
    replaced = await sent(running, stage, with_own)
    assert replaced == with_own.replace(b'"mine"', b'"%s"' % salt_in(replaced).encode())


async def test_a_tenants_keys_share_a_salt_and_tenants_do_not(stage: Stage, running: Running) -> None:
    body = b'{"model": "m", "prompt": "x"}'
    red, again, blue = [salt_in(await sent(running, stage, body, headers)) for headers in (RED, RED_TOO, BLUE)]
    assert red == again != blue


async def test_a_clients_own_salts_part_within_its_tenant_only(stage: Stage, running: Running) -> None:
    def own(value: str) -> bytes:
        return json.dumps({"model": "m", "cache_salt": value}).encode()

    without = salt_in(await sent(running, stage, b'{"model": "m"}'))
    red = {name: salt_in(await sent(running, stage, own(name))) for name in ("a", "b", "", without)}
    blue = {name: salt_in(await sent(running, stage, own(name), BLUE)) for name in ("a", "b", "", without, red["a"])}
    everything = [without, *red.values(), *blue.values()]
    assert len(set(everything)) == len(everything), "nobody gets at a salt that is not its own"


@pytest.mark.parametrize("body", [
    b'{"model":"m","cache_salt":"a","cache_salt":"b"}', b'{"model":"m","\\u0063ache_salt":"a"}',
    b'{"cache_salt":"a","model":"m","cache\\u005fsalt":"b"}', b'\xef\xbb\xbf{"cache_salt":"a","model":"m","t":NaN}',
    b'{"model":"m","cache_salt":7}', b'{"model":"m","cache_salt":{"cache_salt":"a"}}', b'{"model":"m","x":"\xff"}',
], ids=range(7))  # fmt: skip
async def test_no_spelling_smuggles_a_salt_through(stage: Stage, running: Running, body: bytes) -> None:
    given = await sent(running, stage, body)
    text = given.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    salts = [value for name, value in json.loads(text, object_pairs_hook=list) if name == "cache_salt"]
    assert salts
    assert len({json.dumps(salt) for salt in salts}) == 1
    assert len(salts[0]) == 32


@pytest.mark.parametrize("body", [
    b"{'model':'m','cache_salt':'a'}", b'{/*"cache_salt"*/"model":"m"}', b'{"model":"m","cache_salt":"a",}',
    '{"model":"m","cache_salt":"a"}'.encode("utf-16"), b'{"model":"m"} {"cache_salt":"a"}', b'{"m":"\\x63"}',
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"cache_salt":"a"}',
], ids=range(7))  # fmt: skip
async def test_what_cannot_be_read_exactly_is_refused(stage: Stage, running: Running, body: bytes) -> None:
    answer = await ask(running.port, post(body, headers=RED))
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert stage.workers[0].requests == []


async def test_what_touches_no_cache_is_left_alone(stage: Stage, running: Running) -> None:
    for path in ("/tokenize", "/detokenize"):
        body = b'{"model": "m", "prompt": "x"}'
        assert await sent(running, stage, body, path=path) == body
    for body in (b"[1]", b'"text"'):
        assert await sent(running, stage, body) == body


@pytest.mark.parametrize("settings", [{}, {"auth": {**KEYS["auth"], "tenant_salt": False}}], ids=["open", "turned off"])
async def test_without_tenants_or_where_turned_off_bodies_pass_whole(stage: Stage, settings: dict[str, Any]) -> None:
    running = await stage.gateway(await stage.worker(), **settings)
    stage.headers = RED
    body = b'{"model": "m", "cache_salt": "mine"}'
    assert await sent(running, stage, body) == body


async def test_a_body_at_the_limit_may_grow_by_its_salt(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), limits={"body_bytes": 100}, **KEYS)
    stage.headers = RED
    body = b'{"model": "m", "prompt": "x"}'.ljust(100)
    assert (await sent(running, stage, body)).endswith(body[1:])


async def test_a_retry_carries_the_same_salt(stage: Stage) -> None:
    """The salt stands in the body once, however often the request is sent."""
    workers = [await stage.worker(answer=reply(b"{}", 503)) for _ in range(2)]
    running = await stage.gateway(*workers, **KEYS)
    stage.headers = RED
    assert (await ask(running.port, post(ODD, headers=RED))).status == 503
    bodies = [request.body for worker in workers for request in worker.requests]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1] == b'{"cache_salt":"%s",' % salt_in(bodies[0]).encode() + ODD[1:]


async def test_tenants_do_not_meet_in_a_real_workers_cache(fast: bool, tmp_path: Path) -> None:
    """A mock worker with a real block cache: what one tenant computed is not there for another."""
    prompt = {"model": "mock-model", "messages": [{"role": "user", "content": "the same long beginning " * 200}],
              "max_tokens": 1}  # fmt: skip

    def cached(http: httpx.Client, key: str, **fields: Any) -> int:
        answer = http.post(CHAT, json={**prompt, **fields}, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    with mock_workers(1, "--time-scale", "0.01") as [worker]:
        stage = Stage(fast=fast)
        try:
            running = await stage.gateway(worker.url, **KEYS)

            def story() -> list[int]:
                with httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as http:
                    return [
                        cached(http, "r3d-key"), cached(http, "r3d-too"), cached(http, "blu3-key"),
                        cached(http, "blu3-key"), cached(http, "r3d-key", cache_salt="own"),
                        cached(http, "r3d-key", cache_salt="own"), cached(http, "blu3-key", cache_salt="own"),
                    ]  # fmt: skip

            first, same, other, again, own, own_again, others_own = await asyncio.to_thread(story)
        finally:
            await stage.close()
    assert (first, other, own, others_own) == (0, 0, 0, 0)
    assert same > 500
    assert again == same
    assert own_again == same


async def test_who_has_no_key_learns_nothing_of_tenants(stage: Stage, running: Running) -> None:
    answer = await ask(running.port, post(b'{"model": "m"}'))
    assert answer.status == 401
    assert b"red" not in answer.body
    assert b"blue" not in (await ask(running.port, get("/metrics"))).body
