"""uvicorn's own protocol, with what it does not look at."""

import asyncio
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from router.proxy.plain import Plain
from tests.router.proxy.test_lane import Transport
from tests.support.client import HELLO, chunked, post


async def heard(data: bytes) -> tuple[list[dict[str, Any]], Transport]:
    """The scopes that the app saw."""
    scopes: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        while (await receive()).get("more_body"):
            pass

    config = Config(app=app, log_config=None, interface="asgi3", ws="none", lifespan="off")
    protocol = Plain(config, ServerState(), {}, _loop=asyncio.get_running_loop())
    transport = Transport()
    protocol.connection_made(transport)  # type: ignore[arg-type]
    protocol.data_received(data)
    await asyncio.sleep(0.01)
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    return scopes, transport


async def test_a_trailer_is_no_header() -> None:
    body = chunked(HELLO)[:-2] + b"Authorization: late\r\n\r\n"
    scopes, _ = await heard(post(body, headers=[("Transfer-Encoding", "chunked")]))
    assert [name for name, _ in scopes[0]["headers"]] == [b"host", b"content-type", b"transfer-encoding"]


@pytest.mark.parametrize("target", ["/v1/models#a", "http://localhost", "ftp://a/b"])
async def test_a_target_is_a_path(target: str) -> None:
    scopes, transport = await heard(post(path=target))
    assert scopes == []
    assert transport.written.startswith(b"HTTP/1.1 400")
