"""One run: the load against one proxy, the proxy's CPU time between the load's two marks, the upstream's own count."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from bench.load import body
from bench.path import machine, requests
from bench.path.cases import Case
from bench.path.child import Child
from bench.path.machine import Used

DRAIN_SECONDS = 20.0  # as the load waits for what still runs at its end
SLACK_SECONDS = 20.0


class LoadFailedError(Exception):
    """The load generator ended without a result."""


@dataclass(frozen=True)
class Run:
    """What one run counted. `cpu_us`: a request's, or an event's of a stream; None where there is no proxy.

    `cpu_share`: of one core. `waited`: the share of the time in which a thread of the proxy could have run, but
    something else had its core. `errors`: by kind. `uncounted`: requests that the upstream got beyond those that were
    answered: repeats by the proxy, or, below zero, answers that no worker gave.
    """

    peer: str
    case: str
    round: int
    requests: int
    events: int
    seconds: float
    cpu_us: float | None
    cpu_share: float | None
    waited: float | None
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    resident: int | None
    errors: dict[str, int]
    reconnects: int
    uncounted: int

    @property
    def requests_a_second(self) -> float:
        return self.requests / self.seconds


def counts(port: int) -> dict[str, int]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/counts")
        found: dict[str, int] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return found


@dataclass(frozen=True)
class Rig:
    """What every run needs: the load's program, its core, the upstream's port that tells its counts, and a folder."""

    load: Path
    core: list[int]
    upstream: int
    folder: Path
    seconds: float
    warm: float

    def run(self, case: Case, port: int, child: Child | None, peer: str, turn: int) -> Run:
        """Raises LoadFailedError."""
        before = counts(self.upstream)
        found, used, resident = self._load(case, port, child)
        sent = counts(self.upstream)["requests"] - before["requests"]
        seconds, units = found["seconds"], found["events"] if case.stream else found["requests"]
        return Run(
            peer=peer,
            case=case.name,
            round=turn,
            requests=found["requests"],
            events=found["events"],
            seconds=seconds,
            cpu_us=used.ran / units * 1e6 if used and units else None,
            cpu_share=used.ran / seconds if used else None,
            waited=used.waited / seconds if used else None,
            p50_us=found["p50_us"],
            p90_us=found["p90_us"],
            p99_us=found["p99_us"],
            max_us=found["max_us"],
            resident=resident,
            errors={kind: count for kind, count in found["errors"].items() if count},
            reconnects=found["reconnects"],
            uncounted=sent - found["all"]["requests"],
        )

    def _load(self, case: Case, port: int, child: Child | None) -> tuple[dict[str, Any], Used | None, int | None]:
        seconds = self.seconds * case.times
        file = requests.write(self.folder, case)
        times = [str(round(1000 * each)) for each in (self.warm, seconds)]
        command = [str(self.load), str(port), str(case.connections), *times, str(case.events), str(file)]
        load = Child(command, self.core, self.folder / "load.log", talks=True)
        patience = threading.Timer(self.warm + seconds + DRAIN_SECONDS + SLACK_SECONDS, load.kill)
        patience.start()
        try:
            assert load.process.stdout is not None
            pids = child.pids if child is not None else []
            begun = load.process.stdout.readline()
            before = machine.used(pids)
            load.process.stdout.readline()
            used = machine.used(pids).since(before)
            resident = machine.resident_bytes(pids)
            said = load.process.stdout.readline()
        finally:
            patience.cancel()
            load.kill()
        if not begun or not said:
            raise LoadFailedError(" ".join(load.last_lines()) or "it took too long")
        return json.loads(said), used if pids else None, resident if pids else None


def answers(port: int) -> str | None:
    """What is wrong with the answers at this port, or None: a chat with JSON and one as a stream are asked for."""
    for stream, expected in ((False, b'"usage"'), (True, b"data: [DONE]")):
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            headers = {"content-type": "application/json", "x-session-id": "session-0"}
            connection.request("POST", "/v1/chat/completions", body(0, 2048, stream=stream), headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as wrong:
            return repr(wrong)
        finally:
            connection.close()
        if answer.status != 200 or expected not in text:
            return f"status {answer.status}: {text[:200].decode(errors='replace')}"
    return None
