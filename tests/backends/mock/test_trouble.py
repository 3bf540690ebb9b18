"""Faults on real sockets: what a client of a worker in trouble sees."""

import asyncio
import base64
import socket
from typing import Any

import httpx
import pytest

STREAM = {"prompt": "a tide", "max_tokens": 5, "stream": True}


async def test_faults_change_at_run_time_and_are_shown(mock: Any) -> None:
    worker = await mock("--fault", "status=500")
    assert (await worker.ask("/v1/completions", STREAM)).status_code == 500
    answer = await worker.ask("/faults", [{"status": 503, "times": 1}])
    assert answer.json() == {"rules": [{"status": 503, "times": 1}]}
    assert (await worker.ask("/v1/completions", STREAM)).status_code == 503
    assert (await worker.ask("/v1/completions", STREAM)).status_code == 200
    assert (await worker.http.get("/faults")).json() == {"rules": [{"status": 503, "times": 0}]}
    assert (await worker.http.delete("/faults")).json() == {"rules": []}


async def test_a_bad_rule_is_a_400_and_changes_nothing(mock: Any) -> None:
    worker = await mock("--fault", "status=500")
    answer = await worker.ask("/faults", [{"oops": 1}, {"hang": True, "share": 7}])
    assert answer.status_code == 400
    assert "oops" in answer.json()["error"]["message"]
    assert "share" in answer.json()["error"]["message"]
    assert (await worker.http.get("/faults")).json() == {"rules": [{"status": 500}]}


async def test_a_dictated_answer_has_its_status_body_and_headers(mock: Any) -> None:
    """It is no generation: nothing was started."""
    worker = await mock()
    rule = {"status": 502, "body": "<p>Bad</p>", "content_type": "text/html", "headers": {"x-a": "1"}}
    await worker.set_faults({**rule, "retry_after": 7})
    answer = await worker.ask("/v1/completions", STREAM)
    assert (answer.status_code, answer.text) == (502, "<p>Bad</p>")
    assert answer.headers["content-type"] == "text/html"
    assert (answer.headers["x-a"], answer.headers["retry-after"]) == ("1", "7")
    await worker.set_faults({"status": 200, "body": {"error": {"message": "late"}}})
    assert (await worker.ask("/v1/completions", STREAM)).json() == {"error": {"message": "late"}}
    assert worker.ledger.started == 0


async def test_refusing_is_seen_by_new_clients_and_ended_by_the_one_that_asked(mock: Any) -> None:
    worker = await mock()
    await worker.set_faults({"refuse": True})
    with pytest.raises(ConnectionRefusedError):
        await worker.connect()
    assert (await worker.http.delete("/faults")).status_code == 200
    _, writer = await worker.connect()
    writer.close()


async def test_a_limited_refusal_ends_by_itself(mock: Any, eventually: Any) -> None:
    worker = await mock()
    await worker.set_faults({"refuse": 0.05})
    await eventually(lambda: "listening" in repr(worker.server))
    _, writer = await worker.connect()
    writer.close()


async def test_a_changed_refusal_is_not_ended_by_the_old_ones_timer(mock: Any) -> None:
    worker = await mock()
    await worker.set_faults({"refuse": 0.05})
    await worker.set_faults({"refuse": True})
    await asyncio.sleep(0.2)
    assert "refusing" in repr(worker.server)


