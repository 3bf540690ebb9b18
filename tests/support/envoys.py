"""A real Envoy with the shipped configuration, changed only in its ports and in what a test is about; the picker that
it asks; and workers that say what they were sent."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.processes import Program, ready_workers, running, until

SHIPPED = Path(__file__).parents[2] / "deploy/envoy/envoy.yaml"
Change = Callable[[dict[str, Any]], None]  # of the whole configuration


class Picker(Program):
    """`address`: of gRPC; `url`: its HTTP side."""

    address: str

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/admin/workers").json()["workers"]
        return found

    def in_flight(self) -> int:
        return sum(worker["in_flight"] for worker in self.workers())


@contextmanager
def picker(workers: list[str], /, *flags: str, ready: int | None = None, **settings: Any) -> Iterator[Picker]:
    """A picker process for these workers, once so many of them are ready."""
    named = [flag for url in workers for flag in ("--worker", url)]
    quiet = {"log.access": "none", "shutdown.grace_seconds": 0}
    started = running("router", "picker", "--http-port", "0", *(flags or ("--port", "0")), *named,
                      settings=quiet | settings)  # fmt: skip
    with started as program:
        found = Picker(program.process, program.url)
        assert program.process.stdout is not None
        line = program.process.stdout.readline()
        assert " picker listening on " in line
        found.address = line.rsplit(" ", 1)[1].strip().partition("//")[2]
        until(lambda: ready_workers(found.url) == (len(workers) if ready is None else ready))
        yield found


@contextmanager
def envoy(folder: Path, asked: Picker | int, workers: list[str], *changes: Change) -> Iterator[str]:
    """The URL that clients use."""
    made = yaml.safe_load(SHIPPED.read_text("utf-8"))
    listener = made["static_resources"]["listeners"][0]
    listener["address"]["socket_address"]["port_value"] = 0
    made["admin"]["address"]["socket_address"]["port_value"] = 0
    ports = [int(url.rsplit(":", 1)[1]) for url in workers]
    cluster(made, "workers")["load_assignment"]["endpoints"] = [{"lb_endpoints": [_endpoint(port) for port in ports]}]
    port = asked if isinstance(asked, int) else asked.port
    cluster(made, "picker")["load_assignment"]["endpoints"] = [{"lb_endpoints": [_endpoint(port)]}]
    for change in changes:
        change(made)
    configuration, admin = folder / "envoy.json", folder / "admin"
    configuration.write_text(json.dumps(made), "utf-8")
    admin.unlink(missing_ok=True)
    command = ["envoy", "--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "--admin-address-path",
               str(admin), "-c", str(configuration)]  # fmt: skip
    process = subprocess.Popen(command, stderr=sys.stderr.fileno() if hasattr(sys.stderr, "fileno") else None)
    try:
        until(lambda: process.poll() is not None or (admin.is_file() and bool(admin.read_text())))
        url = f"http://{admin.read_text()}"
        until(lambda: _gets(f"{url}/ready") == "LIVE")
        until(lambda: isinstance(asked, int) or "healthy::1" in _membership(url))
        [listening] = json.loads(_gets(f"{url}/listeners?format=json"))["listener_statuses"]
        yield f"http://127.0.0.1:{listening['local_address']['socket_address']['port_value']}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _gets(url: str) -> str:
    try:
        return httpx.get(url).text.strip()
    except httpx.TransportError:
        return ""


def _membership(url: str) -> str:
    """`healthy::1` where Envoy's health check has found the picker well."""
    stats = _gets(f"{url}/stats?filter=cluster.picker.membership_healthy")
    return f"healthy::{stats.rpartition(' ')[2]}"


def _endpoint(port: int) -> dict[str, Any]:
    return {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}


def cluster(made: dict[str, Any], name: str) -> dict[str, Any]:
    clusters: list[dict[str, Any]] = made["static_resources"]["clusters"]
    return next(each for each in clusters if each["name"] == name)


def manager(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def processor(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manager(made)["http_filters"][0]["typed_config"]
    return found


def fail_open(made: dict[str, Any]) -> None:
    """As the comment in the shipped file says."""
    [route] = [each for each in manager(made)["route_config"]["virtual_hosts"][0]["routes"]
               if each["name"] == "no-picker"]  # fmt: skip
    del route["direct_response"], route["response_headers_to_add"]
    route["route"] = {"cluster": "workers", "timeout": "0s"}


def any_path(made: dict[str, Any]) -> None:
    """For workers with a base path."""
    manager(made)["route_config"]["virtual_hosts"][0]["routes"][0]["match"]["prefix"] = "/"


def full_duplex(made: dict[str, Any]) -> None:
    """As the Gateway API Inference Extension configures it."""
    mode = processor(made)["processing_mode"]
    mode["request_body_mode"] = mode["response_body_mode"] = "FULL_DUPLEX_STREAMED"
    mode["request_trailer_mode"] = "SEND"


def full_duplex_request(made: dict[str, Any]) -> None:
    """Bodies of requests alone."""
    full_duplex(made)
    processor(made)["processing_mode"]["response_body_mode"] = "NONE"


class Echo(BaseHTTPRequestHandler):
    """Says what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        body = self._body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._say({"path": self.path, "size": len(body), "sha256": hashlib.sha256(body).hexdigest(),
                   "headers": headers, "begin": body[:400].decode("utf-8", "replace")})  # fmt: skip

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _say(self, what: dict[str, Any]) -> None:
        data = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """Nothing is printed."""


@contextmanager
def echoes(count: int) -> Iterator[list[str]]:
    with ExitStack() as stack:
        urls = []
        for _ in range(count):
            server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
            server.daemon_threads = True
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            urls.append(f"http://127.0.0.1:{server.server_address[1]}")
        yield urls
