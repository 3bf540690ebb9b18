"""CPU microseconds of the gateway per request, with everything on but the access log's disk."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = {
    "JSON 2 KB": {"connections": 64, "size": 2048, "stream": False},
    "JSON 32 KB": {"connections": 64, "size": 32768, "stream": False},
    "JSON 2 KB, one connection": {"connections": 1, "size": 2048, "stream": False},
    "paced stream of 64 events": {"connections": 64, "size": 2048, "stream": True},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pinned(core: int, command: list[str]) -> list[str]:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return ["taskset", "-c", str(cores[core]), *command] if len(cores) > 1 else command


def cpu_seconds(pid: int) -> float:
    """What the process has used: from the kernel's run time where there is /proc, else from ps."""
    tasks = Path(f"/proc/{pid}/task")
    if tasks.is_dir():
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    said = subprocess.run(["ps", "-o", "cputime=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
    minutes, seconds = said.strip().rsplit(":", 2)[-2:]
    return int(minutes) * 60 + float(seconds)


def measure(case: dict[str, Any], port: int, pid: int, seconds: float) -> dict[str, float]:
    asked = json.dumps({"port": port, "seconds": seconds, **case})
    before = cpu_seconds(pid)
    load = pinned(1, [sys.executable, str(HERE / "load.py"), asked])
    said = subprocess.run(load, capture_output=True, text=True, check=True).stdout
    answer: dict[str, float] = json.loads(said)
    answer["cpu_us"] = (cpu_seconds(pid) - before) / answer["requests"] * 1e6
    return answer


def start(ports: list[int], port: int) -> list[subprocess.Popen[str]]:
    upstream = subprocess.Popen(
        pinned(1, [sys.executable, str(HERE / "upstream.py"), *map(str, ports)]), stdout=subprocess.PIPE, text=True
    )
    workers = [flag for each in ports for flag in ("--worker", f"http://127.0.0.1:{each}")]
    gateway = subprocess.Popen(
        pinned(0, [sys.executable, "-m", "router", "serve", "--port", str(port), *workers]),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    for process in (upstream, gateway):
        assert process.stdout is not None
        process.stdout.readline()
    time.sleep(1.0)  # the first probes
    return [gateway, upstream]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="a case (3)")
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many (3)")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    port = free_port()
    processes = start([free_port(), free_port()], port)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    try:
        for turn in range(asked.rounds):
            for name, case in CASES.items():
                if not asked.json:
                    print(f"round {turn + 1} of {asked.rounds}: {name}", file=sys.stderr, flush=True)
                rows[name].append(measure(case, port, processes[0].pid, asked.seconds))
    finally:
        for process in processes:
            process.kill()
    medians = {
        name: {key: sorted(r[key] for r in runs)[len(runs) // 2] for key in runs[0]} for name, runs in rows.items()
    }
    if asked.json:
        print(json.dumps(medians, indent=2))
        return
    print(f"{'':28}{'CPU us':>9}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'errors':>8}")
    for name, row in medians.items():
        rate, p50, p99 = row["requests"] / row["seconds"], row["p50"] * 1e3, row["p99"] * 1e3
        print(f"{name:28}{row['cpu_us']:9.1f}{rate:12.0f}{p50:9.2f}{p99:9.2f}{row['errors']:8.0f}")


if __name__ == "__main__":
    main()
