"""What telling replicas on other machines costs: gateways that share over a Redis against some that do not, in turns.

All gateways share one core, the workers and the load another; the Redis has what is left. Each gateway has connections
of its own, and its load is as much as it can take.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_seconds, free_port, pinned
from bench.processes import CASES, HERE, Gateway, cores_for, measure

FORMS: dict[str, dict[str, str]] = {
    "nothing shared": {},
    "queues of the workers, ten times a second": {"ROUTING__REPLICAS": "2", "SIGNALS__QUEUE_SECONDS": "0.1"},
    "prefixes and load over a Redis": {"SIGNALS__QUEUE_SECONDS": "0"},
}
SHARING = "prefixes and load over a Redis"


def redis_server() -> tuple[subprocess.Popen[bytes], int]:
    if shutil.which("redis-server") is None:
        raise SystemExit("this measures sharing over a Redis and needs redis-server: apt-get install redis-server")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(200):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        time.sleep(0.05)
    process.kill()
    raise RuntimeError("redis-server did not start")


def compare(gateways: int, rounds: int, seconds: float) -> dict[str, Any]:
    ports = [free_port(), free_port()]
    workers = subprocess.Popen(
        pinned(1, [sys.executable, str(HERE / "upstream.py"), *map(str, ports)]), stdout=subprocess.PIPE, text=True
    )
    assert workers.stdout is not None
    workers.stdout.readline()
    redis, redis_port = redis_server()
    forms: dict[str, list[Gateway]] = {name: [] for name in FORMS}
    _, cores = cores_for(gateways + 99)  # one core for all of them
    told: dict[str, Any] = {}
    try:
        for name, given in FORMS.items():
            share = {"SHARE": f"redis://127.0.0.1:{redis_port}/0"} if name == SHARING else {}
            for _ in range(gateways):
                forms[name].append(Gateway(1, ports, cores[0], {**given, **share}))
        time.sleep(1.5)
        for case in list(CASES)[:2]:
            rows: dict[str, list[dict[str, float]]] = {name: [] for name in FORMS}
            for each in forms.values():
                measure(each, CASES[case], 0.5)
            for turn in range(rounds):
                print(f"{case}: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
                for at in range(len(FORMS)):
                    name = list(FORMS)[(at + turn) % len(FORMS)]
                    used = cpu_seconds(redis.pid)
                    row = measure(forms[name], CASES[case], seconds)
                    row["redis_us"] = (cpu_seconds(redis.pid) - used) / (row["rate"] * seconds) * 1e6
                    rows[name].append(row)
            told[case] = {
                name: {key: round(median(run[key] for run in runs), 1) for key in runs[0]}
                for name, runs in rows.items()
            }
    finally:
        for each in forms.values():
            for gateway in each:
                gateway.end()
        for process in (workers, redis):
            process.kill()
            process.wait()
        workers.stdout.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--gateways", type=int, default=2, help="(2)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="a run (1)")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    told = compare(asked.gateways, asked.rounds, asked.seconds)
    if asked.json:
        print(json.dumps(told, indent=2))
        return
    for case, rows in told.items():
        print(f"{case + f', {asked.gateways} gateways':44}{'CPU us':>10}{'requests/s':>12}{'Redis CPU us':>14}")
        for name, row in rows.items():
            print(f"  {name:42}{row['cpu_us']:10.1f}{row['rate']:12.0f}{row['redis_us']:14.2f}")


if __name__ == "__main__":
    main()