async def test_the_control_port_is_untouched_by_faults(mock: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker = await mock("--control-port", str(port))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as control:
        assert (await control.post("/faults", json={"refuse": True})).status_code == 200
        with pytest.raises(ConnectionRefusedError):
            await worker.connect()
        assert (await control.get("/stats")).status_code == 200
        assert (await control.post("/faults", json={})).status_code == 200
    assert (await worker.http.get("/health")).status_code == 200


@pytest.mark.parametrize("kind", ["cut", "reset"])
@pytest.mark.parametrize("point", ["before", "head", 2, 2.5, "done"])
async def test_a_broken_stream_has_no_clean_end_and_counts_as_aborted(
    mock: Any, post: Any, kind: str, point: Any, eventually: Any
) -> None:
    worker = await mock()
    await worker.set_faults({kind: point, "times": 1})
    reader, writer = await worker.connect()
    writer.write(post("/v1/completions", STREAM))
    received = b""
    try:
        while data := await asyncio.wait_for(reader.read(65536), 10):
            received += data
        was_reset = False
    except ConnectionResetError:
        was_reset = True
    writer.close()
    assert was_reset == (kind == "reset")
    assert b"[DONE]" not in received
    assert not received.endswith(b"0\r\n\r\n")
    assert received.count(b"data:") == {"before": 0, "head": 0, 2: 2, 2.5: 3, "done": 6}[point]
    assert received.startswith(b"HTTP/1.1 200") == (point != "before")
    await eventually(lambda: worker.ledger.aborted == 1)
    assert worker.engine.stats().running == 0
    assert (await worker.ask("/v1/completions", STREAM)).status_code == 200


async def test_a_hanging_worker_notices_that_its_client_went(mock: Any, post: Any, eventually: Any) -> None:
    worker = await mock("--fault", "hang")
    _, writer = await worker.connect()
    writer.write(post("/v1/completions", STREAM))
    await eventually(lambda: worker.ledger.held == 1)
    assert (await worker.stats())["running"] == 1
    writer.close()
    await eventually(lambda: worker.ledger.aborted == 1)
    stats = await worker.stats()
    assert (stats["running"], stats["max_running"]) == (0, 1)


async def test_delays_hold_requests_of_all_clients_at_once(mock: Any, eventually: Any) -> None:
    """What a fault holds runs for its client, whatever the engine's own limit is."""
    worker = await mock("--fault", "delay=1")
    asked = [asyncio.ensure_future(worker.chat(max_tokens=1)) for _ in range(20)]
    await eventually(lambda: worker.ledger.max_held == 20)
    assert {(await answer).status_code for answer in asked} == {200}
    stats = await worker.stats()
    assert (stats["started"], stats["finished"], stats["max_running"]) == (20, 20, 20)


async def test_a_client_that_goes_during_a_delay_starts_nothing(mock: Any, post: Any, eventually: Any) -> None:
    worker = await mock("--fault", "delay=0.1")
    _, writer = await worker.connect()
    writer.write(post("/v1/completions", STREAM))
    await eventually(lambda: worker.ledger.held == 1)
    writer.close()
    await eventually(lambda: worker.ledger.aborted == 1)
    await asyncio.sleep(0.15)
    assert worker.engine.stats().prompt_tokens == 0


async def test_an_echo_has_every_header_and_byte(mock: Any) -> None:
    worker = await mock("--fault", "echo")
    body = b'{"x_future": 1.0, "a": 1, "a": 2, "big": 123456789012345678901234567890}'
    raw = b"POST /v1/chat/completions?q=%20 HTTP/1.1\r\nHost: w\r\nX-A: 1\r\nx-a: 2\r\nconnection: close\r\n"
    answer = await worker.raw(raw + b"content-length: %d\r\n\r\n" % len(body) + body)
    echo = httpx.Response(200, content=answer.partition(b"\r\n\r\n")[2]).json()
    assert base64.b64decode(echo["body_base64"]) == body
    assert echo["headers"][:3] == [["Host", "w"], ["X-A", "1"], ["x-a", "2"]]
    assert (echo["method"], echo["path"]) == ("POST", "/v1/chat/completions")
    assert echo["target"] == "/v1/chat/completions?q=%20"


async def test_garbage_is_no_http(mock: Any, post: Any) -> None:
    worker = await mock("--fault", "garbage")
    assert not (await worker.raw(post("/v1/completions", STREAM))).startswith(b"HTTP")
    await worker.set_faults({"garbage": "hello"})
    assert await worker.raw(post("/v1/completions", STREAM)) == b"hello"


async def test_wrong_lengths_are_seen_on_the_wire(mock: Any) -> None:
    worker = await mock("--fault", "length=10")
    with pytest.raises(httpx.RemoteProtocolError):
        await worker.chat()


@pytest.mark.parametrize("stream", [False, True])
async def test_compressed_answers_are_read_by_a_real_client(mock: Any, stream: bool) -> None:
    worker = await mock()
    plain = await worker.chat(stream=stream, seed=1)
    await worker.set_faults([{"gzip": True}])
    packed = await worker.chat(stream=stream, seed=1)
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.text) == len(plain.text)


@pytest.mark.parametrize("odd", ["split=1", "crlf", "no_space", "noise", "split=3,crlf,noise,gzip"])
async def test_odd_framing_says_the_same(mock: Any, events_of: Any, odd: str) -> None:
    worker = await mock()
    plain = events_of((await worker.ask("/v1/completions", STREAM)).text)
    await worker.set_faults(
        {part.partition("=")[0]: int(part.partition("=")[2] or 1) if "=" in part else True for part in odd.split(",")}
    )
    strange = events_of((await worker.ask("/v1/completions", STREAM)).text)
    said = [[event["choices"] for event in events[:-1]] for events in (plain, strange)]
    assert said[0] == said[1]
    assert strange[-1] == "[DONE]"


async def test_health_fails_only_where_asked(mock: Any) -> None:
    worker = await mock("--fault", "hang", "--fault", "status=500,path=/metrics")
    assert (await worker.http.get("/health")).status_code == 200
    assert (await worker.http.get("/metrics")).status_code == 500
    await worker.set_faults({"not_ready": True})
    assert (await worker.http.get("/health")).status_code == 503
    assert (await worker.chat()).status_code == 200


async def test_idle_connections_are_closed(mock: Any) -> None:
    worker = await mock("--fault", "close_idle=0.05")
    reader, writer = await worker.connect()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
