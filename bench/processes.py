"""What more processes give and cost: a gateway of one process, one of several, and as many that know nothing of each
other, in turns. Each process has the same number of connections.

With cores to spare (one a process, one for the workers, one for the load) each process has a core of its own and
throughput is what counts. With fewer, all processes share one core, and what counts is the CPU that a request takes in
all of them together. Part of that is then the price of taking turns on one core, which processes with cores of their
own do not pay: it is what those apart take more than one. The rest is the price of telling each other.

With `--rate` every process has a core of its own though there are no more, and so many requests a second to answer, be
it one of one or one of several. The load and the workers run where there is room, and nobody waits for a core for long;
what counts is again the CPU that a request takes in the gateway's processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_seconds, free_port, pinned

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = {
    "JSON 2 KB": {"connections": 64, "size": 2048, "stream": False},
    "JSON 32 KB": {"connections": 64, "size": 32768, "stream": False},
    "paced stream of 64 events": {"connections": 64, "size": 2048, "stream": True},
}
IDLE_SECONDS = 3.0


class Gateway:
    """One gateway, with all processes that belong to it. `settings` go in by the environment."""

    def __init__(
        self, processes: int, workers: list[int], cores: list[int], settings: dict[str, str] | None = None
    ) -> None:
        self.processes, self.port = processes, free_port()
        flags = [flag for port in workers for flag in ("--worker", f"http://127.0.0.1:{port}")]
        command = [sys.executable, "-m", "router", "serve", "--port", str(self.port), "--processes", str(processes)]
        on = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        self.process = subprocess.Popen(
            [*on, *command, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HERE.parent,
            env={**os.environ, **{f"PREFIX_ROUTER_{name}": value for name, value in (settings or {}).items()}},
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the gateway did not start"

    def tree(self) -> list[int]:
        """The process that was started, and those that it started."""
        found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in found.splitlines()]
        return [self.process.pid, *(pid for pid, parent in pairs if parent == self.process.pid)]

    def spread(self, cores: list[int]) -> None:
        """Every process that serves on a core of its own, with all its threads; those apart are so from the start."""
        serving = [pid for pid in self.tree()[1:] if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        for pid, core in zip(serving, cores, strict=True):
            subprocess.run(["taskset", "-a", "-c", "-p", str(core), str(pid)], capture_output=True, check=True)

    def used(self) -> float:
        return sum(map(cpu_seconds, self.tree()))

    def memory(self) -> float:
        """MB, what several of them share counted once (proportional set size); 0 where there is no /proc."""
        kb = 0
        for pid in self.tree():
            rollup = Path(f"/proc/{pid}/smaps_rollup")
            if rollup.exists():
                kb += int(next(line for line in rollup.read_text().splitlines() if line.startswith("Pss:")).split()[1])
        return kb * 1024 / 1e6

    def idle(self) -> float:
        """Percent of a core while nobody asks."""
        before, began = self.used(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        return (self.used() - before) / (time.monotonic() - began) * 100

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def cores_for(most: int) -> tuple[bool, list[list[int]]]:
    """Whether every process can have a core of its own, and the gateway's cores for 1, 2, ... processes."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) >= most + 2:  # the second is the load's, the last the workers'
        own = [cores[0], *cores[2:-1]]
        return True, [own[: at + 1] for at in range(most)]
    return False, [cores[:1] if len(cores) > 1 else []] * most


def cores_of_own(most: int) -> tuple[bool, list[list[int]]]:
    """The same where every process shall have a core of its own, though the load and the workers have none then."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < most:
        raise SystemExit(
            f"--rate needs a core for each process: {most} here, and there are {len(cores)} to choose from"
        )
    return True, [cores[: at + 1] for at in range(most)]


def measure(gateways: list[Gateway], case: dict[str, Any], seconds: float) -> dict[str, float]:
    """One run of the load: as many connections for each process, to one gateway of several or to several of one. With
    a `rate` in the case, so many requests a second for each process."""
    ports = [each.port for each in gateways for _ in range(each.processes)]
    before = sum(each.used() for each in gateways)
    loads = []
    for port in ports:
        command = [sys.executable, str(HERE / "load.py"), json.dumps({"port": port, "seconds": seconds, **case})]
        command = command if case.get("rate") else pinned(1, command)
        loads.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    answers = [json.loads(load.communicate()[0]) for load in loads]
    requests, failed = (sum(answer[key] for answer in answers) for key in ("requests", "errors"))
    if failed:
        raise RuntimeError(f"{failed} of {requests} requests failed")
    return {
        "cpu_us": (sum(each.used() for each in gateways) - before) / requests * 1e6,
        "rate": sum(answer["requests"] / answer["seconds"] for answer in answers),
        "p99_ms": max(answer["p99"] for answer in answers) * 1e3,
    }


def compared(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Of each form the medians, and how they compare with one process in the same round."""

    def ratios(key: str, form: str, base: str) -> list[float]:
        found = sorted(run[key] / one[key] for run, one in zip(rows[form], rows[base], strict=True))
        return [round(each, 3) for each in (median(found), found[0], found[-1])]

    told: dict[str, Any] = {}
    for form, runs in rows.items():
        told[form] = {key: round(median(run[key] for run in runs), 1) for key in runs[0]}
        told[form] |= {"cpu_ratio": ratios("cpu_us", form, "1"), "rate_ratio": ratios("rate", form, "1")}
        if f"{form} apart" in rows:
            told[form]["sharing_ratio"] = ratios("cpu_us", form, f"{form} apart")
    return told


