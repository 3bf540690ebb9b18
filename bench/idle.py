"""Memory of the gateway for each client that is connected and asks nothing: real sockets, its RSS before and after."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_seconds, free_port
from bench.load import SESSIONS, body

AT_ONCE = 200  # that connect or ask at one time
WARM_UP = 1000  # requests before the first look, so that what is loaded and learnt once is not charged to clients
SETTLE_SECONDS, IDLE_SECONDS = 1.0, 3.0
NEEDED = 128  # descriptors beside one a client
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
)
DONE = b"0\r\n\r\n"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def rss(pid: int) -> int:
    """Resident bytes of the process, from the kernel where there is /proc, else from ps."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
    return int(said) * 1024


async def ask(connection: Connection, request: bytes) -> None:
    """One request and its whole answer. The connection stays."""
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the gateway answered {head.splitlines()[0].decode()}")
    if b"transfer-encoding: chunked" in head.lower():
        await reader.readuntil(DONE)
    else:
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)


async def by_turns(count: int, what: Callable[[int], Awaitable[None]]) -> None:
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(what(at) for at in range(first, min(first + AT_ONCE, count))))


class Crowd:
    """The clients, and what the gateway's process holds meanwhile."""

    def __init__(self, port: int, pid: int, clients: int, *, quiet: bool) -> None:
        self.port, self.pid, self.clients, self.quiet = port, pid, clients, quiet
        self.there: list[Connection] = []
        self.before = 0

    async def run(self) -> dict[str, Any]:
        await self._warm_up()
        self.before = rss(self.pid)
        rows: dict[str, Any] = {"clients": self.clients, "before_mb": round(self.before / 1e6, 1)}
        await by_turns(self.clients, self._connect)
        rows["connected_kb"] = await self._each("connected")
        for name, stream in (("json", False), ("stream", True)):
            requests = [HEAD % (len(b), b) for b in (body(s, 2048, stream=stream) for s in range(SESSIONS))]
            await by_turns(self.clients, lambda at, r=requests: ask(self.there[at], r[at % SESSIONS]))  # type: ignore[misc]
            rows[f"after_{name}_kb"] = await self._each(f"after a {name} each")
        began, used = time.monotonic(), cpu_seconds(self.pid)
        await asyncio.sleep(IDLE_SECONDS)
        rows["idle_cpu_percent"] = round((cpu_seconds(self.pid) - used) / (time.monotonic() - began) * 100, 2)
        rows["still_open"] = sum(not reader.at_eof() for reader, _ in self.there)
        await self._close()
        rows["after_closing_kb"] = await self._each("closed")
        return rows

    async def _warm_up(self) -> None:
        await by_turns(AT_ONCE, self._connect)
        for stream in (False, True):
            requests = [HEAD % (len(b), b) for b in (body(s, 2048, stream=stream) for s in range(SESSIONS))]
            for at in range(0, WARM_UP, AT_ONCE):
                await by_turns(AT_ONCE, lambda i, at=at, r=requests: ask(self.there[i], r[(at + i) % SESSIONS]))  # type: ignore[misc]
        await self._close()
        await asyncio.sleep(SETTLE_SECONDS)

    async def _connect(self, _: int) -> None:
        self.there.append(await asyncio.open_connection("127.0.0.1", self.port))

    async def _close(self) -> None:
        for _, writer in self.there:
            writer.close()
        self.there = []

    async def _each(self, what: str) -> float:
        """KB (of 1,000 bytes) more than before, for each client."""
        await asyncio.sleep(SETTLE_SECONDS)
        each = (rss(self.pid) - self.before) / self.clients / 1000
        if not self.quiet:
            print(f"{what}: {each:.1f} KB a client", file=sys.stderr, flush=True)
        return round(each, 2)


def start(port: int) -> list[subprocess.Popen[str]]:
    back = free_port()
    here = Path(__file__).parent
    worker = subprocess.Popen([sys.executable, str(here / "upstream.py"), str(back)], stdout=subprocess.PIPE, text=True)
    gateway = subprocess.Popen(
        [sys.executable, "-m", "router", "serve", "--port", str(port), "--worker", f"http://127.0.0.1:{back}"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=here.parent,
    )  # fmt: skip
    for process in (worker, gateway):
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not start"
    time.sleep(1.0)  # the first probes
    return [gateway, worker]


def enough_descriptors(clients: int) -> None:
    """For the gateway too, which takes over this process's limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < clients + NEEDED:
        raise SystemExit(f"--clients: {clients} need {clients + NEEDED} descriptors and this system allows {hard}: "
                         f"raise it (ulimit -Hn) or take fewer")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000, help="connected at one time (10000)")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    enough_descriptors(asked.clients)
    port = free_port()
    processes = start(port)
    try:
        rows = uvloop.run(Crowd(port, processes[0].pid, asked.clients, quiet=asked.json).run())
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{rows['clients']} clients, {rows['still_open']} of them still open at the end; "
          f"the gateway had {rows['before_mb']} MB before")  # fmt: skip
    print(f"  connected, nothing asked yet      {rows['connected_kb']:6.1f} KB each")
    print(f"  idle after a JSON request         {rows['after_json_kb']:6.1f} KB each")
    print(f"  idle after a stream too           {rows['after_stream_kb']:6.1f} KB each")
    print(f"  all of them closed again          {rows['after_closing_kb']:6.1f} KB each stay with the allocator")
    print(f"  CPU while all are idle            {rows['idle_cpu_percent']:6.2f} % of a core")


if __name__ == "__main__":
    main()
