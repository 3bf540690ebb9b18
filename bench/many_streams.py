"""Thousands of streams at once through one gateway process, every event numbered and checked at the client."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import httptools
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import upstream
from bench.cpu import cpu_seconds, free_port
from bench.idle import HEAD, enough_descriptors, rss
from bench.load import SESSIONS, body

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%d/%d/%.6f/' + b"z" * 120 + b'"}}]}\n\n'
SEEN = re.compile(rb'data: \{"choices":\[\{"index":0,"delta":\{"content":"(\d+)/(\d+)/([\d.]+)/z{120}"\}\}\]\}\n\n')
DONE = b"data: [DONE]\n\n"
ASKED = re.compile(rb'"seed":(\d+),"n":(\d+),"pace":([\d.]+)\}$')
RAMP_SECONDS = 2.0
PATIENCE = 60.0  # seconds beyond what the streams themselves take


# The worker, in a process of its own. Its clock is the client's: CLOCK_MONOTONIC is one for all processes of a machine.


class Numbered(upstream.Worker):
    """Streams events that carry the request's own number, their own, and when they were sent."""

    def on_message_complete(self) -> None:
        asked = ASKED.search(b"".join(self.body))
        if asked is None:
            super().on_message_complete()
            return
        self.transport.write(upstream.HEAD)
        self.event(int(asked[1]), 0, int(asked[2]), float(asked[3]), self.loop.time())

    def event(self, stream: int, number: int, events: int, pace: float, began: float) -> None:
        if self.transport.is_closing():
            return
        if number == events:
            self.transport.write(upstream.LAST)
            return
        data = EVENT % (stream, number, time.monotonic())
        self.transport.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.loop.call_at(began + (number + 1) * pace, self.event, stream, number + 1, events, pace, began)


async def work(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Numbered, "127.0.0.1", port, backlog=4096)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


# The client.


class Tally:
    """What all streams together received."""

    def __init__(self) -> None:
        self.open = self.most_open = self.events = self.whole = 0
        self.faults: list[str] = []
        self.delays: list[float] = []


class Stream(asyncio.Protocol):
    def __init__(self, number: int, events: int, request: bytes, tally: Tally) -> None:
        self.number, self.events, self.request, self.tally = number, events, request, tally
        self.parser = httptools.HttpResponseParser(self)
        self.rest = b""
        self.next = 0
        self.ended = self.counted = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if self.parser.get_status_code() == 200:
            self.counted = True
            self.tally.open += 1
            self.tally.most_open = max(self.tally.most_open, self.tally.open)

    def on_body(self, data: bytes) -> None:
        now, text, at = time.monotonic(), self.rest + data, 0
        while (found := SEEN.match(text, at)) is not None:
            if (int(found[1]), int(found[2])) != (self.number, self.next):
                self.fault(f"event {found[2].decode()} of stream {found[1].decode()} where {self.next} was due")
            self.tally.delays.append(now - float(found[3]))
            self.tally.events += 1
            self.next = int(found[2]) + 1
            at = found.end()
        self.rest = text[at:]

    def on_message_complete(self) -> None:
        self.ended = True
        status = self.parser.get_status_code()
        if status != 200:
            self.fault(f"status {status}")
        elif self.next != self.events or self.rest != DONE:
            self.fault(f"ended after event {self.next} of {self.events} with {self.rest[:60]!r}")
        else:
            self.tally.whole += 1
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended:
            self.fault(f"cut after event {self.next} of {self.events}")
        self.tally.open -= self.counted
        if not self.over.done():
            self.over.set_result(None)

    def fault(self, what: str) -> None:
        self.tally.faults.append(f"stream {self.number}: {what}")


async def measure(port: int, pid: int, streams: int, events: int, pace: float) -> dict[str, Any]:
    tally = Tally()
    await all_of(port, 50, 5, 0.01, Tally(), ramp=0.1)  # so that what is loaded and learnt once is not counted
    before, used, began = rss(pid), cpu_seconds(pid), time.monotonic()
    running = asyncio.create_task(all_of(port, streams, events, pace, tally, ramp=RAMP_SECONDS))
    peak = 0
    while not running.done():
        peak = max(peak, rss(pid))
        await asyncio.wait([running], timeout=0.25)
    await running
    tally.delays.sort()
    seconds, used = time.monotonic() - began, cpu_seconds(pid) - used
    delays = tally.delays or [0.0]
    return {
        "streams": streams, "open_at_one_time": tally.most_open, "whole": tally.whole,
        "events": tally.events, "expected_events": streams * events, "faults": tally.faults[:10],
        "seconds": round(seconds, 1), "events_a_second": round(tally.events / seconds),
        "cpu_us_an_event": round(used / max(tally.events, 1) * 1e6, 1), "cpu_percent": round(used / seconds * 100, 1),
        "delay_ms": {f"p{share}": round(delays[min(int(len(delays) * share / 100), len(delays) - 1)] * 1e3, 1)
                     for share in (50, 99, 100)},
        "kb_a_stream": round((peak - before) / streams / 1000, 1),
    }  # fmt: skip


async def all_of(port: int, streams: int, events: int, pace: float, tally: Tally, *, ramp: float) -> None:
    loop, there = asyncio.get_running_loop(), []
    for at in range(streams):
        asked = body(at % SESSIONS, 2048, stream=True)[:-1] + b',"seed":%d,"n":%d,"pace":%f}' % (at, events, pace)
        request = HEAD % (len(asked), asked)
        _, stream = await loop.create_connection(partial(Stream, at, events, request, tally), "127.0.0.1", port)
        there.append(stream)
        await asyncio.sleep(ramp / streams)
    await asyncio.wait_for(asyncio.gather(*(stream.over for stream in there)), events * pace + PATIENCE)


def start(port: int) -> list[subprocess.Popen[str]]:
    back = free_port()
    worker = subprocess.Popen([sys.executable, __file__, "--worker", str(back)], stdout=subprocess.PIPE, text=True)
    gateway = subprocess.Popen(
        [sys.executable, "-m", "router", "serve", "--port", str(port), "--worker", f"http://127.0.0.1:{back}"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    for process in (worker, gateway):
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not start"
    time.sleep(1.0)  # the first probes
    return [gateway, worker]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2000, help="at one time (2000)")
    parser.add_argument("--events", type=int, default=100, help="of each (100)")
    parser.add_argument("--pace", type=float, default=0.1, help="seconds between two of a stream's events (0.1)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    enough_descriptors(2 * asked.streams)
    if asked.worker is not None:
        uvloop.run(work(asked.worker))
        return
    port = free_port()
    processes = start(port)
    try:
        row = uvloop.run(measure(port, processes[0].pid, asked.streams, asked.events, asked.pace))
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    if asked.json:
        print(json.dumps(row, indent=2))
    else:
        print(f"{row['whole']} of {row['streams']} streams whole, {row['open_at_one_time']} open at one time; "
              f"{row['events']} of {row['expected_events']} events, {row['events_a_second']} a second")  # fmt: skip
        for fault in row["faults"]:
            print(f"  {fault}")
        print(f"  {row['cpu_us_an_event']} us of CPU an event ({row['cpu_percent']} % of a core), "
              f"{row['kb_a_stream']} KB a stream")  # fmt: skip
        print("  from the worker to the client: " + ", ".join(f"{p} {ms} ms" for p, ms in row["delay_ms"].items()))
    if row["whole"] != row["streams"] or row["events"] != row["expected_events"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
