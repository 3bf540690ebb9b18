"""Three gateways on machines of their own before the same workers: they agree without a word to each other.

Gateways, workers, Redis and the client each have a network namespace. The client goes from one gateway to the next, as
any load balancer sends it.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.support.network import Inside, Network, Place, network, why_not
from tests.support.processes import until

CHAT = "/v1/chat/completions"
GATEWAYS, WORKERS = ("gateway-1", "gateway-2", "gateway-3"), ("worker-1", "worker-2", "worker-3", "worker-4")
PORT = 8000
QUICK = ("--prefill-tokens-per-second", "1000000", "--decode-tokens-per-second", "5000")
CALM = {
    "log.access": "none",
    "shutdown.grace_seconds": 0,
    "health.interval_seconds": 0.5,
    "routing.slow_start_seconds": 0,  # a worker that is back takes all of its keys at once, so that places are certain
    "routing.replicas": 3,
}
PROMPTS = 24
MOSTLY = 0.8

pytestmark = [pytest.mark.system("ip"), pytest.mark.timeout(300)]


@pytest.fixture(autouse=True, scope="module")
def _allowed() -> None:
    missing = why_not()
    if missing is not None:
        pytest.skip(f"needs {missing}")


def body(topic: int, question: str = "Hello") -> dict[str, Any]:
    system = f"You are expert number {topic}. " * 60
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "mock-model", "messages": messages, "max_tokens": 1}


def explained(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["chosen"])


class Site:
    """The gateways and workers of a network, and a client on a machine of its own."""

    def __init__(self, net: Network, settings: dict[str, Any]) -> None:
        self.net, self.settings = net, CALM | settings
        self.workers = {name: self.start_worker(name) for name in WORKERS}
        self.gateways = {name: self.start_gateway(name) for name in GATEWAYS}
        self.inside = Inside(net.places["client"])
        self.http = {name: httpx.Client(base_url=self.place(name).url(PORT), timeout=60, trust_env=False)
                     for name in GATEWAYS}  # fmt: skip

    def close(self) -> None:
        for client in self.http.values():
            client.close()
        self.inside.close()

    def place(self, name: str) -> Place:
        return self.net.places[name]

    def worker_id(self, name: str) -> str:
        return f"{self.place(name).address}:{PORT}"

    def start_worker(self, name: str) -> subprocess.Popen[str]:
        place = self.place(name)
        return place.start("backends", "mock", "--host", place.address, "--port", str(PORT), *QUICK)

    def start_gateway(self, name: str) -> subprocess.Popen[str]:
        """Each is told of the workers in another order."""
        place = self.place(name)
        at = GATEWAYS.index(name)
        named = [f"--worker={self.place(each).url(PORT)}" for each in (*WORKERS[at:], *WORKERS[:at])]
        settings = self.settings | {"admin_token": "t"}
        return place.start("router", "serve", "--host", place.address, "--port", str(PORT), *named, settings=settings)

    def ask(self, name: str, method: str, path: str, given: dict[str, Any] | None = None) -> httpx.Response:
        """Of one gateway, by the client."""
        return self.inside(self.http[name].request, method, path, json=given, headers={"authorization": "Bearer t"})

    def ready(self, name: str) -> int:
        try:
            return int(self.ask(name, "GET", "/readyz").json()["workers_ready"])
        except httpx.TransportError:
            return -1

    def wait_until_ready(self, count: int, names: tuple[str, ...] = GATEWAYS) -> None:
        until(lambda: all(self.ready(name) == count for name in names), 60)

    def sent(self, name: str, given: dict[str, Any]) -> str:
        """The worker that a gateway sent this request to."""
        answer = self.ask(name, "POST", CHAT, given)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-router-worker"]

    def places_of(self, topics: range, names: tuple[str, ...] = GATEWAYS) -> list[set[str]]:
        """Where each topic's requests go, one through each gateway; another gateway is first each time."""
        found = []
        for topic in topics:
            order = [names[(topic + at) % len(names)] for at in range(len(names))]
            found.append({self.sent(name, body(topic, f"Question {at}")) for at, name in enumerate(order)})
        return found

    def explained(self, name: str, topic: int) -> str:
        return explained(self.ask(name, "POST", "/admin/explain", body(topic)))


@contextmanager
def site(**settings: Any) -> Iterator[Site]:
    with network("client", "redis", *GATEWAYS, *WORKERS) as net:
        made = Site(net, settings)
        try:
            made.wait_until_ready(len(WORKERS))
            yield made
        finally:
            made.close()


def agreeing(places: list[set[str]]) -> float:
    return sum(len(each) == 1 for each in places) / len(places)


def alone(places: list[set[str]]) -> list[str]:
    """Of topics on which all gateways agree, the worker."""
    assert agreeing(places) == 1.0, places
    return [next(iter(each)) for each in places]


