"""`prefix-worker medusa` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
PATIENCE = 100.0


class Process:
    """A worker in a process of its own; what it writes to stderr is read all the time."""

    def __init__(self, *flags: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "backends", "medusa", "--port", "0", *flags],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self.popen.stdout is not None
        self.err: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.line = self.popen.stdout.readline()
        self.http = httpx.Client(base_url=self.line.split()[-1] if self.line else "", timeout=PATIENCE, trust_env=False)

    def _read(self) -> None:
        assert self.popen.stderr is not None
        self.err.extend(self.popen.stderr)

    def until_loaded(self) -> "Process":
        while self.http.get("/health").status_code != 200:
            assert self.popen.poll() is None, self.err
            time.sleep(0.05)  # it has the core for itself meanwhile
        return self

    def chat(self, text: str, **fields: Any) -> Any:
        body = {"messages": [{"role": "user", "content": text}], **fields}
        return self.http.post("/v1/chat/completions", json=body).json()

    def stream(self, text: str, **fields: Any) -> Iterator[str]:
        """The texts of a streamed chat, as they come."""
        body = {"messages": [{"role": "user", "content": text}], "stream": True, **fields}
        with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        yield choice["delta"].get("content", "")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit status, and what was written to stdout after the first line, and to stderr."""
        self.http.close()
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        status = self.popen.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        with self.popen.stdout, self.popen.stderr:
            return status, self.popen.stdout.read(), "".join(self.err)


@contextmanager
def process(*flags: str) -> Iterator[Process]:
    worker = Process(*flags)
    try:
        yield worker
    finally:
        assert worker.popen.stdout is not None
        if not worker.popen.stdout.closed:
            worker.end(signal.SIGKILL)
