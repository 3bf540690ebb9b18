"""A Kubernetes API of EndpointSlices in one namespace, stricter than a real one: whatever a careful client would not do
stands in `faults`. Real HTTP, on threads of its own, so that gateways in this and in other processes may ask it.

It numbers states, forgets old ones when told to (410, as a status or as an event), sends bookmarks, selects by label,
checks tokens, and can be slow, silent, or gone in the middle of a line.
"""

import json
import re
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

NAMESPACE = "models"
SERVICE = "kubernetes.io/service-name"
LIST_KEYS = {"labelSelector"}
WATCH_KEYS = {"labelSelector", "watch", "resourceVersion", "allowWatchBookmarks", "timeoutSeconds"}


def pod(name: str | None, address: str, *, kind: str = "Pod", zone: str | None = None, **conditions: bool) -> Any:
    """An endpoint; ready and serving unless told otherwise."""
    made: dict[str, Any] = {"addresses": [address], "conditions": {"ready": True, "serving": True, **conditions}}
    if name is not None:
        made["targetRef"] = {"kind": kind, "name": name, "namespace": NAMESPACE}
    if zone is not None:
        made |= {"zone": zone, "nodeName": f"node-in-{zone}"}
    return made


def slice_of(
    name: str,
    *pods: Any,
    service: str = "vllm",
    family: str = "IPv4",
    port: int | None = 8000,
    ports: list[dict[str, Any]] | None = None,
    made: str = "2026-01-01T00:00:00Z",
    **labels: str,
) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "creationTimestamp": made, "labels": {SERVICE: service, **labels}
        },
        "addressType": family,
        "endpoints": list(pods) or None,
        "ports": ports if ports is not None else [{"name": "http", "port": port, "protocol": "TCP"}],
    }  # fmt: skip


def selects(selector: str, labels: dict[str, str]) -> bool:
    """As the API reads it; ValueError for what it would not."""
    return all(_holds(term.strip(), labels) for term in re.split(r",(?![^(]*\))", selector))


def _holds(term: str, labels: dict[str, str]) -> bool:
    if among := re.fullmatch(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)", term):
        values = [value.strip() for value in among[3].split(",")]
        return (labels.get(among[1]) in values) is (among[2] == "in")
    if equal := re.fullmatch(r"([^\s!=]+)\s*(==?|!=)\s*([^\s!=]*)", term):
        return (labels.get(equal[1]) == equal[3]) is (equal[2] != "!=")
    if there := re.fullmatch(r"(!?)\s*([A-Za-z0-9./_-]+)", term):
        return (there[2] in labels) is not bool(there[1])
    raise ValueError(term)


class Cut(Exception):
    """A watch breaks here."""


