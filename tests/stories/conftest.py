"""Every story is told twice: by the fast lane inside uvicorn's protocol class, and by the ASGI endpoints alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.gateway import Stage

HERE = Path(__file__).parent


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The gateway runs on uvloop, so its stories do."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A signal's handler runs inside uvloop, where what it raises is only logged."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(60, method="thread"))


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def fast(request: pytest.FixtureRequest) -> bool:
    return request.param


@asynccontextmanager
async def told(*, fast: bool) -> AsyncIterator[Stage]:
    stage = Stage(fast=fast)
    try:
        yield stage
        await stage.check()
    finally:
        await stage.close()


@pytest.fixture
async def stage(fast: bool) -> AsyncIterator[Stage]:
    async with told(fast=fast) as stage:
        yield stage


@pytest.fixture
async def lane() -> AsyncIterator[Stage]:
    """The fast lane alone, for what plain uvicorn does not do."""
    async with told(fast=True) as stage:
        yield stage
