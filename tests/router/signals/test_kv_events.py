"""KV events from publishers and from real mock workers: what engines say of their caches reaches the decisions."""

import asyncio
import json
import logging
import re
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest
import zmq
import zmq.asyncio

from router.contracts import Ask
from router.core.blocks import Blocks
from router.core.fingerprint import fingerprint
from router.core.fleet import Fleet, Seat
from router.core.health import Thresholds
from router.core.mind import Caller, Mind
from router.core.rungs import Rungs
from router.dialects.openai import OpenAI
from router.prompt import Prompt
from router.proxy.worker_tls import WorkerContexts
from router.signals import kv_events as module
from router.signals.kv_events import KvEvents
from router.signals.kv_follower import MOST_BYTES, Follower
from router.signals.tokenize import Tokenizer
from router.types import Key, KvSource, News, Worker, worker_from_url
from tests.support.gateway import eventually
from tests.support.processes import Program, mock_workers

TLS = WorkerContexts(ssl.create_default_context())
STORED = ["BlockStored", [1, 2], None, [1, 2, 3, 4], 2, None, "GPU"]
NEXT = ["BlockStored", [3], 2, [5, 6], 2, None, "GPU"]


def message(number: int, *events: Any, topic: bytes = b"") -> list[bytes]:
    return [topic, number.to_bytes(8, "big"), msgspec.msgpack.encode([1.0, events, 0])]


