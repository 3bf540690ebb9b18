"""The Python router of vLLM's production-stack, which is not on the package index: its environment is given."""

from __future__ import annotations

import os
import shutil

from bench.path.peer import Peer, Place

FOLDER = "PRODUCTION_STACK"


def find() -> str | None:
    folder = os.environ.get(FOLDER)
    return shutil.which("vllm-router", path=folder) if folder else None


def command(program: str, place: Place) -> list[str]:
    return [
        program, "--host", "127.0.0.1", "--port", str(place.port), "--service-discovery", "static",
        "--static-backends", ",".join(place.urls), "--static-models", ",".join("m" for _ in place.urls),
        "--routing-logic", "prefixaware", "--log-level", "warning",
    ]  # fmt: skip


PRODUCTION_STACK = Peer(
    name="production-stack",
    what="production-stack, routing logic prefixaware",
    get=f"{FOLDER}=BIN names the bin folder of an environment (Python 3.12) with its vllm-router installed from source",
    find=find,
    command=command,
)
