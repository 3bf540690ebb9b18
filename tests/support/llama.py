"""Real engines: llama.cpp's own HTTP server with a real 135M model, as child processes on free ports.

One thread each, so that two of them have a core each on a small machine, and one slot: a prompt cannot be shared by two
slots, so a second request with the same beginning at the same moment would compute it anew and keep a copy of it. The
slot's prompt moves to the host cache when another one comes, and back when it is wanted again. So a server holds as
many prompts as `cache_ram_mib` has room for and drops the oldest beyond that: one least-recently-used cache of a known
size, as larger engines have. What they have besides, and this one has not, is several requests at work at once.

A request that is cut while its prompt is computed keeps its slot until that is done.

This file is the child's program too: `python -m tests.support.llama MODEL CACHE_MIB`.
"""

from __future__ import annotations

import ctypes
import hashlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx

from tests.support.processes import running, until

MODEL = Path(__file__).parents[2] / ".cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_NAME = "smollm2-135m"
SLOTS, CONTEXT = 1, 2048
BYTES_A_TOKEN = 23_040  # of the KV cache: 30 layers, keys and values, 3 heads of 64 numbers, 2 bytes each


def missing() -> str | None:
    """What a real engine needs and this machine has not."""
    if find_spec("xllamacpp") is None:
        return "xllamacpp"
    return None if MODEL.is_file() else f"{MODEL.name} (.ci/fetch-model.sh)"


def is_intact() -> bool:
    """The model file is the one that was meant."""
    with MODEL.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == MODEL_SHA256


@contextmanager
def llama_servers(count: int, cache_tokens: int, model: Path = MODEL) -> Iterator[list[str]]:
    """The addresses of fresh servers, each remembering prompts of so many tokens in all."""
    mib = max(1, cache_tokens * BYTES_A_TOKEN >> 20)
    with ExitStack() as stack:
        programs = [stack.enter_context(running("tests.support.llama", str(model), str(mib))) for _ in range(count)]
        urls = [program.url for program in programs]
        for url in urls:
            until(lambda url=url: httpx.get(f"{url}/health").status_code == 200)  # type: ignore[misc]
        yield urls


def serve(model: str, cache_mib: int) -> None:
    """Serve until SIGTERM, or until the parent is gone."""
    import xllamacpp

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: a killed test leaves no engine behind
    asked = xllamacpp.CommonParams()
    asked.model.path, asked.model_alias = model, {MODEL_NAME}
    asked.hostnames, asked.port = ["127.0.0.1"], 0
    asked.n_parallel, asked.n_ctx = SLOTS, CONTEXT
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = 1
    asked.cache_ram_mib = cache_mib
    asked.endpoint_metrics, asked.ui = True, False
    server = xllamacpp.Server(asked)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sys.stdout.write(f"llama.cpp listening on {server.listening_address}\n")
    sys.stdout.flush()
    stop.wait()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
