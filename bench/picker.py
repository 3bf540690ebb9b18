"""CPU microseconds per request of the picker and of the Envoy that asks it, with bodies of 2 KB.

A real Envoy with the configuration of deploy/envoy/, a fast upstream, the picker with everything on. Envoy is taken
from PATH or from .cache/envoy/bin (`sh .ci/fetch-envoy.sh`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_seconds, free_port, pinned

HERE = Path(__file__).parent
SHIPPED = HERE.parent / "deploy/envoy/envoy.yaml"
MODES = ("BUFFERED", "FULL_DUPLEX_STREAMED")
EMPTY = "grpcio, no decision"
BODY = b'{"model": "m", "messages": []}'


def found_envoy() -> str:
    there = shutil.which("envoy") or str(HERE.parent / ".cache/envoy/bin/envoy")
    if not Path(there).is_file():
        raise SystemExit("no Envoy in PATH nor in .cache/envoy/bin: sh .ci/fetch-envoy.sh")
    return there


def configured(mode: str, listen: int, picker: int, workers: list[int]) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(SHIPPED.read_text("utf-8"))
    del made["admin"]
    [listener] = made["static_resources"]["listeners"]
    listener["address"]["socket_address"]["port_value"] = listen
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    processing = manager["http_filters"][0]["typed_config"]["processing_mode"]
    processing["request_body_mode"] = mode
    if mode == "FULL_DUPLEX_STREAMED":
        processing["request_trailer_mode"] = "SEND"
    for cluster in made["static_resources"]["clusters"]:
        ports = workers if cluster["name"] == "workers" else [picker]
        places = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports]
        there = [{"endpoint": {"address": place}} for place in places]
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": there}]
    return made


def family(pid: int) -> list[int]:
    """A process and its children: the program `envoy` of a wheel starts the real one."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *map(int, path.read_text().split())] if path.is_file() else [pid]


def started(stack: ExitStack, command: list[str], *, says: bool = False) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE if says else subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGTERM)
    if says:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(f"{' '.join(command)} did not start")
    return process


def answers(port: int) -> bool:
    """Whether a request goes all the way."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", BODY, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def measure(port: int, picker: int, envoy: list[int], seconds: float, connections: int) -> dict[str, float]:
    asked = json.dumps({"port": port, "seconds": seconds, "connections": connections, "size": 2048, "stream": False})
    before = cpu_seconds(picker), sum(map(cpu_seconds, envoy))
    load = pinned(1, [sys.executable, str(HERE / "load.py"), asked])
    answer: dict[str, float] = json.loads(subprocess.run(load, capture_output=True, text=True, check=True).stdout)
    after = cpu_seconds(picker), sum(map(cpu_seconds, envoy))
    answer["picker_us"], answer["envoy_us"] = (
        (end - begin) / answer["requests"] * 1e6 for begin, end in zip(before, after, strict=True)
    )
    return answer


def raised(stack: ExitStack, workers: list[int], *, grpcio: bool) -> dict[str, tuple[int, int, int]]:
    """What is measured: by its name the clients' port, and the processes of its picker and its Envoy."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    started(stack, pinned(1, [sys.executable, str(HERE / "upstream.py"), *map(str, workers)]), says=True)
    named = [flag for each in workers for flag in ("--worker", f"http://127.0.0.1:{each}")]
    port = free_port()
    command = [sys.executable, "-m", "router", "picker", "--port", str(port), *named]
    ours = port, started(stack, pinned(0, command), says=True).pid
    pickers = {mode: (mode, *ours) for mode in MODES}
    if grpcio:
        port = free_port()
        command = [sys.executable, str(HERE / "picker_empty.py"), str(port), f"127.0.0.1:{workers[0]}"]
        pickers[EMPTY] = "BUFFERED", port, started(stack, pinned(0, command), says=True).pid
    fronts = {}
    for name, (mode, port, picker) in pickers.items():
        listen, file = free_port(), folder / f"{len(fronts)}.json"
        file.write_text(json.dumps(configured(mode, listen, port, workers)), "utf-8")
        command = [found_envoy(), "--disable-hot-restart", "--concurrency", "1", "-l", "off", "-c", str(file)]
        fronts[name] = listen, picker, started(stack, pinned(1, command)).pid
    until = time.monotonic() + 30
    while not all(answers(listen) for listen, _, _ in fronts.values()):
        if time.monotonic() > until:
            raise SystemExit("Envoy and the picker did not come up")
        time.sleep(0.1)
    return fronts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="a measurement (3)")
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many (3)")
    parser.add_argument("--connections", type=int, default=64, help="clients (64)")
    parser.add_argument("--grpcio", action="store_true", help="also a picker on grpcio that decides nothing")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    workers = [free_port(), free_port()]
    with ExitStack() as stack:
        fronts = raised(stack, workers, grpcio=asked.grpcio)
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in fronts}
        for turn in range(asked.rounds):
            for name, (listen, picker, envoy) in fronts.items():
                if not asked.json:
                    print(f"round {turn + 1} of {asked.rounds}: {name}", file=sys.stderr, flush=True)
                rows[name].append(measure(listen, picker, family(envoy), asked.seconds, asked.connections))
    medians = {
        name: {key: sorted(run[key] for run in runs)[len(runs) // 2] for key in runs[0]} for name, runs in rows.items()
    }
    if asked.json:
        print(json.dumps(medians, indent=2))
        return
    print(f"{'':24}{'picker us':>11}{'Envoy us':>10}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'errors':>8}")
    for name, row in medians.items():
        rate, p50, p99 = row["requests"] / row["seconds"], row["p50"] * 1e3, row["p99"] * 1e3
        told = f"{row['picker_us']:11.1f}{row['envoy_us']:10.1f}{rate:12.0f}{p50:9.2f}{p99:9.2f}{row['errors']:8.0f}"
        print(f"{name:24}{told}")


if __name__ == "__main__":
    main()
