"""Several gateways before the same workers: with a Redis between them, and with nothing but the workers' own word."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from tests.support.processes import Program, gateway, mock_workers, until

CHAT = "/v1/chat/completions"
QUICK = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "2000")
needs_redis = pytest.mark.system("redis-server")


def body(topic: str, question: str = "Hello", words: int = 300, **more: Any) -> dict[str, Any]:
    system = f"You are an expert on {topic}. " + f"{topic} is a wide field. " * (words // 5)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "mock-model", "messages": messages, "max_tokens": 2, **more}


class Front:
    """A gateway, asked over one client."""

    def __init__(self, program: Program) -> None:
        self.url = program.url
        self.http = httpx.Client(base_url=program.url, timeout=60, trust_env=False)

    def close(self) -> None:
        self.http.close()

    def send(self, given: dict[str, Any]) -> tuple[str, str]:
        """(worker, reason)"""
        answer = self.http.post(CHAT, json=given)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-router-worker"], answer.headers["x-router-reason"]

    def explain(self, given: dict[str, Any]) -> dict[str, Any]:
        answer = self.http.post("/admin/explain", json=given)
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()
        return said

    def waits(self) -> dict[str, float]:
        return {row["worker"]: row["wait_tokens"] for row in self.explain(body("waiting"))["candidates"]}

    def knows(self, given: dict[str, Any]) -> bool:
        return bool(self.explain(given)["reason"] != "cold")

    def shared(self, kind: str) -> float:
        name = f'prefix_router_shared_total{{kind="{kind}"}} '
        found = [line for line in self.http.get("/metrics").text.splitlines() if line.startswith(name)]
        return float(found[0].removeprefix(name)) if found else 0.0


@contextmanager
def two(workers: list[Program], **settings: Any) -> Iterator[tuple[Front, Front]]:
    urls = [worker.url for worker in workers]
    with gateway(urls, **settings) as one, gateway(urls[::-1], **settings) as other:
        with closing(Front(one)) as first, closing(Front(other)) as second:
            yield first, second


class Redis:
    """A Redis of the test's own, on a port that it keeps. It remembers nothing over a restart."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = int(sock.getsockname()[1])
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        until(self._listens)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def redis() -> Iterator[Redis]:
    with tempfile.TemporaryDirectory() as folder:
        redis = Redis(folder)
        redis.start()
        yield redis
        redis.kill()


def share_works(one: Front, other: Front, mark: str, seconds: float = 30.0) -> None:
    """Wait until what one sends is heard by the other. Each look is with a prompt of its own: lost news stay lost."""
    tries = iter(range(1000))

    def heard() -> bool:
        given = body(f"{mark} {next(tries)}")
        one.send(given)
        time.sleep(0.2)
        return other.knows(given)

    until(heard, seconds)


# With a Redis.


@needs_redis
def test_what_one_gateway_sent_where_the_other_knows(redis: Redis) -> None:
    topics = [body(f"topic number {at}") for at in range(20)]
    with mock_workers(3, *QUICK) as workers, two(workers, share=redis.url) as (one, other):
        share_works(one, other, "first")
        assert not any(other.knows(each) for each in topics)
        sent = [one.send(each)[0] for each in topics]
        until(lambda: all(other.knows(each) for each in topics))
        back = [other.send({**each, "max_tokens": 3}) for each in topics]
        assert [worker for worker, _ in back] == sent
        assert not {"cold", "retry"} & {reason for _, reason in back}
        assert len(set(sent)) == 3
        assert other.shared("received") >= 20
        assert one.shared("sent") >= 20
        assert one.shared("garbage") == other.shared("garbage") == 0


@needs_redis
def test_a_gateway_started_later_learns_what_the_others_know(redis: Redis) -> None:
    topics = [body(f"topic number {at}") for at in range(10)]
    with mock_workers(2, *QUICK) as workers:
        urls = [worker.url for worker in workers]
        with gateway(urls, share=redis.url) as program, closing(Front(program)) as one:
            sent = [one.send(each)[0] for each in topics]
            until(lambda: one.shared("sent") >= 10)
            with gateway(urls, share=redis.url) as later, closing(Front(later)) as other:
                until(lambda: all(other.knows(each) for each in topics))
                assert [other.send(each)[0] for each in topics] == sent


