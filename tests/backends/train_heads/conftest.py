"""Every test here computes on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network of random numbers as a safetensors folder; its tokens are bytes, its context is 256."""
    from tests.support.tiny_worker import saved

    return saved(tmp_path_factory.mktemp("model") / "tiny")
