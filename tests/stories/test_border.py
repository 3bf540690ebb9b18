"""The border towards clients: what they may take of time and bytes, TLS, descriptors, and pages in browsers."""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from tests.support.client import CHAT, STREAM, Client, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.processes import running
from tests.support.worker import DONE, event, reply, stream

CHUNKED = [("Transfer-Encoding", "chunked")]


# Time.


async def trickle(client: Client, pieces: list[bytes], gap: float) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):
        for piece in pieces:
            await client.send(piece)
            await asyncio.sleep(gap)


@pytest.mark.parametrize("framing", ["length", "chunked", "extension"])
async def test_a_body_that_trickles_is_given_up_in_the_end(
    stage: Stage, framing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece is in time, and all of them together would hold the request for ever."""
    if framing == "extension" and not stage.fast:
        return  # plain uvicorn tells nobody of an extension's bytes; the time between two pieces stands there
    monkeypatch.setattr("router.proxy.guard.PATIENCE", 1.0)
    monkeypatch.setattr("router.proxy.asgi.PATIENCE", 1.0)
    worker = await stage.worker()
    running = await stage.gateway(worker, timeouts={"client_read_seconds": 1.0})
    client = await stage.client(running)
    head = post(b"", length=1_000_000) if framing == "length" else post(b"", headers=CHUNKED)
    piece = {"length": b"x", "chunked": b"1\r\nx\r\n", "extension": b"y"}[framing]
    await client.send(head + (b"1;" if framing == "extension" else b""))
    task = asyncio.ensure_future(trickle(client, [piece] * 200, 0.05))
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [event.status for event in running.finished] == [408]
    assert worker.requests == []


async def test_a_body_that_is_slow_but_steady_arrives(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a kilobyte a second nobody is hurried."""
    monkeypatch.setattr("router.proxy.guard.PATIENCE", 0.2)
    monkeypatch.setattr("router.proxy.asgi.PATIENCE", 0.2)
    worker = await stage.worker()
    running = await stage.gateway(worker, timeouts={"client_read_seconds": 1.0})
    client = await stage.client(running)
    body = b'{"model": "m", "prompt": "' + b"a" * 40_000 + b'"}'
    request = post(body)
    await client.send(*[request[at : at + 4000] for at in range(0, len(request), 4000)], gap=0.1)
    assert (await client.answer()).status == 200
    assert worker.bodies == [body]


async def test_a_client_that_reads_nothing_lets_its_worker_go(stage: Stage) -> None:
    endless = stream(*[b"data: " + b"x" * 65_000 + b"\n\n"] * 500)
    worker = await stage.worker(answer=endless)
    running = await stage.gateway(worker, timeouts={"client_write_seconds": 0.5})
    client = await stage.client(running, receive_buffer=4096)
    await client.send(post(STREAM))
    assert (await client.head()).status == 200
    await eventually(lambda: worker.aborted == 1, "it holds its worker")
    await eventually(lambda: running.finished)
    assert (running.finished[0].status, running.finished[0].cancelled_in) == (499, "streaming")


@pytest.mark.parametrize("count", [256, 300])
async def test_header_fields_are_counted(stage: Stage, count: int) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    headers = [(f"X-{at}", "1") for at in range(count - 3)]  # there are three more
    answer = await ask(running.port, post(headers=headers))
    if count <= 256:
        assert answer.status == 200
    else:
        assert (answer.status, answer.code, answer.one("connection")) == (431, "headers_too_large", "close")
        assert worker.requests == []


async def test_the_plain_endpoint_bounds_headers_too(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), limits={"header_bytes": 5000})
    for request in (post(headers=[("X-A", "a" * 6000)]), get("/v1/models", "X-A: " + "a" * 6000)):
        answer = await ask(running.port, request)
        assert (answer.status, answer.code) == (431, "headers_too_large")
    assert [event.status for event in running.finished] == [431, 431]


# Descriptors.


FEW = """
import resource, sys
from router.cli import main
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
sys.argv = ["prefix-router", "serve", "--port", "0"]
main()
"""


