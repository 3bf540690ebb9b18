"""Every story is told twice: by the fast lane inside uvicorn's protocol class, and by the ASGI endpoints alone."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop

from tests.support.gateway import Stage


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The gateway runs on uvloop, so its stories do."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def fast(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
async def stage(fast: bool) -> AsyncIterator[Stage]:
    stage = Stage(fast=fast)
    try:
        yield stage
        await stage.check()
    finally:
        await stage.close()
