"""Faults that other gateways really had, each told over both sinks, as the stories are."""

from pathlib import Path

import pytest

from tests.stories.conftest import fast, lane, pytest_asyncio_loop_factories, stage

__all__ = ["fast", "lane", "pytest_asyncio_loop_factories", "stage"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(90, method="thread"))
