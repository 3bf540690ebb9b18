"""Faults that other gateways really had, each told over both sinks, as the stories are."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.stories.conftest import told
from tests.support.gateway import Stage

HERE = Path(__file__).parent


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(90, method="thread"))


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def fast(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
async def stage(fast: bool) -> AsyncIterator[Stage]:
    async with told(fast=fast) as stage:
        yield stage


@pytest.fixture
async def lane() -> AsyncIterator[Stage]:
    """The fast lane alone, for what plain uvicorn does not do."""
    async with told(fast=True) as stage:
        yield stage
