"""Bytes at random, many of them: FUZZ_INPUTS a test (few under CI), drawn with FUZZ_SEED."""

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop

from tests.support.gateway import Stage

INPUTS = int(os.environ.get("FUZZ_INPUTS", "200"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "fuzz":
            item.add_marker(pytest.mark.fuzz)
            item.add_marker(pytest.mark.timeout(60 + INPUTS, method="thread"))


@pytest.fixture
def inputs() -> int:
    return INPUTS


@pytest.fixture
def seed() -> int:
    return SEED


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    stage = Stage(fast=request.param)
    try:
        yield stage
        await stage.check()
    finally:
        await stage.close()
