"""A gateway of several processes, asked over a connection of its own each time, so that any process may answer."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.processes import Program, gateway, mock_workers, until

CHAT = "/v1/chat/completions"
NO_REUSE = httpx.Limits(max_keepalive_connections=0)
CLIENT = httpx.Client(limits=NO_REUSE, timeout=30, trust_env=False)  # each request has a connection of its own
ASKS = 24  # over as many connections; that all of them reach one of two processes is one chance in millions


class Several:
    def __init__(self, program: Program, workers: list[Program]) -> None:
        self.program, self.workers = program, workers

    @property
    def url(self) -> str:
        return self.program.url

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request on a fresh connection."""
        return CLIENT.request(method, self.url + path, **more)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ready(self) -> int:
        """Workers that the process which answers finds ready."""
        return int(self.ask("GET", "/readyz").json()["workers_ready"])

    def chat(self, text: str = "hi", **more: Any) -> httpx.Response:
        body = {"model": "mock-model", "messages": [{"role": "user", "content": text}], "max_tokens": 1, **more}
        return self.ask("POST", CHAT, json=body)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("/admin/processes")["processes"]
        return rows

    def pids(self) -> list[int]:
        return [row["pid"] for row in self.rows()]

    def everywhere(self, holds: Callable[[], bool]) -> bool:
        """Whichever processes are asked."""
        return all(holds() for _ in range(ASKS))

    def states(self) -> dict[str, str]:
        return {row["id"]: row["state"] for row in self.get("/admin/workers")["workers"]}

    def metrics(self) -> dict[str, float]:
        text = self.ask("GET", "/metrics").text
        lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def in_flight(self) -> float:
        return sum(value for name, value in self.metrics().items() if name.startswith("prefix_router_in_flight{"))

    def end(self) -> int:
        self.program.process.send_signal(signal.SIGTERM)
        return self.program.process.wait(timeout=30)


@contextmanager
def several(workers: int = 2, *flags: str, processes: int = 2, **settings: Any) -> Iterator[Several]:
    """So many processes before so many mock workers, once all processes see all workers ready."""
    with mock_workers(workers, *flags) as mocks:
        urls = [mock.url for mock in mocks]
        with gateway(urls, "--processes", str(processes), **settings) as program:
            found = Several(program, mocks)
            until(lambda: found.everywhere(lambda: found.ready() == workers))
            pids = found.pids()
            try:
                yield found
            finally:
                for pid in [] if program.process.poll() is not None else pids:
                    if alive(pid):  # where a test failed half way
                        os.kill(pid, signal.SIGKILL)


class Streaming:
    """A client in a thread of its own that reads one stream to its end."""

    def __init__(self, front: Several, tokens: int) -> None:
        self.data = b""
        self.cut = False
        self._front, self._tokens = front, tokens
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: b"data:" in self.data)

    def _read(self) -> None:
        messages = [{"role": "user", "content": "hi"}]
        body = {"model": "mock-model", "messages": messages, "stream": True, "max_tokens": self._tokens}
        try:
            with CLIENT.stream("POST", self._front.url + CHAT, json=body) as answer:
                for piece in answer.iter_raw():
                    self.data += piece
        except httpx.HTTPError:
            self.cut = True

    def end(self) -> bool:
        """Wait for it; whether it ended as streams end."""
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        return not self.cut and self.data.endswith(b"data: [DONE]\n\n")


def alive(pid: int) -> bool:
    """It runs; one that has ended and was not waited for does not."""
    said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(said) and not said.startswith("Z")
