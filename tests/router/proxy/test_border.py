"""The border in front of the app, fed by hand."""

from typing import Any

import pytest

from router.core.origin import Origins
from router.errors import Refusal
from router.events import Event
from router.proxy.border import Border
from router.proxy.cors import Cors

HOST = (b"Host", b"localhost")
PAGE = b"https://app.example"


class House:
    paths = {b"/v1/chat/completions": None}  # noqa: RUF012
    most_header_bytes = 1000

    def __init__(self, origins: Origins | None = None, cors: Cors | None = None) -> None:
        self.origins, self.cors = origins, cors
        self.told: list[Event] = []
        self.emit = self.told.append
        self.scopes: list[Any] = []
        self.sent: list[Any] = []

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})

    async def hears(self, *headers: tuple[bytes, bytes], path: str = "/v1/chat/completions", **scope: Any) -> Any:
        given = {"type": "http", "method": "POST", "http_version": "1.1", "path": path, "client": ("10.0.0.1", 5)}

        async def send(message: Any) -> None:
            self.sent.append(message)

        def refusal(refused: Refusal) -> tuple[bytes, bytes]:
            return b"text/plain", refused.code.encode()

        border = Border(self.app, self, refusal, ("/v1/models",))
        await border({**given, "headers": list(headers), **scope}, None, send)  # type: ignore[arg-type]
        return self.sent[0] if self.sent else None


@pytest.mark.parametrize("headers", [(), (HOST, HOST), (HOST, (b"Transfer-Encoding", b"gzip"))])
async def test_a_bad_head_does_not_reach_the_app(headers: Any) -> None:
    house = House()
    start = await house.hears(*headers)
    assert (start["status"], house.sent[1]["body"]) == (400, b"invalid_request")
    assert (b"connection", b"close") in start["headers"]
    assert house.scopes == []
    assert [getattr(event, "status", 0) for event in house.told] == [400]


@pytest.mark.parametrize("headers", [[(b"X", b"a" * 1000)], [(b"a", b"")] * 260], ids=["large", "many"])
async def test_headers_are_bounded(headers: Any) -> None:
    assert (await House().hears(HOST, *headers))["status"] == 431


async def test_what_is_no_request_passes() -> None:
    house = House()
    await house.hears(type="lifespan")
    assert len(house.scopes) == 1


async def test_the_client_is_put_in_its_place() -> None:
    house = House(Origins(["10.0.0.0/8"]))
    await house.hears(HOST, (b"X-Forwarded-For", b"203.0.113.9"))
    await house.hears(HOST)
    await house.hears(HOST, (b"X-Forwarded-For", b"203.0.113.9"), client=None)
    assert [scope["client"] for scope in house.scopes] == [("203.0.113.9", 0), ("10.0.0.1", 5), None]


async def test_pages_are_told_on_the_client_paths_only_and_once() -> None:
    for path, count in (("/v1/chat/completions", 1), ("/v1/models", 1), ("/admin/workers", 0)):
        house = House(cors=Cors([PAGE.decode()]))
        start = await house.hears(HOST, (b"Origin", PAGE), path=path)
        assert [name for name, _ in start["headers"]].count(b"access-control-allow-origin") == count, path
