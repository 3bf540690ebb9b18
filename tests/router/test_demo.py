"""The demo's door: what it refuses, how it plans its time, and how it ends."""

import asyncio
import json
import signal
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any

import pytest

from router import demo as demo_module
from router.demo import LEAST_LOAD, LEAST_SECONDS, LOAD_SECONDS, _load_seconds, demo
from router.demo_client import Answer, Details, Usage
from router.demo_fleet import FleetError
from router.settings import Settings


class PretendFleet:
    """Starts nothing. `ends` is what a child says that ends by itself; None: they live on."""

    ends: str | None = None
    started: list[str]
    stopped = 0

    def __init__(self, workers: int, port: int) -> None:
        self.ids = [f"worker-{at}" for at in range(1, workers + 1)]
        self.url = f"http://127.0.0.1:{port}"
        type(self).started = []

    async def start(self, policy: str) -> None:
        self.started.append(policy)

    async def ended(self) -> str:
        if self.ends is None:
            await asyncio.Event().wait()
        return str(self.ends)

    async def stop(self) -> None:
        type(self).stopped += 1


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> type[PretendFleet]:
    """A demo that takes no time: no children, a short load, answers at once."""
    fresh = type("Fresh", (PretendFleet,), {})

    async def chat(host: str, port: int, messages: Sequence[dict[str, str]], max_tokens: int) -> Answer:
        quick = fresh.started[-1] != "random"
        usage = Usage(100, max_tokens, Details(80 if quick else 20))
        return Answer(began=0.0, ended=1.0, ttft=0.01 if quick else 0.1, worker="worker-1", text="yes", usage=usage)

    monkeypatch.setattr(demo_module, "Fleet", fresh)
    monkeypatch.setattr(demo_module, "chat", chat)
    monkeypatch.setattr(demo_module, "LOAD_SECONDS", 0.3)
    monkeypatch.setattr(demo_module, "LEAST_LOAD", 0.3)
    monkeypatch.setattr(demo_module, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(demo_module, "CLOSING_SECONDS", 0.0)
    return fresh


@pytest.fixture
def told_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the moment when there is nothing left to do but serve."""
    report = demo_module._report

    def reported(*arguments: Any) -> None:
        report(*arguments)
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)

    monkeypatch.setattr(demo_module, "_report", reported)


def interrupt_after(seconds: float, number: int = signal.SIGINT) -> None:
    thread = threading.Timer(seconds, signal.raise_signal, [number])
    thread.daemon = True
    thread.start()


@pytest.mark.parametrize(
    ("order", "fault"),
    [
        ((0, 8080, None), "--workers: expected a number from 1 to 64, got 0"),
        ((3, 70_000, None), "--port: expected a number from 0 to 65535, got 70000"),
        ((3, 8080, 3.0), "--seconds: expected at least 15"),
        ((3, 8080, float("nan")), "--seconds: expected at least 15"),
    ],
)
def test_what_cannot_be_done_is_exit_2(order: Any, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(*order, as_json=False) == 2
    assert fault in capsys.readouterr().err


def test_all_faults_are_named_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(0, -1, 1.0, as_json=True) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_both_loads_and_another_start_fit_into_the_limit() -> None:
    left, start = 25.0, 2.0
    assert 2 * _load_seconds(left, start) + start < left


def test_a_load_is_never_longer_than_needed_nor_too_short_to_show_anything() -> None:
    assert _load_seconds(None, 2.0) == _load_seconds(1000.0, 2.0) == LOAD_SECONDS
    assert _load_seconds(LEAST_SECONDS, 9.0) == LEAST_LOAD


@pytest.mark.usefixtures("told_once_it_serves")
def test_the_baseline_comes_first_and_the_default_policy_second(fleet: type[PretendFleet]) -> None:
    assert demo(3, 8080, None, as_json=True) == 0
    assert fleet.started == ["random", Settings().routing.policy]
    assert fleet.stopped >= 2


@pytest.mark.usefixtures("told_once_it_serves")
def test_with_json_standard_output_is_one_object(fleet: type[PretendFleet], capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(3, 8080, None, as_json=True) == 0
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert said["policies"]["random"]["ttft_p50"] == 0.1
    assert said["policies"]["prefix_cost"]["cached_share"] == 0.8
    assert "90% sooner" in captured.err


@pytest.mark.usefixtures("told_once_it_serves")
def test_without_json_the_table_and_the_pages_address_are_printed(
    fleet: type[PretendFleet], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(3, 8080, None, as_json=False) == 0
    out = capsys.readouterr().out
    assert "prompt tokens from cache" in out
    assert out.rstrip().endswith("The live page: http://127.0.0.1:8080/")


@pytest.mark.usefixtures("fleet", "told_once_it_serves")
def test_with_one_worker_no_gain_is_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(1, 8080, None, as_json=False) == 0
    out = capsys.readouterr().out
    assert "nothing to choose" in out
    assert "sooner" not in out


@pytest.mark.usefixtures("told_once_it_serves")
def test_ctrl_c_while_it_serves_is_a_good_end(fleet: type[PretendFleet]) -> None:
    assert demo(3, 8080, None, as_json=True) == 0
    assert fleet.stopped >= 2


def test_it_ends_by_itself_when_its_time_is_up(fleet: type[PretendFleet]) -> None:
    began = monotonic()
    assert demo(3, 8080, 3.0, as_json=True) == 0
    assert 3.0 <= monotonic() - began < 4.0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)])
def test_a_signal_while_it_measures_ends_everything(
    fleet: type[PretendFleet], monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    monkeypatch.setattr(demo_module, "LOAD_SECONDS", 60.0)
    interrupt_after(0.5, number)
    assert demo(3, 8080, None, as_json=True) == status
    assert fleet.started == ["random"]
    assert fleet.stopped >= 1


def test_a_child_that_ends_ends_the_demo(fleet: type[PretendFleet], capsys: pytest.CaptureFixture[str]) -> None:
    fleet.ends = "worker-2 ended by itself (status -9)"
    assert demo(3, 8080, None, as_json=False) == 1
    assert capsys.readouterr().err == "prefix-router: worker-2 ended by itself (status -9)\n"


def test_what_a_child_says_about_itself_is_passed_on_as_it_is(
    fleet: type[PretendFleet], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(self: PretendFleet, policy: str) -> None:
        raise FleetError("prefix-router: cannot listen on 127.0.0.1:8080: Address already in use")

    monkeypatch.setattr(fleet, "start", refuse)
    assert demo(3, 8080, None, as_json=False) == 1
    assert capsys.readouterr().err == "prefix-router: cannot listen on 127.0.0.1:8080: Address already in use\n"
    assert fleet.stopped >= 1


def test_too_little_time_is_said_instead_of_half_a_table(
    fleet: type[PretendFleet], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(3, 8080, 0.2, as_json=True) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "was too little to measure" in captured.err


def test_a_load_without_any_answer_is_a_failure(
    fleet: type[PretendFleet], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def chat(*_: object) -> Answer:
        return Answer(began=0.0, ended=0.1, error="status 503: No worker is ready.")

    monkeypatch.setattr(demo_module, "chat", chat)
    assert demo(3, 8080, None, as_json=True) == 1
    assert "status 503: No worker is ready." in capsys.readouterr().err