class Engine:
    """A publisher, as an engine has it."""

    def __init__(self, context: "Context", topic: bytes = b"") -> None:
        self.socket = context.socket(zmq.PUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.topic = topic
        self.number = 0

    def bind(self) -> str:
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        return f"tcp://127.0.0.1:{port}"

    def connect(self, endpoint: str) -> "Engine":
        self.socket.connect(endpoint)
        return self

    async def say(self, *events: Any) -> None:
        await self.socket.send_multipart(message(self.number, *events, topic=self.topic))
        self.number += 1

    async def heard_by(self, follower: Follower) -> None:
        """Say something until it is heard: a publisher drops what nobody listens to."""
        before = follower.counts["cleared"]
        while follower.counts["cleared"] == before:
            await self.say(["AllBlocksCleared"])
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


class Context:
    """Makes sockets, and closes those that are open at its end."""

    def __init__(self) -> None:
        self.zmq = zmq.asyncio.Context()
        self.made: list[Any] = []

    def socket(self, kind: int) -> Any:
        self.made.append(self.zmq.socket(kind))
        return self.made[-1]

    def close(self) -> None:
        for each in self.made:
            each.close(linger=0)
        self.zmq.term()


@pytest.fixture
async def context() -> AsyncIterator[Context]:
    context = Context()
    yield context
    context.close()


@pytest.fixture
async def events(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KvEvents]:
    monkeypatch.setattr("router.signals.tokenize.REST", 0.001)
    rungs = Rungs(Blocks())
    events = KvEvents(rungs, Tokenizer(rungs, TLS))
    yield events
    await events.close()


def worker(name: str, endpoint: str, *, bind: bool = False, topic: str = "") -> Worker:
    return worker_from_url(f"http://{name}:1", id=name, kv_events=KvSource(endpoint, bind, topic))


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_a_worker_that_binds_is_connected_to(events: KvEvents, context: Context) -> None:
    engine = Engine(context)
    events.follow(worker("w", engine.bind()))
    await engine.heard_by(events.followers["w"])
    await engine.say(STORED)
    await eventually(lambda: len(events.rungs.blocks) == 2)
    assert events.rungs.blocks.view("w").complete


async def test_a_worker_that_connects_finds_us_listening(events: KvEvents, context: Context, port: int) -> None:
    events.follow(worker("w", f"tcp://127.0.0.1:{port}", bind=True))
    engine = Engine(context).connect(f"tcp://127.0.0.1:{port}")
    await engine.heard_by(events.followers["w"])
    await engine.say(STORED)
    await eventually(lambda: len(events.rungs.blocks) == 2)


async def test_an_engine_over_a_local_socket(events: KvEvents, context: Context) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        endpoint = f"ipc://{folder}/kv"
        engine = Engine(context)
        engine.socket.bind(endpoint)
        events.follow(worker("w", endpoint))
        await engine.heard_by(events.followers["w"])


async def test_many_workers_may_share_an_endpoint_by_their_topics(
    events: KvEvents, context: Context, port: int
) -> None:
    endpoint = f"tcp://127.0.0.1:{port}"
    engines = {}
    for name, topic in (("a", "kv@a"), ("ab", "kv@ab")):
        events.follow(worker(name, endpoint, bind=True, topic=topic))
        engines[name] = Engine(context, topic.encode()).connect(endpoint)
    stranger = Engine(context, b"else").connect(endpoint)
    for name, engine in engines.items():
        await engine.heard_by(events.followers[name])
    await engines["a"].say(STORED)
    await engines["ab"].say(STORED, NEXT)
    await stranger.say(["AllBlocksCleared"])
    await eventually(lambda: events.followers["ab"].counts["stored"] == 3)
    blocks = events.rungs.blocks
    assert (len(blocks.views["a"].names), len(blocks.views["ab"].names)) == (2, 3)
    assert len(events._subscriptions) == 1
    events.leave("a")
    assert set(blocks.views) == {"ab"}
    await engines["ab"].say(["BlockRemoved", [3]])
    await eventually(lambda: len(blocks) == 2)


async def test_a_restarted_engine_is_heard_again(events: KvEvents, context: Context) -> None:
    engine = Engine(context)
    endpoint = engine.bind()
    events.follow(worker("w", endpoint))
    follower = events.followers["w"]
    await engine.heard_by(follower)
    await engine.say(STORED)
    await eventually(lambda: len(events.rungs.blocks) == 2)
    engine.socket.close()
    again = Engine(context)
    await bound(again, endpoint)
    await again.heard_by(follower)
    assert len(events.rungs.blocks) == 0
    await again.say(STORED)
    await eventually(lambda: len(events.rungs.blocks) == 2)


async def bound(engine: Engine, endpoint: str) -> None:
    """A socket that was closed lets go of its port in its own time."""
    for _ in range(500):
        try:
            engine.socket.bind(endpoint)
        except zmq.ZMQError:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError("the port was not free again")


async def test_garbage_on_the_wire_does_not_end_the_listening(events: KvEvents, context: Context) -> None:
    engine = Engine(context)
    events.follow(worker("w", engine.bind()))
    follower = events.followers["w"]
    await engine.heard_by(follower)
    for frames in ([b"x"], [b"", b"", b"", b""], [b"", bytes(8), b"\xc1"]):
        await engine.socket.send_multipart(frames)
    await eventually(lambda: follower.counts["malformed"] == 3)
    await engine.heard_by(follower)


async def test_a_message_that_is_too_large_is_not_read(events: KvEvents, context: Context) -> None:
    engine = Engine(context)
    events.follow(worker("w", engine.bind()))
    follower = events.followers["w"]
    await engine.heard_by(follower)
    await engine.socket.send_multipart([b"", bytes(8), bytes(MOST_BYTES + 1)])
    await eventually(lambda: follower.counts["malformed"] == 1)
    await engine.heard_by(follower)


async def test_a_port_that_serves_something_else_is_tried_again(
    events: KvEvents, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.3)
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    events.follow(worker("w", endpoint))
    await asyncio.sleep(0.2)
    server.close()
    await server.wait_closed()
    engine = Engine(context)
    await bound(engine, endpoint)
    async with asyncio.timeout(10):
        await engine.heard_by(events.followers["w"])


async def test_a_fault_of_ours_in_one_message_does_not_end_the_listening(
    events: KvEvents, context: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(context)
    events.follow(worker("w", engine.bind()))
    follower = events.followers["w"]
    await engine.heard_by(follower)
    with monkeypatch.context() as patched:
        patched.setattr("router.signals.kv_follower.read", lambda _: 1 / 0)
        await engine.say(STORED)
        await eventually(lambda: follower.counts["malformed"] == 1)
    await engine.heard_by(follower)
    assert "could not be read" in caplog.text


async def test_an_endpoint_that_cannot_be_used_is_told_once_and_tried_again(
    events: KvEvents, context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    taken = Engine(context)
    endpoint = taken.bind()
    with caplog.at_level(logging.ERROR, "router"):
        events.follow(worker("w", endpoint, bind=True))
        await eventually(lambda: caplog.records)
        await asyncio.sleep(0.5)
        assert events.followers
        assert len(caplog.records) == 1
        assert endpoint in caplog.text
    taken.socket.close()
    (subscription,) = events._subscriptions.values()
    await eventually(lambda: subscription._socket)
    engine = Engine(context).connect(endpoint)
    async with asyncio.timeout(10):
        await engine.heard_by(events.followers["w"])


async def test_two_workers_at_the_same_place_are_a_mistake_that_is_told(
    events: KvEvents, caplog: pytest.LogCaptureFixture
) -> None:
    events.follow(worker("a", "tcp://127.0.0.1:1"))
    events.follow(worker("b", "tcp://127.0.0.1:1"))
    assert "publish at the same place" in caplog.text
    events.leave("a")
    assert events._subscriptions
    events.leave("b")
    assert not events._subscriptions


async def test_of_two_at_the_same_place_the_first_is_heard_when_the_second_has_left(
    events: KvEvents, context: Context
) -> None:
    engine = Engine(context)
    endpoint = engine.bind()
    events.follow(worker("a", endpoint))
    events.follow(worker("b", endpoint))
    await engine.heard_by(events.followers["b"])
    events.leave("b")
    await engine.heard_by(events.followers["a"])
    events.leave("a")
    assert not events._subscriptions


async def test_following_again_changes_nothing_unless_the_place_changed(events: KvEvents) -> None:
    events.follow(worker("w", "tcp://127.0.0.1:1"))
    follower = events.followers["w"]
    events.follow(worker("w", "tcp://127.0.0.1:1"))
    assert events.followers["w"] is follower
    events.follow(worker("w", "tcp://127.0.0.1:2"))
    assert events.followers["w"] is not follower
    events.follow(worker_from_url("http://w:1", id="w"))
    assert not events.followers
    assert not events._subscriptions
    events.leave("w")


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq.asyncio", None)
    with pytest.raises(ImportError, match=re.escape("prefix-router[events]")):
        KvEvents(Rungs(Blocks()), None)  # type: ignore[arg-type]


async def test_closing_leaves_no_task_and_no_socket(context: Context, port: int) -> None:
    before = asyncio.all_tasks()
    rungs = Rungs(Blocks())
    events = KvEvents(rungs, Tokenizer(rungs, TLS))
    events.follow(worker("w", f"tcp://127.0.0.1:{port}", bind=True))
    events.follow(worker("x", "tcp://127.0.0.1:1"))
    await asyncio.sleep(0.05)
    await events.close()
    assert asyncio.all_tasks() == before
    await bound(Engine(context), f"tcp://127.0.0.1:{port}")


async def test_the_mind_is_corrected(events: KvEvents, context: Context) -> None:
    """What the table of who was sent what says, and what the engine says of it."""
    fleet = Fleet()
    fleet.reconcile([worker("w", Engine(context).bind())])
    mind = Mind(fleet, None)  # type: ignore[arg-type]
    mind.truth = events
    text = b"a common beginning, " * 100
    prompt = Prompt(text, "m")
    events.follow(fleet.seats["w"].worker)
    follower = events.followers["w"]
    tokens = [int.from_bytes(text[at : at + 4], "big") for at in range(0, len(text), 4)]
    names = list(range(1, len(tokens) // 4 + 1))
    follower.take(message(0, ["BlockStored", names, None, tokens, 4, None, "GPU"]))
    ask = mind.weigh(prompt, Caller())
    assert ask.held == {}
    events.rungs.learn(ask.prefix, tokens, "w", "m")
    assert mind.weigh(prompt, Caller()).held == {"w": ask.prefix.depths[-1]}
    mind.hear(News("w", 500.0, 500.0, ask.hashes))
    follower.take(message(1, ["AllBlocksCleared"]))
    assert mind.weigh(prompt, Caller()).held == {}
    events.heard(News("w", 500.0, 500.0, ask.hashes))
    assert mind.weigh(prompt, Caller()).held == {"w": ask.prefix.depths[-1]}


# With real mock workers.


class Real:
    """A mock worker in a process of its own, followed; requests go there as the gateway would send them."""

    def __init__(self, program: Program, events: KvEvents, source: KvSource) -> None:
        self.events = events
        self.seat = Seat(worker_from_url(program.url, id="w", kv_events=source), Thresholds())
        self.http = httpx.AsyncClient(base_url=program.url, trust_env=False, timeout=20)
        events.follow(self.seat.worker)

    async def send(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> Any:
        """Decide, commit and answer, without a gateway around it; the prompt's fingerprint."""
        raw = json.dumps(body).encode()
        prefix = fingerprint(OpenAI().read(path, raw).text, 7)
        self.events.sent(Ask(prefix, Key(0, 0, 0), {}, 7, body=raw), self.seat, 0.0)
        (await self.http.post(path, content=raw)).raise_for_status()
        return prefix

    def held(self, prefix: Any, believed: int | None = None) -> int:
        held = {} if believed is None else {"w": believed}
        self.events.overrule(prefix, held)
        return held.get("w", 0)


Started = Callable[..., Real]


@pytest.fixture
async def real(events: KvEvents, port: int) -> AsyncIterator[Started]:
    made: list[tuple[Any, Real]] = []

    def start(*flags: str) -> Real:
        endpoint = f"tcp://127.0.0.1:{port}"
        running = mock_workers(1, "--time-scale", "0", "--kv-events", endpoint, "--kv-events-topic", "kv", *flags)
        (program,) = running.__enter__()
        made.append((running, Real(program, events, KvSource(endpoint, bind=True, topic="kv"))))
        return made[-1][1]

    yield start
    for running, one in made:
        await one.http.aclose()
        running.__exit__(None, None, None)


def chat(*turns: str) -> dict[str, Any]:
    roles = ("system", "user", "assistant")
    return {"messages": [{"role": roles[min(at, 1)], "content": turn} for at, turn in enumerate(turns)],
            "max_tokens": 4}  # fmt: skip


async def warmed(one: Real) -> None:
    """Send until events come: the publisher's connection takes a moment."""
    for at in range(500):
        await one.send({"prompt": f"warming up {at} " * 30, "max_tokens": 1}, "/v1/completions")
        if one.events.rungs.blocks.sizes:
            return
        await asyncio.sleep(0.02)


SYSTEM = "You are a helpful assistant who knows the whole handbook. " * 40


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_a_real_workers_cache_is_known_by_its_events(real: Started, kind: str) -> None:
    """Its tokens come from its `/tokenize`, its blocks over ZMQ; the first request, and those that begin alike."""
    one = real()
    await warmed(one)
    path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"

    def body(question: str) -> dict[str, Any]:
        if kind == "chat":
            return chat(SYSTEM, question)
        return {"prompt": SYSTEM + question, "max_tokens": 4}

    prefix = await one.send(body("What is the first rule?"), path)
    await eventually(lambda: one.events.tokenizer.learnt and one.held(prefix) == prefix.depths[-1])
    other = fingerprint(OpenAI().read(path, json.dumps(body("And the second one?")).encode()).text, 7)
    shared = max(
        depth for depth, one, two in zip(prefix.depths, prefix.hashes, other.hashes, strict=False) if one == two
    )
    assert one.held(other) == shared > 2000


async def test_eviction_at_the_worker_is_known_here(real: Started) -> None:
    one = real("--cache-blocks", "256")
    await warmed(one)
    prefix = await one.send(chat(SYSTEM, "hello"))
    await eventually(lambda: one.held(prefix) == prefix.depths[-1])
    for at in range(8):
        await one.send(chat(f"{at} something else altogether. " * 80, "hello"))
    await eventually(lambda: one.held(prefix, prefix.depths[-1]) == 64), "what is too short for a block is left alone"
    assert one.events.followers["w"].counts["removed"] > 50
    await one.send(chat(SYSTEM, "hello"))
    await eventually(lambda: one.held(prefix) == prefix.depths[-1])


async def test_a_restarted_worker_is_empty(real: Started, events: KvEvents) -> None:
    one = real()
    await warmed(one)
    prefix = await one.send(chat(SYSTEM, "hello"))
    await eventually(lambda: one.held(prefix) == prefix.depths[-1])
    two = real()
    two.events = events
    await eventually_sent(two, lambda: one.held(prefix) == 0)


async def eventually_sent(one: Real, holds: Callable[[], bool]) -> None:
    for at in range(500):
        await one.send({"prompt": f"after the restart {at} " * 30, "max_tokens": 1}, "/v1/completions")
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")
