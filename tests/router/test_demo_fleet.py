"""The demo's children: real processes, short ones where a real worker is not needed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from router import demo_fleet
from router.demo_fleet import LIFELINE, Fleet, FleetError


async def test_a_fleet_starts_serves_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIX_ROUTER_ADMIN_TOKEN", "not for the demo")
    fleet = Fleet(2, 0)
    try:
        await fleet.start("round_robin")
        async with httpx.AsyncClient(base_url=fleet.url, trust_env=False) as client:
            workers = (await client.get("/admin/workers")).json()["workers"]
        assert [worker["id"] for worker in workers] == ["worker-1", "worker-2"]
        children = fleet._children.copy()
    finally:
        await fleet.stop()
    assert [child.process.returncode for child in children] == [0, 0, 0]


async def test_a_child_that_cannot_start_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_fleet, "PREFILL", "fast")
    fleet = Fleet(1, 0)
    try:
        with pytest.raises(FleetError, match="--prefill-tokens-per-second: expected a number above 0, got 'fast'"):
            await fleet.start("random")
    finally:
        await fleet.stop()


async def test_a_child_that_ends_by_itself_is_named() -> None:
    fleet = Fleet(1, 0)
    try:
        await fleet._spawn("worker-1", ("-c", "import sys; sys.exit('no more tokens')"), dict(os.environ))
        assert await fleet.ended() == "worker-1 ended by itself (status 1): no more tokens"
    finally:
        await fleet.stop()


async def test_a_child_that_ignores_the_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_fleet, "STOP_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(60)"
    fleet = Fleet(1, 0)
    child = await fleet._spawn("worker-1", ("-c", deaf), dict(os.environ))
    assert await fleet._address(child) == "x"
    await fleet.stop()
    assert child.process.returncode == -9


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
async def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """The parent is killed outright, so nothing but the kernel can tell the child."""
    told = tmp_path / "told"
    child = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(told)!r}, 'w').close(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {LIFELINE!r}, str(os.getpid()), sys.executable, '-c', {child!r}])\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    for _ in range(100):
        if told.exists():
            break
        await asyncio.sleep(0.05)
    assert told.exists()
