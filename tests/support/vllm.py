"""Real vLLM servers on CPUs, with the small model, from the environment that `bench/vllm_setup.sh` makes.

One thread each. `blocks` bounds the KV cache, so that prefixes are evicted as on a busy GPU. With `events` every server
publishes its KV events over ZMQ: its publisher connects, so whoever reads binds the address first.

`python -m tests.support.vllm` starts two servers for `python -m bench.engines --engine vllm`, and prints their flags.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from router.demo_fleet import LIFELINE
from tests.support.processes import until

HOME = Path(__file__).parents[2] / ".cache" / "vllm"
MODEL_NAME = "smollm2-135m"
TOPIC = "kv-events"
BLOCK_TOKENS = 32  # the least that vLLM's attention for CPUs takes
MOST_TOKENS = 2048
START_SECONDS = 300.0  # half a minute, but the first start compiles all of Python's files
STOP_SECONDS = 30.0
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def is_there() -> bool:
    return (HOME / ".ready").exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(port: int, blocks: int, events: str | None) -> list[str]:
    flags = {
        "model": str(HOME / "model"), "served-model-name": MODEL_NAME, "host": "127.0.0.1", "port": str(port),
        "dtype": "bfloat16", "max-model-len": str(MOST_TOKENS), "max-num-seqs": "8", "block-size": str(BLOCK_TOKENS),
        "num-gpu-blocks-override": str(blocks),
    }  # fmt: skip
    if events is not None:
        flags["kv-events-config"] = (
            f'{{"enable_kv_cache_events": true, "publisher": "zmq", "topic": "{TOPIC}", "endpoint": "{events}"}}'
        )
    pairs = [word for name, value in flags.items() for word in (f"--{name}", value)]
    # `python -m`, since the `vllm` command looks for a distribution of another name.
    start = [str(HOME / "venv" / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    return [*start, *pairs, "--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"]


@contextmanager
def vllm_servers(count: int, cache_tokens: int, events: Sequence[str] = ()) -> Iterator[list[str]]:
    """The addresses of fresh servers that remember about so many tokens; one address for the events of each."""
    blocks = max(cache_tokens, MOST_TOKENS + BLOCK_TOKENS) // BLOCK_TOKENS
    with ExitStack() as stack:
        urls = [
            stack.enter_context(_server(free_port(), blocks, events[at] if events else None)) for at in range(count)
        ]
        for url in urls:
            until(lambda url=url: _is_ready(url), START_SECONDS)  # type: ignore[misc]
        yield urls


@contextmanager
def _server(port: int, blocks: int, events: str | None) -> Iterator[str]:
    """A session of its own, since vLLM's engine is a child process which must not be left behind; on Linux the server
    ends by itself if whoever started it is killed."""
    start = command(port, blocks, events)
    if sys.platform == "linux":
        start = [sys.executable, "-c", LIFELINE, str(os.getpid()), *start]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            start,
            stdout=log,
            stderr=log,
            env={**os.environ, **SETTINGS},
            start_new_session=True,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        except Exception:
            log.seek(0)
            sys.stderr.write("\n".join(log.read().decode("utf-8", "replace").splitlines()[-20:]) + "\n")
            raise
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _end_group(process.pid)


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    with vllm_servers(2, int(sys.argv[1]) if len(sys.argv) > 1 else 4000) as addresses:
        sys.stdout.write(" ".join(f"--worker {url}" for url in addresses) + "\n")
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.pause()
