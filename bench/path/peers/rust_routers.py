"""The routers for model servers that are written in Rust and share their flags."""

from __future__ import annotations

from collections.abc import Callable

from bench.path.peer import Peer, Place, in_environment

MOST = 4096  # requests at once, so that none of them waits or is refused


def launched(module: str, policy: str) -> Callable[[str, Place], list[str]]:
    def command(python: str, place: Place) -> list[str]:
        return [
            python, "-m", f"{module}.launch_router", "--host", "127.0.0.1", "--port", str(place.port),
            "--worker-urls", *place.urls, "--policy", policy, "--prometheus-port", str(place.spare_port),
            "--max-concurrent-requests", str(MOST), "--log-level", "error",
        ]  # fmt: skip

    return command


def router(name: str, module: str, policy: str) -> Peer:
    return Peer(
        name=name,
        what=f"{name}, policy {policy}",
        get="make bench-peers",
        find=in_environment(name, "python", installed=name),
        command=launched(module, policy),
    )


VLLM_ROUTER = router("vllm-router", "vllm_router", "consistent_hash")
SGLANG_ROUTER = router("sglang-router", "sglang_router", "cache_aware")
SMG = router("smg", "smg", "cache_aware")