@needs_redis
def test_what_waits_through_one_gateway_is_a_wait_for_the_other(redis: Redis) -> None:
    slow = ("--prefill-tokens-per-second", "500", "--decode-tokens-per-second", "2000")
    only_sharing = {"share": redis.url, "signals.queue_seconds": 0}
    with mock_workers(2, *slow) as workers, two(workers, **only_sharing) as (one, other):
        share_works(one, other, "small", seconds=60)
        until(lambda: not any(other.waits().values()))
        with ThreadPoolExecutor(1) as pool:
            long = body("a very long story", words=2500, stream=True)
            asked = pool.submit(one.send, long)
            until(lambda: max(other.waits().values()) > 1000)
            waits = other.waits()
            chosen = other.explain(body("another matter", words=50))["chosen"]
            (busy,) = [worker for worker, wait in waits.items() if wait > 1000]
            assert min(waits.values()) == 0
            assert chosen != busy, "and it goes around it"
            assert asked.result()[0] == busy
        until(lambda: not any(other.waits().values()))


@needs_redis
def test_a_redis_that_dies_fails_no_request_and_is_used_again_once_it_is_back(redis: Redis) -> None:
    with mock_workers(3, *QUICK) as workers, two(workers, share=redis.url) as (one, other):
        share_works(one, other, "before")
        stop = threading.Event()
        served = [0, 0]

        def load(at: int, front: str) -> None:
            with httpx.Client(base_url=front, timeout=30, trust_env=False) as client:
                while not stop.is_set():
                    answer = client.post(CHAT, json=body(f"topic {at} {served[at] % 10}"))
                    assert answer.status_code == 200, answer.text
                    served[at] += 1
                    time.sleep(0.01)

        with ThreadPoolExecutor(2) as pool:
            loads = [pool.submit(load, at, front.url) for at, front in enumerate((one, other))]
            try:
                until(lambda: min(served) > 10)
                redis.kill()
                then = list(served)
                until(lambda: min(served) > max(then) + 20)
                for front in (one, other):
                    assert front.http.get("/readyz").status_code == 200
                redis.start()
                share_works(one, other, "after", seconds=60)
                share_works(other, one, "back", seconds=60)
            finally:
                stop.set()
            for each in loads:
                each.result()


@needs_redis
def test_a_redis_that_is_absent_at_the_start_is_used_once_it_is_there(redis: Redis) -> None:
    redis.kill()
    with mock_workers(2, *QUICK) as workers, two(workers, share=redis.url) as (one, other):
        given = body("alone")
        one.send(given)
        assert not other.knows(given)
        redis.start()
        share_works(one, other, "now", seconds=60)


# With nothing between them.


def test_a_queue_of_strangers_is_seen_and_avoided_by_every_gateway_that_shares_nothing() -> None:
    """Nobody tells these gateways of each other: each looks at the workers' own queues."""
    flags = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "20", "--max-running", "2")
    with mock_workers(3, *flags) as workers:
        busy = workers[0]
        with two(workers, **{"routing.replicas": 2}) as fronts, strangers(busy.url, 14):
            name = busy.url.removeprefix("http://")
            for front in fronts:
                until(lambda front=front: front.waits()[name] > 0)  # type: ignore[misc]
                assert [wait for worker, wait in front.waits().items() if worker != name] == [0, 0]
            for at in range(12):
                for front in fronts:
                    worker, _ = front.send(body(f"matter {at} of {front.url}", words=30, max_tokens=1))
                    assert worker != name


def test_two_gateways_that_share_nothing_see_each_others_queue() -> None:
    flags = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "20", "--max-running", "1")
    with mock_workers(2, *flags) as workers, two(workers, **{"routing.replicas": 2}) as (one, other):
        given = body("one and the same", words=60, max_tokens=60)
        home = other.explain(given)["chosen"]
        with strangers(one.url, 8, {**given, "max_tokens": 60}):
            until(lambda: sum(other.waits().values()) > 0)
        until(lambda: sum(other.waits().values()) == 0)
        assert other.explain(given)["chosen"] == home


@contextmanager
def strangers(url: str, count: int, given: dict[str, Any] | None = None) -> Iterator[None]:
    """So many long streams, which end with the block."""
    stop = threading.Event()

    def stay(at: int) -> None:
        asked = given or body(f"a stranger's affair {at}", words=30, max_tokens=2000)
        try:
            with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
                with client.stream("POST", CHAT, json={**asked, "stream": True}) as answer:
                    for _ in answer.iter_raw():
                        if stop.is_set():
                            return
        except httpx.HTTPError:
            return

    threads = [threading.Thread(target=stay, args=(at,), daemon=True) for at in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=90)
