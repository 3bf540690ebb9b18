"""What the page's tests share: a stand-in gateway, a browser without a window, and a reader of what it rendered."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "router/page/index.html"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=2500",  # milliseconds of the page's own time, in which it asks two or three times
)
WORKER = {
    "id": "gpu-1:8000", "url": "http://gpu-1:8000", "state": "ready", "models": ["llama"], "in_flight": 3,
    "outstanding_tokens": 12345,
}  # fmt: skip
DECISION = {
    "age_seconds": 1.5, "request_id": "r1", "worker": "gpu-1:8000", "model": "llama", "reason": "home",
    "key_depth": 256, "prompt_tokens": 2100, "predicted_cached_tokens": 1984, "status": 200,
    "cached_tokens": 2000, "first_token_seconds": 0.0123, "seconds": 0.5,
}  # fmt: skip


class StandIn(ThreadingHTTPServer):
    """A gateway's page and admin paths, as a test wants them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.workers: list[dict[str, Any]] = [WORKER]
        self.decisions: list[dict[str, Any]] = [DECISION]
        self.panic = False
        self.token: str | None = None
        self.status = 200
        self.script = ""
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        shown = self.headers.get("authorization")
        self.server.asked.append((self.path, shown))
        if self.path == "/":
            script = f"<script>{self.server.script}</script></body>"
            self._send(200, "text/html; charset=utf-8", PAGE.read_text("utf-8").replace("</body>", script))
        elif self.server.token is not None and shown != f"Bearer {self.server.token}":
            self._send(403, "application/json", '{"error": {"message": "no", "code": "admin_only"}}')
        elif self.path == "/admin/workers":
            self._json({"workers": self.server.workers, "panic": self.server.panic})
        elif self.path == "/admin/decisions":
            self._json({"decisions": self.server.decisions})
        else:
            self._send(404, "text/plain", "")

    def _json(self, value: object) -> None:
        self._send(self.server.status, "application/json", json.dumps(value))

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Seen(HTMLParser):
    """The rendered page: table cells by table id, text by element id, and every element that is hidden."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, str] = {}
        self.hidden: set[str] = set()
        self._table = ""
        self._open: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        name = given.get("id") or ""
        if "hidden" in given:
            self.hidden.add(name)
        if tag == "table":
            self._table = name
            self.tables[name] = []
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        if tag not in ("meta", "link", "input"):
            self._open.append((tag, name))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        for _, name in self._open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data
        if "td" in tags or "th" in tags:
            self.tables[self._table][-1][-1] += data


def browse(url: str, home: Path) -> Seen:
    program = shutil.which("chromium")
    assert program is not None
    command = [program, *FLAGS, f"--user-data-dir={home}", "--dump-dom", url]
    return Seen(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
