"""Where requests go, with real processes: the same beginning meets the same worker, and load moves it on."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.support.processes import Program, gateway, mock_workers, until

SYSTEM = "You are the assistant of a company that sells garden tools. Answer in one sentence, be exact. " * 21
FAST = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "2000")


def chat(*turns: str, system: str = SYSTEM[:2000], **more: Any) -> dict[str, Any]:
    """A chat: the system text, then user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return {"model": "mock-model", "messages": messages, "max_tokens": 4, **more}


def where(client: httpx.Client, body: dict[str, Any]) -> str:
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-router-worker"]


def test_fifty_questions_behind_one_system_text_go_to_one_worker() -> None:
    with mock_workers(3, *FAST) as workers, gateway([w.url for w in workers]) as front:
        with httpx.Client(base_url=front.url) as client:
            seen = {where(client, chat(f"Question {at}: what does a spade of kind {at} cost?")) for at in range(50)}
    assert len(seen) == 1


def test_a_conversation_keeps_its_worker_from_turn_to_turn() -> None:
    with mock_workers(3, *FAST) as workers, gateway([w.url for w in workers]) as front:
        with httpx.Client(base_url=front.url) as client:
            for system in (SYSTEM[:2000], "You are helpful."):
                talks = [[f"My name is {name}. Hello."] for name in ("Ada", "Grace")]
                places: list[set[str]] = [set(), set()]
                for turn in range(6):
                    for talk, place in zip(talks, places, strict=True):
                        worker = where(client, chat(*talk, system=system))
                        if turn > 0:  # a first turn of a few words has nothing to be remembered by
                            place.add(worker)
                        talk += [f"Certainly, this is answer {turn}.", f"And what comes after {turn}, {talk[0]}?"]
                assert [len(place) for place in places] == [1, 1]


def test_two_gateways_that_learned_the_workers_in_different_order_choose_alike() -> None:
    prompts = [chat(f"Tell me about topic {at}", system=f"You are expert number {at}. " * 30) for at in range(100)]
    with mock_workers(3, *FAST) as workers:
        urls = [worker.url for worker in workers]
        for policy in ("prefix_cost", "prefix_bounded"):
            with gateway(urls, "--policy", policy) as one, gateway(urls[::-1], "--policy", policy) as other:
                with httpx.Client(base_url=one.url) as first, httpx.Client(base_url=other.url) as second:
                    pairs = [(where(first, body), where(second, body)) for body in prompts]
            assert [left for left, _ in pairs] == [right for _, right in pairs]
            assert len({left for left, _ in pairs}) == 3


def test_removing_one_of_eight_workers_moves_only_its_keys_and_it_gets_them_back() -> None:
    names = [f"http://127.0.0.1:{port}" for port in range(9, 17)]  # never asked: the decisions alone are
    prompts = [chat("Hello", system=f"You are expert number {at}. " * 60) for at in range(200)]
    with mock_workers(8, *FAST) as workers, gateway([w.url for w in workers], "--policy", "prefix_bounded") as front:
        with httpx.Client(base_url=front.url) as client:
            before = [explained(client, body) for body in prompts]
            gone = before[0]
            url = next(worker.url for worker in workers if worker.url.endswith(gone))
            assert client.delete(f"/admin/workers/{gone}").status_code == 204
            without = [explained(client, body) for body in prompts]
            assert client.post("/admin/workers", json={"url": url}).status_code == 201
            until(lambda: [explained(client, body) for body in prompts] == before)
    assert len(names) == len(set(before)) == 8
    assert all(after == then for then, after in zip(before, without, strict=True) if then != gone)
    assert gone not in without


def explained(client: httpx.Client, body: dict[str, Any]) -> str:
    answer = client.post("/admin/explain", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["chosen"])


def test_by_cost_removing_a_worker_moves_nothing_that_others_hold() -> None:
    prompts = [chat("Hello", system=f"You are expert number {at}. " * 60) for at in range(60)]
    with mock_workers(4, *FAST) as workers, gateway([w.url for w in workers]) as front:
        with httpx.Client(base_url=front.url) as client:
            before = [where(client, body) for body in prompts]
            gone = before[0]
            assert client.delete(f"/admin/workers/{gone}").status_code == 204
            after = [where(client, body) for body in prompts]
    assert all(then == now for then, now in zip(before, after, strict=True) if then != gone)
    assert gone not in after


def test_a_saturated_home_spills_to_a_small_set_and_gets_its_prefix_back() -> None:
    slow = ("--prefill-tokens-per-second", "2000", "--decode-tokens-per-second", "40", "--max-running", "2")
    with mock_workers(6, *slow) as workers, gateway([w.url for w in workers]) as front:
        with httpx.Client(base_url=front.url, timeout=60) as client:
            home = where(client, chat("The first question"))
            busy = [chat(f"A long story, please, number {at}. " * 200, max_tokens=60) for at in range(6)]
            with ThreadPoolExecutor(16) as pool:
                held = [pool.submit(saturate, front, home, body) for body in busy]
                until(lambda: in_flight(client, home) >= 1)
                overflow = [where(client, chat(f"A question in between, number {at}")) for at in range(12)]
                for each in held:
                    each.result()
            after = [where(client, chat(f"A later question, number {at}")) for at in range(10)]
    assert len(set(overflow) - {home}) <= 2
    assert set(after) == {home}


def saturate(front: Program, home: str, body: dict[str, Any]) -> None:
    """A long prompt with the home's own beginning, so that it is sent there."""
    with httpx.Client(base_url=front.url, timeout=60) as client:
        where(client, body)


def in_flight(client: httpx.Client, worker: str) -> int:
    rows = client.get("/admin/workers").json()["workers"]
    return next(int(row["in_flight"]) for row in rows if row["id"] == worker)


def test_a_worker_saved_from_one_prefix_by_many_others() -> None:
    with mock_workers(12, *FAST[:2], "--decode-tokens-per-second", "20") as workers:
        with gateway([w.url for w in workers]) as front, ThreadPoolExecutor(20) as pool:
            with httpx.Client(base_url=front.url, timeout=60) as client:
                asked = [chat(f"Question {at} of twenty at once", max_tokens=20) for at in range(20)]
                places = Counter(pool.map(lambda body: where(client, body), asked))
    assert max(places.values()) < 20
    assert len(places) >= 4