@pytest.mark.parametrize("proxied", [False, True], ids=["plain", "proxied"])
async def test_where_descriptors_are_few_clients_wait_at_the_door_and_are_let_in_as_others_leave(proxied: bool) -> None:
    listen = {"PREFIX_ROUTER_LISTEN__TRUSTED_PROXIES": "[192.0.2.0/24]", "PREFIX_ROUTER_LISTEN__PROXY_PROTOCOL": "true"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FEW, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | (listen if proxied else {}) | {"PREFIX_ROUTER_LOG__ACCESS": "none"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    crowd: list[Client] = []
    try:
        port = int((await process.stdout.readline()).rpartition(b":")[2])
        crowd += [await Client.connect(port) for _ in range(100)]
        late = asyncio.create_task(ask(port, get("/healthz")))
        await asyncio.sleep(0.3)
        assert not late.done(), "more were let in than there are descriptors for"
        for client in crowd:
            await client.close()
        assert (await asyncio.wait_for(late, 20)).status == 200
    finally:
        for client in crowd:
            await client.close()
        process.terminate()
        rest = await process.stderr.read()
        await process.wait()
    assert b"Traceback" not in rest
    assert process.returncode == 0


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Pair:
    """The files that a gateway listens with."""

    def __init__(self, folder: Path, made: Certificates) -> None:
        self.certificate, self.key, self._made = folder / "tls.pem", folder / "tls.key", made
        self.become("server")

    def become(self, certificate: str, key: str | None = None) -> None:
        for path, name in ((self.certificate, f"{certificate}.pem"), (self.key, f"{key or certificate}.key")):
            fresh = path.with_suffix(".new")
            shutil.copy(self._made.file(name), fresh)
            fresh.replace(path)

    def settings(self) -> dict[str, str]:
        return {"certificate": str(self.certificate), "key": str(self.key)}


@pytest.fixture
def pair(tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr("router.proxy.doors.LOOK_AT_FILES", 0.05)
    return Pair(tmp_path, certificates)


async def connected(running: Running, context: ssl.SSLContext, before: bytes = b"") -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    if before:
        writer.write(before)
    await writer.start_tls(context, server_hostname="localhost")
    return Client(reader, writer)


@contextlib.asynccontextmanager
async def served(stage: Stage, pair: Pair, **settings: object) -> AsyncIterator[Running]:
    """A gateway with TLS; at its end it is stopped, since what the stage asks of others is asked without TLS."""
    listen = {"tls": pair.settings(), **settings.pop("listen", {})}  # type: ignore[dict-item]
    running = await stage.gateway(await stage.worker(), listen=listen, **settings)
    try:
        yield running
        assert not running.house.busy_connections()
    finally:
        for client in stage.clients:
            await client.close()
        await running.stop()


def trusting(certificates: Certificates, authority: str = "ca") -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificates.file(f"{authority}.pem"))


@pytest.mark.system("openssl")
async def test_a_new_certificate_is_taken_without_dropping_anybody(
    stage: Stage, pair: Pair, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(stage, pair) as running:
        old, new = trusting(certificates), trusting(certificates, "strange-ca")
        kept = await connected(running, old)
        assert (await kept.ask()).status == 200
        with pytest.raises(ssl.SSLError):
            await connected(running, new)
        pair.become("strange-server")

        async def taken() -> Client:
            while True:
                try:
                    return await connected(running, new)
                except ssl.SSLError:
                    await asyncio.sleep(0.05)

        client = await asyncio.wait_for(taken(), 10)
        assert (await client.ask()).status == 200
        assert (await kept.ask()).status == 200, "the connection from before goes on"
        with pytest.raises(ssl.SSLError):
            await connected(running, old)
        for each in (client, kept):
            await each.close()


@pytest.mark.system("openssl")
@pytest.mark.parametrize("bad", ["no pair", "no certificate", "gone"])
async def test_a_bad_certificate_keeps_the_old_one_and_is_told_once(
    stage: Stage, pair: Pair, certificates: Certificates, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    async with served(stage, pair) as running:
        if bad == "no pair":
            pair.become("server", "client")
        elif bad == "no certificate":
            pair.certificate.write_text("s3cret, half written")
        else:
            pair.key.unlink()
        await eventually(lambda: "the old one stays" in caplog.text)
        await asyncio.sleep(0.3)
        assert caplog.text.count("the old one stays") == 1
        assert "s3cret" not in caplog.text
        client = await connected(running, trusting(certificates))
        assert (await client.ask()).status == 200
        await client.close()


@pytest.mark.system("openssl")
async def test_old_tls_is_not_spoken(stage: Stage, pair: Pair, certificates: Certificates) -> None:
    async with served(stage, pair) as running:
        context = trusting(certificates)
        context.set_alpn_protocols(["h2", "http/1.1"])
        client = await connected(running, context)
        found = client._writer.get_extra_info("ssl_object")
        assert (found.version(), found.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
        await client.close()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLS"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLS"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connected(running, context)


@pytest.mark.system("openssl")
async def test_a_handshake_that_never_ends_is_given_up(stage: Stage, pair: Pair) -> None:
    async with served(stage, pair, timeouts={"client_read_seconds": 0.5}) as running:
        for said in (b"", b"\x16\x03\x01\x02\x00\x01"):
            client = await stage.client(running)
            await client.send(said)
            assert await client.closed() == b""
        assert running.server.server_state.connections == set()


@pytest.mark.system("openssl")
async def test_what_is_no_tls_is_closed(stage: Stage, pair: Pair) -> None:
    async with served(stage, pair) as running:
        client = await stage.client(running)
        await client.send(post())
        await client.closed()
        assert running.finished == []


@pytest.mark.system("openssl")
async def test_a_proxys_header_comes_before_the_handshake(stage: Stage, pair: Pair, certificates: Certificates) -> None:
    listen = {"trusted_proxies": ["127.0.0.0/8"], "proxy_protocol": True}
    async with served(stage, pair, listen=listen, timeouts={"client_read_seconds": 2.0}) as running:
        line = b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 443\r\n"
        client = await connected(running, trusting(certificates), line)
        for _ in range(2):
            assert (await client.ask()).status == 200
            assert running.finished[-1].client == "203.0.113.9"
        await client.close()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connected(running, trusting(certificates))


@pytest.mark.system("openssl")
async def test_an_idle_tls_client_does_not_hold_up_the_stop(stage: Stage, pair: Pair) -> None:
    """It neither reads nor answers the goodbye."""
    async with served(stage, pair) as running:
        code = f"""
import socket, ssl, sys
context = ssl._create_unverified_context()
client = context.wrap_socket(socket.create_connection(("127.0.0.1", {running.port})))
print("here", flush=True)
sys.stdin.read()
"""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"here\n"
        await eventually(lambda: running.server.server_state.connections)
        for connection in list(running.server.server_state.connections):
            connection.shutdown()
        await eventually(lambda: not running.server.server_state.connections, "it holds up the stop")
        process.kill()
        await process.wait()


@pytest.mark.system("openssl")
@pytest.mark.parametrize("proxied", [False, True], ids=["plain", "proxied"])
def test_neither_idle_nor_half_open_tls_clients_hold_up_the_end(certificates: Certificates, proxied: bool) -> None:
    """Less than the handshake may take, and than asyncio would wait for a goodbye."""
    tls = {"listen.tls.certificate": certificates.file("server.pem"), "listen.tls.key": certificates.file("server.key")}
    behind = {"listen.trusted_proxies": ["127.0.0.1"], "listen.proxy_protocol": True} if proxied else {}
    quick = {"shutdown.grace_seconds": 0, "timeouts.client_read_seconds": 100}
    with running("router", "serve", "--port", "0", settings={**tls, **behind, **quick}) as program:
        port = int(program.url.rpartition(":")[2])
        half, idle = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
        if proxied:
            half.send(b"PROXY UNK")
            idle.send(b"PROXY UNKNOWN\r\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with half, context.wrap_socket(idle):
            assert program.stop() == 0


# Pages in browsers.


PAGE, OTHER = "https://app.example", "https://other.example"
ORIGIN = ("Origin", PAGE)
ASKS = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type")


def preflight(path: str = CHAT, origin: str = PAGE) -> bytes:
    return get(path, f"Origin: {origin}", *ASKS).replace(b"GET", b"OPTIONS", 1)


def words(answer: object) -> dict[str, str]:
    return {name: value for name, value in answer.headers if name.startswith("access-control")}  # type: ignore[attr-defined]


async def test_pages_may_not_call_unless_it_is_set(stage: Stage) -> None:
    """Not even where a worker would let them: to the browser the gateway is the server."""
    loose = reply(b"{}", 200, ("access-control-allow-origin", "*"), ("access-control-allow-credentials", "true"))
    running = await stage.gateway(await stage.worker(answer=loose))
    answer = await ask(running.port, preflight())
    assert (answer.status, answer.code, words(answer)) == (405, "method_not_allowed", {})
    answer = await ask(running.port, post(headers=[ORIGIN]))
    assert (answer.status, words(answer), answer.all("vary")) == (200, {}, [])


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/models"])
async def test_a_preflight_is_answered_for_the_client_paths(stage: Stage, path: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, listen={"cors_origins": [PAGE]}, auth={"api_keys": ["secret"]})
    stage.headers = [("Authorization", "Bearer secret")]
    answer = await ask(running.port, preflight(path))
    assert (answer.status, answer.body) == (204, b"")
    assert words(answer) == {
        "access-control-allow-origin": PAGE, "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "authorization, content-type", "access-control-max-age": "600",
    }  # fmt: skip
    assert answer.one("vary") == "origin"
    assert worker.requests == []
    for origin in (OTHER, "null", PAGE + ".evil", "http://app.example"):
        answer = await ask(running.port, preflight(path, origin))
        assert (answer.status, words(answer)) == (405, {})


async def test_answers_streams_and_errors_say_so_too(stage: Stage) -> None:
    streamed = stream(event("1"), DONE)
    loose = stream(event("1"), DONE, headers=(*streamed.headers, ("access-control-allow-origin", "*")))
    worker = await stage.worker(answer=loose)
    running = await stage.gateway(worker, listen={"cors_origins": [PAGE, OTHER]}, auth={"api_keys": ["secret"]})
    key = ("Authorization", "Bearer secret")
    stage.headers = [key]
    for request, status in (
        (post(STREAM, headers=[ORIGIN, key]), 200),
        (post(headers=[ORIGIN]), 401),
        (post(b"{", headers=[ORIGIN, key]), 400),
        (get("/v1/models", f"Origin: {PAGE}"), 401),
        (get("/v1/models", f"Origin: {PAGE}", "Authorization: Bearer secret"), 200),
        (get(CHAT, f"Origin: {PAGE}"), 405),
    ):
        answer = await ask(running.port, request)
        assert (answer.status, answer.one("access-control-allow-origin")) == (status, PAGE), request
        assert "x-router-worker" in (answer.one("access-control-expose-headers") or "")
        assert answer.all("access-control-allow-credentials") == []
    answer = await ask(running.port, post(headers=[("Origin", "https://evil.example"), key]))
    assert (answer.status, words(answer), answer.one("vary")) == (200, {}, "origin")
    answer = await ask(running.port, post(headers=[key]))
    assert (answer.status, words(answer)) == (200, {})


async def test_any_page_may_call_where_all_origins_are_let_in(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen={"cors_origins": ["*"]})
    assert (await ask(running.port, preflight(origin=OTHER))).one("access-control-allow-origin") == "*"
    answer = await ask(running.port, post(headers=[("Origin", OTHER)]))
    assert answer.one("access-control-allow-origin") == "*"


async def test_no_page_ever_administers(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen={"cors_origins": ["*", PAGE]})
    for path in ("/admin/workers", "/admin/config", "/metrics", "/healthz", "/"):
        answer = await ask(running.port, preflight(path))
        assert answer.status in (403, 405)
        assert words(answer) == words(await ask(running.port, get(path, f"Origin: {PAGE}"))) == {}
