"""Several processes look like one: real processes, real sockets, each request on a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.support.processes import mock_workers, until
from tests.support.several import ASKS, CHAT, Several, Streaming, alive, several

SLOW = ("--decode-tokens-per-second", "15")  # thirty tokens take two seconds
QUICK = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "2000")
COUNTS = ("_total", "_count", "_bucket", "_sum")


def test_traffic_spreads_over_the_processes_and_one_scrape_counts_all() -> None:
    with several(2, *QUICK) as front:
        for at in range(40):
            assert front.chat(f"question {at}").status_code == 200
        rows = front.rows()
        assert [row["index"] for row in rows] == [0, 1]
        assert all(row["requests"] >= 3 and row["answers"] and row["uptime_seconds"] > 0 for row in rows)
        assert len({row["pid"] for row in rows} | {front.program.process.pid}) == 3

        def complete() -> bool:
            shown = front.metrics()
            requests = sum(value for name, value in shown.items() if name.startswith("prefix_router_requests_total{"))
            chats = f'prefix_router_request_seconds_count{{model="mock-model",path="{CHAT}"}}'
            builds = [name for name in shown if name.startswith("prefix_router_build_info")]
            return requests == shown[chats] == 40 and len(builds) == 1

        assert front.everywhere(complete)
        decisions = front.get("/admin/decisions")["decisions"]
        assert len(decisions) == 40
        ages = [row["age_seconds"] for row in decisions]
        assert ages == sorted(ages)


def test_the_same_prefix_goes_to_the_same_worker_whichever_process_takes_it() -> None:
    system = "You are the assistant of a company that sells garden tools. Answer in one sentence. " * 30
    with several(3, *QUICK) as front:
        messages = [{"role": "system", "content": system}]
        seen = {
            front.chat(messages=[*messages, {"role": "user", "content": f"What costs a spade of kind {at}?"}]).headers[
                "x-router-worker"
            ]
            for at in range(ASKS)
        }
        assert len(seen) == 1


def test_load_that_one_process_charged_is_seen_by_all_and_then_gone() -> None:
    with several(1, *SLOW) as front:
        streams = [Streaming(front, 40) for _ in range(3)]

        def load() -> int:
            (row,) = front.get("/admin/workers")["workers"]
            return int(row["in_flight"])

        time.sleep(0.1)
        assert front.everywhere(lambda: load() == 3)
        assert front.in_flight() == 3
        assert sum(row["in_flight"] for row in front.rows()) == 3
        assert all(stream.end() for stream in streams)
        until(lambda: front.everywhere(lambda: load() == 0), 5)
        assert front.in_flight() == 0


def test_a_workers_limit_holds_over_the_processes_but_for_what_comes_within_a_moment() -> None:
    """A process looks every 15 ms at what the others have sent; what is decided in between may exceed the limit. On a
    busy machine it looks later, so this allows for one too many of each process."""
    most = 3
    with mock_workers(1, *SLOW) as workers:
        given = {"url": workers[0].url, "max_in_flight": most}
        with several(0) as front:
            assert front.ask("POST", "/admin/workers", json=given).status_code == 201
            until(lambda: front.everywhere(lambda: front.ready() == 1))
            with ThreadPoolExecutor(12) as pool:
                asked = []
                for at in range(12):
                    asked.append(pool.submit(front.chat, f"question {at}", max_tokens=10))
                    time.sleep(0.05)
                assert {each.result().status_code for each in asked} == {200}, "those that waited were let in"
            stats = httpx.get(workers[0].url + "/stats").json()
            assert stats["finished"] == 12
            assert most <= stats["max_running"] <= most + 2


class Watch:
    """Scrapes over and over, and notes every counter that went down or away."""

    def __init__(self, front: Several) -> None:
        self.front = front
        self.faults: list[str] = []
        self.scrapes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before: dict[str, float] = {}
        while not self._stop.is_set():
            try:
                now = self.front.metrics()
            except httpx.HTTPError:  # it was in the hands of the process that was killed
                continue
            self.scrapes += 1
            for name, value in before.items():
                if name.partition("{")[0].endswith(COUNTS) and now.get(name, -1) < value:
                    self.faults.append(f"{name}: {value} -> {now.get(name)}")
            before = now
            self._stop.wait(0.05)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        assert self.faults == []
        assert self.scrapes > 5


def test_a_process_killed_under_load_is_replaced_and_no_connection_is_refused() -> None:
    with several(2, *QUICK) as front:
        watch = Watch(front)
        stop = threading.Event()
        refused: list[str] = []
        served = [0, 0]  # before and after
        statuses: set[int] = set()

        def load() -> None:
            while not stop.is_set():
                try:
                    answer = front.chat(max_tokens=20, stream=True)
                except httpx.ConnectError as wrong:
                    refused.append(str(wrong))
                except httpx.HTTPError:  # what the killed process had in hand
                    continue
                else:
                    statuses.add(answer.status_code)
                    served[killed.is_set()] += 1

        killed = threading.Event()
        with ThreadPoolExecutor(4) as pool:
            loads = [pool.submit(load) for _ in range(4)]
            for _ in range(2):
                time.sleep(1.0)
                pids = front.pids()
                os.kill(pids[0], signal.SIGKILL)
                until(lambda pids=pids: pids[0] not in front.pids() and len(front.pids()) == 2)  # type: ignore[misc]
                killed.set()
            until(lambda: all(row["requests"] > 0 for row in front.rows()))
            stop.set()
            for each in loads:
                each.result()
        assert (refused, statuses) == ([], {200})
        assert served[0] > 0
        assert served[1] > 0
        until(lambda: front.in_flight() == 0, 5)
        until(lambda: all(row["in_flight"] == 0 for row in front.get("/admin/workers")["workers"]), 5)
        watch.end()
        assert front.end() == 0


def test_what_an_admin_changes_reaches_every_process_and_those_started_later() -> None:
    with mock_workers(1, *QUICK) as more, several(1, *QUICK) as front:
        (first,) = front.states()
        added = front.ask("POST", "/admin/workers", json={"url": more[0].url, "id": "added"})
        assert (added.status_code, added.json()["id"]) == (201, "added")
        assert front.everywhere(lambda: set(front.states()) == {first, "added"}), "as soon as it is answered"
        until(lambda: front.everywhere(lambda: front.states()["added"] == "ready"))
        assert front.ask("POST", f"/admin/workers/{first}/drain").json()["state"] == "draining"
        assert front.everywhere(lambda: front.states()[first] == "draining")
        assert {front.chat(f"{at}").headers["x-router-worker"] for at in range(ASKS)} == {"added"}

        pid = front.pids()[1]
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in front.pids())
        until(lambda: front.everywhere(lambda: front.states() == {first: "draining", "added": "ready"}))

        assert front.ask("POST", f"/admin/workers/{first}/undrain").status_code == 200
        until(lambda: front.everywhere(lambda: front.states()[first] == "ready"))
        assert front.ask("DELETE", "/admin/workers/added").status_code == 204
        assert front.everywhere(lambda: set(front.states()) == {first})
        assert front.everywhere(lambda: front.ask("DELETE", "/admin/workers/added").status_code == 404)


async def test_a_drained_worker_with_nothing_in_flight_may_be_stopped() -> None:
    """Whichever process is asked, and whatever another sent there a moment before it heard of the drain."""
    flags = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "300")
    with several(2, *flags) as front:
        async with httpx.AsyncClient(base_url=front.url, timeout=30, trust_env=False) as client:
            going = True

            async def load(name: int) -> None:
                """Streams of 20 ms with pauses between, so that a worker is often idle."""
                async with httpx.AsyncClient(base_url=front.url, timeout=30, trust_env=False) as own:
                    at = 0
                    while going:
                        at += 1
                        messages = [{"role": "user", "content": f"question {at} of {name}"}]
                        body = {"model": "mock-model", "messages": messages, "max_tokens": 6, "stream": True}
                        answer = await own.post(CHAT, json=body)
                        assert answer.text.endswith("data: [DONE]\n\n")
                        await asyncio.sleep(0.01 * dice.random())

            async def is_busy(name: str) -> bool:
                rows = (await client.get("/admin/workers")).json()["workers"]
                return bool({row["id"]: row["in_flight"] for row in rows}[name])

            dice = Random(1)
            loads = [asyncio.create_task(load(at)) for at in range(8)]
            left = 0
            for at in range(60):
                url = front.workers[at % 2].url
                name = url.removeprefix("http://")
                assert (await client.post(f"/admin/workers/{name}/drain")).json()["state"] == "draining"
                while await is_busy(name):
                    await asyncio.sleep(0.005)
                left += (await client.get(url + "/stats")).json()["running"]
                assert (await client.post(f"/admin/workers/{name}/undrain")).status_code == 200
                await asyncio.sleep(0.1)  # so that it has work again
            going = False
            await asyncio.gather(*loads)
        assert left == 0


def test_while_a_process_hangs_a_drained_worker_is_not_shown_as_idle() -> None:
    """It has not heard of the drain, and may send a request when it wakes."""
    with several(2, *QUICK) as front:
        hung = front.pids()[0]
        name = next(iter(front.states()))

        os.kill(hung, signal.SIGSTOP)
        with ThreadPoolExecutor(ASKS) as pool:
            try:  # the kernel gives some of these connections to the hung one, where they wait
                asked = [pool.submit(front.ask, "POST", f"/admin/workers/{name}/drain") for _ in range(ASKS)]
                first, _ = wait(asked, return_when=FIRST_COMPLETED)
                shown = [each.result().json() for each in first]
                assert {(row["state"], row["in_flight"]) for row in shown} == {("draining", 1)}
            finally:
                with contextlib.suppress(ProcessLookupError):  # where this took long it was replaced
                    os.kill(hung, signal.SIGCONT)
        until(lambda: all(row["in_flight"] == 0 for row in front.get("/admin/workers")["workers"]))


def test_a_drain_over_some_time_goes_on_in_every_process_and_ends_in_every_process() -> None:
    with several(2, *QUICK) as front:
        first, second = front.states()
        answer = front.ask("POST", f"/admin/workers/{first}/drain?over_seconds=6")
        assert (answer.status_code, answer.json()["state"]) == (200, "ready")
        assert front.everywhere(lambda: front.states()[first] == "ready")
        until(lambda: front.everywhere(lambda: front.states()[first] == "draining"))
        assert {front.chat(f"{at}").headers["x-router-worker"] for at in range(ASKS)} == {second}
        front.ask("POST", f"/admin/workers/{first}/undrain")
        assert front.everywhere(lambda: front.states()[first] == "ready")
        front.ask("POST", f"/admin/workers/{first}/drain?over_seconds=3600")
        front.ask("POST", f"/admin/workers/{first}/undrain")
        seen = {front.chat(f"{at} " * 100).headers["x-router-worker"] for at in range(ASKS)}
        assert seen == {first, second}


def test_what_a_shadow_would_do_is_counted_over_all_processes() -> None:
    with several(2, *QUICK, **{"routing.shadow": "random"}) as front:
        for at in range(30):
            assert front.chat(f"question {at} " * 30).status_code == 200
        shown = front.metrics()
        assert sum(value for name, value in shown.items() if name.startswith("prefix_router_shadow_decisions_")) == 30
        assert shown['prefix_router_shadow_made_tokens_total{policy="random"}'] > 0
        sent = 'prefix_router_shared_total{kind="sent"}'
        until(lambda: front.metrics()[sent] == 30)  # the processes tell each other, a moment later


def test_a_process_that_hangs_holds_up_neither_a_scrape_nor_a_change_for_long() -> None:
    with several(1, *QUICK) as front:
        for at in range(ASKS):
            front.chat(f"{at}")
        before = front.metrics()
        hung = front.pids()[0]
        with ThreadPoolExecutor(1) as pool:
            os.kill(hung, signal.SIGSTOP)
            try:
                answered = 0
                while answered < 3:  # connections that the kernel gives to the hung one wait there
                    try:
                        began = time.monotonic()
                        text = front.ask("GET", "/metrics", timeout=2).text
                        assert time.monotonic() - began < 1.5
                        answered += 1
                    except httpx.ReadTimeout:
                        continue
                    for line in text.splitlines():
                        name, _, value = line.rpartition(" ")
                        if not line.startswith("#") and name.partition("{")[0].endswith(COUNTS):
                            assert float(value) >= before.get(name, 0)
            finally:
                with contextlib.suppress(ProcessLookupError):  # where this took long it was replaced
                    os.kill(hung, signal.SIGCONT)
            assert pool.submit(front.chat).result().status_code == 200


def test_a_clean_stop_finishes_the_streams_of_all_processes_and_is_exit_0() -> None:
    with several(1, *SLOW, **{"shutdown.grace_seconds": 1}) as front:
        streams = [Streaming(front, 40) for _ in range(6)]
        pids = front.pids()
        front.program.process.send_signal(signal.SIGTERM)
        until(lambda: front.everywhere(lambda: front.ask("GET", "/readyz").status_code == 503), 0.9)
        assert all(stream.end() for stream in streams)
        assert front.program.process.wait(timeout=20) == 0
        assert not any(alive(pid) for pid in pids)
        with pytest.raises(httpx.ConnectError):
            front.ask("GET", "/healthz")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_one_signal(sig: int) -> None:
    """As a terminal sends it, and systemd: the processes have it from both the sender and the parent."""
    with several(1, *SLOW) as front:
        streams = [Streaming(front, 30) for _ in range(4)]
        for pid in [front.program.process.pid, *front.pids()]:
            os.kill(pid, sig)
        assert all(stream.end() for stream in streams)
        assert front.program.process.wait(timeout=20) == 0


def test_a_second_signal_ends_all_at_once() -> None:
    with several(1, *SLOW, **{"shutdown.grace_seconds": 60}) as front:
        streams = [Streaming(front, 1000) for _ in range(4)]
        pids = front.pids()
        front.program.process.send_signal(signal.SIGTERM)
        until(lambda: front.everywhere(lambda: front.ask("GET", "/readyz").status_code == 503))
        began = time.monotonic()
        assert front.end() == 0
        assert time.monotonic() - began < 10
        assert not any(stream.end() for stream in streams)
        assert not any(alive(pid) for pid in pids)


def test_a_parent_that_is_killed_leaves_no_orphan_and_cuts_no_stream() -> None:
    with several(1, *SLOW, **{"shutdown.grace_seconds": 60}) as front:
        stream = Streaming(front, 30)
        pids = front.pids()
        front.program.process.kill()
        assert stream.end()
        until(lambda: not any(alive(pid) for pid in pids), 5)


def test_the_processes_write_whole_lines_to_one_access_log(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    with several(1, *QUICK, **{"log.access": str(path)}) as front:
        with ThreadPoolExecutor(4) as pool:
            assert {answer.status_code for answer in pool.map(front.chat, map(str, range(60)))} == {200}
        assert front.end() == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert len([line for line in lines if line["path"] == CHAT]) == 60
