"""What is watched for workers: exactly one watcher a source, swapped when its settings change."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from router.discovery import sources as module
from router.discovery.sources import Sources
from router.discovery.static import StaticSource
from router.sections.discovery import Discovery
from router.types import Worker
from tests.support.fleets import worker
from tests.support.gateway import eventually


class Told:
    """A source that tells what the test puts in. `watchers`: how many watch it now."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.watchers = 0
        self.sets: asyncio.Queue[tuple[Worker, ...] | Exception] = asyncio.Queue()

    async def watch(self) -> AsyncGenerator[tuple[Worker, ...], None]:
        self.watchers += 1
        try:
            while True:
                told = await self.sets.get()
                if isinstance(told, Exception):
                    raise told
                yield told
        finally:
            await asyncio.sleep(0)  # as one that closes its connection
            self.watchers -= 1


class Stage:
    def __init__(self) -> None:
        self.built: list[Told] = []
        self.reports: list[tuple[object, tuple[Worker, ...]]] = []
        self.static = StaticSource([worker("s")])
        self.sources = Sources(lambda name, workers: self.reports.append((name, workers)), self.build)

    def build(self, name: str, options: Any) -> Told:
        assert name == "kubernetes"
        self.built.append(Told(options))
        return self.built[-1]

    def watchers(self) -> int:
        return sum(each.watchers for each in self.built)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.sources.close()
    assert made.watchers() == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name().endswith(" workers")]


def discovery(service: str | None = None) -> Discovery:
    return Discovery.model_validate({"kubernetes": {"service": service} if service else None})


async def test_the_workers_of_the_settings_are_always_watched(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery())
    await eventually(lambda: stage.reports == [(stage.static, (worker("s"),))])
    assert stage.built == []


async def test_a_source_of_the_settings_reports_under_its_name(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    stage.built[0].sets.put_nowait((worker("k"),))
    await eventually(lambda: ("kubernetes", (worker("k"),)) in stage.reports)


async def test_before_it_is_opened_and_after_it_is_closed_nothing_is_watched(stage: Stage) -> None:
    stage.sources.adopt(discovery("a"))
    assert stage.built == []
    stage.sources.open(stage.static, discovery("a"))
    await stage.sources.close()
    stage.sources.adopt(discovery("b"))
    assert len(stage.built) == 1


async def test_settings_that_stay_keep_the_watcher(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    for _ in range(3):
        stage.sources.adopt(discovery("a"))
    await eventually(lambda: stage.watchers() == 1)
    assert len(stage.built) == 1


async def test_changed_settings_swap_the_source_and_its_set_stays_until_the_next_ones(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    stage.built[0].sets.put_nowait((worker("old"),))
    await eventually(lambda: ("kubernetes", (worker("old"),)) in stage.reports)
    before = len(stage.reports)
    stage.sources.adopt(discovery("b"))
    stage.built[0].sets.put_nowait((worker("late"),))
    await eventually(lambda: [each.watchers for each in stage.built] == [0, 1])
    assert len(stage.reports) == before, "nothing is told of a source that goes, nor by it"
    assert stage.built[1].options.service == "b"
    stage.built[1].sets.put_nowait((worker("new"),))
    await eventually(lambda: stage.reports[before:] == [("kubernetes", (worker("new"),))])


async def test_however_often_settings_change_one_watcher_is_left(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    for at in range(10):
        stage.sources.adopt(discovery("ab"[at % 2]))
        if at % 3 == 0:
            await asyncio.sleep(0)
    await eventually(lambda: [each.watchers for each in stage.built][-1] == stage.watchers() == 1)


async def test_a_source_that_is_taken_out_reports_nobody(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    stage.built[0].sets.put_nowait((worker("k"),))
    await eventually(lambda: ("kubernetes", (worker("k"),)) in stage.reports)
    stage.sources.adopt(discovery())
    assert stage.reports[-1] == ("kubernetes", ())
    await eventually(lambda: stage.watchers() == 0)


async def test_one_may_wait_until_every_source_has_reported_once(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    waiting = asyncio.create_task(stage.sources.heard(60))
    await eventually(lambda: stage.reports)
    await asyncio.sleep(0.01)
    assert not waiting.done(), "one of two has reported"
    stage.built[0].sets.put_nowait(())
    assert await asyncio.wait_for(waiting, 20)
    assert stage.reports[-1] == ("kubernetes", ())


async def test_who_waits_for_a_source_that_cannot_be_reached_waits_no_longer_than_told(stage: Stage) -> None:
    stage.sources.open(stage.static, discovery("a"))
    assert not await asyncio.wait_for(stage.sources.heard(0.05), 20)
    assert stage.watchers() == 1


async def test_a_source_that_fails_is_watched_again_and_keeps_its_set(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    stage.sources.open(stage.static, discovery("a"))
    source = stage.built[0]
    source.sets.put_nowait((worker("k"),))
    source.sets.put_nowait(RuntimeError("nobody foresaw this"))
    await eventually(lambda: "a source of workers failed; it is watched again" in caplog.messages)
    source.sets.put_nowait((worker("l"),))
    await eventually(lambda: stage.reports[-1] == ("kubernetes", (worker("l"),)))
    assert ("kubernetes", ()) not in stage.reports
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
