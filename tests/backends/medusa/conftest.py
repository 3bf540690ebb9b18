"""Tools for the tests of the worker with a real model: SmolLM2, read once a process, and a tiny network of random
numbers. Every test computes on one thread and without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import llamas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.medusa.model import Llama
    from backends.medusa.vocabulary import Vocabulary
    from backends.medusa.weights import Checkpoint


@pytest.fixture(autouse=True)
def _one_thread_and_no_gradients() -> Iterator[None]:
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def smollm2() -> Checkpoint:
    return llamas.smollm2()


@pytest.fixture(scope="session")
def model() -> Llama:
    """SmolLM2 in float32."""
    return llamas.smollm2_llama()


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return llamas.smollm2_vocabulary()


@pytest.fixture(scope="session")
def tiny() -> Llama:
    """2 layers, width 32, 4 heads, 2 KV heads, 97 tokens, a context of 256."""
    return llamas.tiny_llama()