def show(told: dict[str, Any]) -> None:
    if told["rate"]:
        print(f"a core for each process, and {told['rate']:g} requests a second")
    else:
        print("a core for each process: " + ("yes" if told["cores_to_spare"] else "no, so compare CPU, not the rate"))
    for name in [name for name in CASES if name in told]:
        print(f"{name:28}{'CPU us':>9}{'requests/s':>12}{'p99 ms':>9}   CPU and rate over one process's (least, most)")
        for form, row in told[name].items():
            (cpu, *cpus), (rate, *rates) = row["cpu_ratio"], row["rate_ratio"]
            print(f"  processes: {form:15}{row['cpu_us']:10.1f}{row['rate']:12.0f}{row['p99_ms']:9.2f}   "
                  f"{cpu:.3f} {cpus}   {rate:.3f} {rates}")  # fmt: skip
            if "sharing_ratio" in row:
                sharing, *least_most = row["sharing_ratio"]
                print(f"  {'':26}of it for telling each other: {sharing:.3f} {least_most}")
    for what in ("idle_percent", "memory_mb"):
        print(f"{what.replace('_', ' '):28}" + "  ".join(f"{count}: {each}" for count, each in told[what].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--processes", default="2", help="compared with one; several with a comma between (2)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="a run (2)")
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second for each process, of JSON only")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    counts = sorted({int(each) for each in asked.processes.split(",")} - {1})
    spare, cores = cores_of_own(max(counts)) if asked.rate else cores_for(max(counts))
    ports = [free_port(), free_port()]
    command = [sys.executable, str(HERE / "upstream.py"), *map(str, ports)]
    if not asked.rate:
        own = sorted(os.sched_getaffinity(0))[-1:] if spare else []
        command = ["taskset", "-c", str(own[0]), *command] if own else pinned(1, command)
    workers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert workers.stdout is not None
    workers.stdout.readline()
    gateways: list[Gateway] = []
    try:
        for core in [[each] for each in cores[-1]] if spare else [cores[0]] * max(counts):
            gateways.append(Gateway(1, ports, core))  # noqa: PERF401 - if a later one fails, these are ended
        alone = list(gateways)
        gateways += (Gateway(count, ports, cores[count - 1]) for count in counts)
        forms = {"1": alone[:1]}
        for count, gateway in zip(counts, gateways[len(alone) :], strict=True):
            forms[f"{count} apart"], forms[str(count)] = alone[:count], [gateway]
        time.sleep(1.5)  # the first probes
        if asked.rate:
            for count, gateway in zip(counts, gateways[len(alone) :], strict=True):
                gateway.spread(cores[count - 1])
        cases = {
            name: {**case, "rate": asked.rate} for name, case in CASES.items() if not (asked.rate and case["stream"])
        }
        told = compare(forms, cases, asked.rounds, asked.seconds)
        told |= {"cores_to_spare": spare, "rate": asked.rate}
    finally:
        for each in gateways:
            each.end()
        workers.kill()
        workers.wait()
        workers.stdout.close()
    if asked.json:
        print(json.dumps(told, indent=2))
    else:
        show(told)


def compare(
    forms: dict[str, list[Gateway]], cases: dict[str, dict[str, Any]], rounds: int, seconds: float
) -> dict[str, Any]:
    whole = {form: gateways[0] for form, gateways in forms.items() if len(gateways) == 1}
    told: dict[str, Any] = {"idle_percent": {form: round(each.idle(), 2) for form, each in whole.items()}}
    order = list(forms)
    for name, case in cases.items():
        rows: dict[str, list[dict[str, float]]] = {form: [] for form in order}
        for gateways in forms.values():
            measure(gateways, case, 0.5)  # what is loaded and learnt once
        for turn in range(rounds):
            print(f"{name}: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
            for at in range(len(order)):  # another one first each time
                form = order[(at + turn) % len(order)]
                rows[form].append(measure(forms[form], case, seconds))
        told[name] = compared(rows)
    told["memory_mb"] = {form: round(each.memory(), 1) for form, each in whole.items()}
    return told


if __name__ == "__main__":
    main()