def test_three_gateways_choose_alike_cold_and_warm_and_through_what_happens_to_workers_and_gateways() -> None:
    """The mode without a memory, in which a place follows from the prompt and the workers alone."""
    topics = range(PROMPTS)
    with site(**{"routing.policy": "prefix_bounded"}) as seen:
        cold = alone(seen.places_of(topics))
        assert set(cold) == {seen.worker_id(name) for name in WORKERS}, "every worker has some"
        assert alone(seen.places_of(topics)) == cold, "warm"

        # A worker leaves: only its own move, and all gateways move them alike.
        gone = seen.worker_id("worker-2")
        seen.place("worker-2").end(seen.workers["worker-2"])
        seen.wait_until_ready(len(WORKERS) - 1)
        moved = alone(seen.places_of(topics))
        assert gone not in moved
        assert all(now == before for now, before in zip(moved, cold, strict=True) if before != gone)

        # It comes back, and all that it had.
        seen.workers["worker-2"] = seen.start_worker("worker-2")
        seen.wait_until_ready(len(WORKERS))
        assert alone(seen.places_of(topics)) == cold

        # A gateway is started anew. The others serve meanwhile; it agrees with them from its first request on.
        seen.place("gateway-2").end(seen.gateways["gateway-2"])
        assert alone(seen.places_of(topics, ("gateway-1", "gateway-3"))) == cold
        seen.gateways["gateway-2"] = seen.start_gateway("gateway-2")
        seen.wait_until_ready(len(WORKERS))
        assert alone(seen.places_of(topics)) == cold


def test_the_default_policy_agrees_on_what_nobody_has_sent_and_mostly_on_what_each_remembers_for_itself() -> None:
    """Without a word to each other: the ring is one in all of them, what each has sent is its own."""
    with site() as seen:
        by_gateway = [[seen.explained(name, topic) for topic in range(PROMPTS)] for name in GATEWAYS]
        assert by_gateway[0] == by_gateway[1] == by_gateway[2]
        assert len(set(by_gateway[0])) > 1
        cold = seen.places_of(range(PROMPTS))
        warm = seen.places_of(range(PROMPTS))
        assert agreeing(cold) >= MOSTLY, cold
        assert agreeing(warm) >= MOSTLY, warm
        homes = Counter(worker for each in cold for worker in each)
        assert set(homes) == {seen.worker_id(name) for name in WORKERS}


@pytest.mark.system("redis-server")
def test_gateways_that_share_over_a_redis_agree_on_all_that_one_of_them_sent() -> None:
    with network("client", "redis", *GATEWAYS, *WORKERS) as net:
        redis = net.places["redis"]
        redis.run(
            "redis-server", "--port", "6379", "--bind", redis.address, "--protected-mode", "no", "--save", "",
            "--appendonly", "no", until="Ready to accept connections",
        )  # fmt: skip
        seen = Site(net, {"share": f"redis://{redis.address}:6379/0"})
        try:
            seen.wait_until_ready(len(WORKERS))
            sent = [seen.sent(GATEWAYS[topic % 3], body(topic)) for topic in range(PROMPTS)]
            until(lambda: all(
                seen.explained(name, topic) == sent[topic] for name in GATEWAYS for topic in range(PROMPTS)
            ), 60)  # fmt: skip
            assert alone(seen.places_of(range(PROMPTS))) == sent

            # One that is started anew reads what the others know.
            seen.place("gateway-3").end(seen.gateways["gateway-3"])
            seen.gateways["gateway-3"] = seen.start_gateway("gateway-3")
            seen.wait_until_ready(len(WORKERS))
            until(lambda: all(seen.explained("gateway-3", topic) == sent[topic] for topic in range(PROMPTS)), 60)
            assert alone(seen.places_of(range(PROMPTS))) == sent
        finally:
            seen.close()


def test_a_gateway_that_is_cut_off_from_a_worker_loses_that_one_alone() -> None:
    """Its packets to that worker are lost, without a word; nothing else is."""
    topics = range(PROMPTS)
    settings = {"routing.policy": "prefix_bounded", "timeouts.connect_seconds": 1}
    with site(**settings) as seen:
        before = alone(seen.places_of(topics))
        lost = seen.worker_id("worker-1")
        seen.net.part("gateway-1", "worker-1")
        until(lambda: seen.ready("gateway-1") == len(WORKERS) - 1, 60)
        others = ("gateway-2", "gateway-3")
        assert [seen.ready(name) for name in others] == [len(WORKERS)] * 2
        assert alone(seen.places_of(topics, others)) == before
        own = alone(seen.places_of(topics, ("gateway-1",)))
        assert lost not in own
        assert all(now == then for now, then in zip(own, before, strict=True) if then != lost)

        seen.net.join("gateway-1", "worker-1")
        seen.wait_until_ready(len(WORKERS))
        assert alone(seen.places_of(topics)) == before


def test_no_namespace_is_left() -> None:
    with network("one", "other") as net:
        names = [place.namespace for place in net.places.values()]
        assert all(os.path.exists(f"/run/netns/{name}") for name in names)
    assert not any(os.path.exists(f"/run/netns/{name}") for name in names)