class KubeApi:
    """tokens: those it takes; None: nobody is asked
    refusal: status and headers that every request gets
    only_watches: the refusal is for watches alone
    gone_as_event: a state that is gone is told inside the watch
    slow: seconds before the answer to a list; silent: watches get no further byte
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tokens: set[str] | None = None
        self.refusal: tuple[int, dict[str, str]] | None = None
        self.only_watches = self.gone_as_event = self.silent = False
        self.slow = 0.0
        self.list_body: bytes | None = None  # instead of a list
        self.faults: list[str] = []
        self.lists = self.watches = self.open_watches = self.most_watches = 0
        self.shown: list[str] = []  # tokens, in the order of the requests
        self.agents: set[str] = set()
        self.closing = False
        self.changed = threading.Condition()
        self._slices: dict[str, dict[str, Any]] = {}
        self._version, self._oldest, self._ending = 100, 0, (0, "")
        self._history: list[tuple[int, str, dict[str, Any], dict[str, Any] | None]] = []
        self._handed: set[str] = set()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.api = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True)
        self._thread.start()

    # What the test does.

    def put(self, *slices: dict[str, Any]) -> None:
        """Create or change."""
        with self.changed:
            for each in slices:
                name = each["metadata"]["name"]
                before = self._slices.get(name)
                self._slices[name] = self._numbered(each)
                self._history.append((self._version, "MODIFIED" if before else "ADDED", self._slices[name], before))
            self.changed.notify_all()

    def remove(self, name: str) -> None:
        with self.changed:
            before = self._slices.pop(name)
            self._history.append((self._version + 1, "DELETED", self._numbered(before), before))
            self.changed.notify_all()

    def say(self, kind: str, /, **content: Any) -> None:
        """A line in every watch, whoever selects what: BOOKMARK, ERROR, or what there is not."""
        with self.changed:
            self._version += 1
            told = {"metadata": {"name": "said", "resourceVersion": str(self._version)}, **content}
            self._history.append((self._version, kind, told, None))
            self.changed.notify_all()

    def forget(self) -> None:
        """All states before this one are gone."""
        with self.changed:
            self._version += 1
            self._oldest = self._version

    def end_watches(self, how: str = "end") -> None:
        """`end`: as the API ends them; `drop`: with what is new untold; `cut`: in the middle of a line."""
        with self.changed:
            self._ending = (self._ending[0] + 1, how)
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def _numbered(self, each: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        return {**each, "metadata": {**each["metadata"], "resourceVersion": str(self._version)}}

    # What it answers.

    def listed(self, selector: str) -> dict[str, Any]:
        with self.changed:
            self.lists += 1
            self._handed.add(str(self._version))
            items = [each for each in self._slices.values() if selects(selector, each["metadata"]["labels"])]
            return {
                "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"resourceVersion": str(self._version)},
                "items": [{key: value for key, value in each.items() if key != "kind"} for each in items],
            }  # fmt: skip

    @contextmanager
    def watching(self, version: str) -> Iterator[int]:
        """From before its head is sent until it is over. What endings it has seen."""
        with self.changed:
            self.watches += 1
            self.open_watches += 1
            self.most_watches = max(self.most_watches, self.open_watches)
            if version not in self._handed:
                self.faults.append(f"a watch from {version}, which was never handed out")
            ending = self._ending[0]
        try:
            yield ending
        finally:
            with self.changed:
                self.open_watches -= 1

    def told(self, selector: str, at: int, ending: int, until: float, there: Callable[[], bool]) -> Iterator[bytes]:
        """The lines of a watch after this state, as long as it may last and its client is there. Raises Cut where it is
        to break in the middle of a line."""
        if at < self._oldest:
            yield _line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            return
        while True:
            with self.changed:
                left = until - time.monotonic()
                fresh = [each for each in self._history if each[0] > at and not self.silent]
                if not fresh and left > 0 and self._ending[0] == ending and not self.closing:
                    self.changed.wait(min(left, 0.05))
                    if there():
                        continue
                    return
                how = self._ending[1] if self._ending[0] != ending else ""
                fresh = [] if how == "drop" else fresh
                self._handed.update(str(each[0]) for each in fresh)
            for number, kind, content, before in fresh:
                at = number
                if (line := _seen(selector, kind, content, before)) is not None:
                    yield line
            if how == "cut":
                raise Cut
            if how or self.closing or left <= 0:
                return

    def is_gone(self, version: str) -> bool:
        return not self.gone_as_event and int(version) < self._oldest


def _line(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def _seen(selector: str, kind: str, content: dict[str, Any], before: dict[str, Any] | None) -> bytes | None:
    """The line of this change for who selects so: what no longer fits is told as deleted."""
    if "labels" not in content["metadata"]:
        return _line(kind, content)
    fits = selects(selector, content["metadata"]["labels"])
    fitted = before is not None and selects(selector, before["metadata"]["labels"])
    if not fits and not fitted:
        return None
    kind = "DELETED" if kind == "DELETED" or not fits else "MODIFIED" if fitted else "ADDED"
    return _line(kind, content)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    api: KubeApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is none; anything else is a fault of this API."""
        if not isinstance(wrong := sys.exception(), ConnectionError | TimeoutError | ssl.SSLError):
            self.api.faults.append(f"the API itself failed: {wrong!r}")


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        try:
            self._answer()
        except (ConnectionError, TimeoutError, ssl.SSLError):
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            self.server.api.faults.append(f"{name.removeprefix('do_')}, though it may only get, list and watch")
        raise AttributeError(name)

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        watching = query.get("watch") == "true"
        if watching is not True and self.server.api.slow:
            time.sleep(self.server.api.slow)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("bearer ")
        self.server.api.shown.append(token)
        self.server.api.agents.add(self.headers.get("User-Agent", ""))
        if parts.path != f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices":
            self._refuse(404, "NotFound")
        elif self.server.api.tokens is not None and token not in self.server.api.tokens:
            self._refuse(401, "Unauthorized")
        elif self.server.api.refusal is not None and (watching or not self.server.api.only_watches):
            self._refuse(self.server.api.refusal[0], "Refused", **self.server.api.refusal[1])
        elif wrong := set(query) - (WATCH_KEYS if watching else LIST_KEYS):
            self._fault(f"unknown parameters {wrong}")
        elif "application/json" not in self.headers.get("Accept", ""):
            self._fault("it does not ask for JSON")
        else:
            self._serve(query, watching=watching)

    def _serve(self, query: dict[str, str], *, watching: bool) -> None:
        try:
            selects(query.get("labelSelector", ""), {})
        except ValueError:
            self._refuse(400, "BadRequest")
            return
        if not watching:
            body = json.dumps(self.server.api.listed(query["labelSelector"])).encode()
            self._send(200, body if self.server.api.list_body is None else self.server.api.list_body)
        elif set(query) != WATCH_KEYS or query["allowWatchBookmarks"] != "true":
            self._fault(f"a careless watch: {query}")
        elif not query["timeoutSeconds"].isdecimal() or not query["resourceVersion"].isdecimal():
            self._fault(f"numbers are none: {query}")
        elif self.server.api.is_gone(query["resourceVersion"]):
            self._refuse(410, "Expired")
        else:
            self._stream(query)

    def _stream(self, query: dict[str, str]) -> None:
        api, version = self.server.api, query["resourceVersion"]
        until = time.monotonic() + int(query["timeoutSeconds"])
        with api.watching(version) as ending:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for line in api.told(query["labelSelector"], int(version), ending, until, self._there):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except Cut:
                self.wfile.write(b'10\r\n{"type": "MODIFI\r\n')
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True

    def _there(self) -> bool:
        """A client that watches says nothing more; what can be read is its end."""
        return not select.select([self.connection], [], [], 0)[0]

    def _fault(self, words: str) -> None:
        self.server.api.faults.append(words)
        self._refuse(400, "BadRequest")

    def _refuse(self, status: int, reason: str, **headers: str) -> None:
        said = {"kind": "Status", "status": "Failure", "code": status, "reason": reason}
        self._send(status, json.dumps(said).encode(), **headers)

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def kube_api(tls: ssl.SSLContext | None = None) -> Iterator[KubeApi]:
    """Closed at the end, which says what its clients did wrong."""
    api = KubeApi(tls)
    try:
        yield api
    finally:
        api.close()
    assert api.faults == []


def kubeconfig(folder: Path, url: str, user: dict[str, Any] | None = None, namespace: str | None = NAMESPACE) -> Path:
    """A kubeconfig with one context, `here`, and one that leads nowhere, `elsewhere`."""
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "here",
                "clusters": [
                    {"name": "c", "cluster": {"server": url}},
                    {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}},
                ],
                "users": [{"name": "u", "user": user or {}}],
                "contexts": [
                    {"name": "here", "context": context},
                    {"name": "elsewhere", "context": {**context, "cluster": "nowhere"}},
                ],
            }
        )
    )  # fmt: skip
    return path
