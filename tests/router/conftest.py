"""A stage for gateways in the test's own loop, and plain HTTP clients of theirs."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.support.gateway import Running, Stage

Connect = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(fast=True)
    try:
        yield stage
    finally:
        await stage.close()


@pytest.fixture
async def connect(stage: Stage) -> AsyncIterator[Connect]:
    """`connect(running)` is a client of that gateway, closed before the gateway is."""
    async with AsyncExitStack() as clients:

        def connect(running: Running, **options: Any) -> httpx.AsyncClient:
            options = {"base_url": f"http://127.0.0.1:{running.port}", "trust_env": False, "timeout": 20.0, **options}
            client = httpx.AsyncClient(**options)
            clients.push_async_callback(client.aclose)
            return client

        yield connect
