"""Who may administer, and who only looks as if."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request

from router.admin_guard import TELL_EVERY, build_guard, is_local, is_loopback
from router.errors import AdminOnly
from router.house import House
from tests.support.stories import Desk

PROXY = "10.0.0.1"


@pytest.fixture
def desk() -> Desk:
    return Desk()


def house(**settings: Any) -> House:
    return Desk(**settings).house


def request(headers: Mapping[str, str] | None = None, peer: str | None = "127.0.0.1") -> Request:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    client = None if peer is None else (peer, 1)
    return Request({"type": "http", "headers": raw, "client": client})


@pytest.mark.parametrize(
    ("peer", "local"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("10.0.0.1", False), ("testclient", False), ("", False)],
)
def test_local_is_the_loopback_and_nothing_else(peer: str, local: bool) -> None:
    assert is_local(request(peer=peer), house()) is local
    assert is_local(request(peer=None), house()) is False


@pytest.mark.parametrize("name", [
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "True-Client-IP",
    "CF-Connecting-IP",
])  # fmt: skip
def test_who_speaks_for_another_is_not_local(name: str) -> None:
    for value in ("127.0.0.1", "", "localhost"):
        assert not is_local(request({name: value}), house())


def test_a_trusted_proxy_is_asked_whom_it_speaks_for() -> None:
    trusting = house(listen={"trusted_proxies": [PROXY, "127.0.0.1"]})
    for peer in (PROXY, "127.0.0.1"):
        assert is_local(request({"X-Forwarded-For": "127.0.0.1"}, peer), trusting)
        assert not is_local(request({"X-Forwarded-For": "203.0.113.9"}, peer), trusting)
        assert not is_local(request({"X-Forwarded-For": "127.0.0.1, 203.0.113.9"}, peer), trusting)
        assert not is_local(request({"X-Real-Ip": "127.0.0.1"}, peer), trusting), "only one header is read"
    assert not is_local(request(peer=PROXY), trusting)
    assert not is_local(request({"X-Forwarded-For": "127.0.0.1"}, "10.0.0.2"), trusting)


@pytest.mark.parametrize(
    "named", ["unknown", "", "_hidden", "127.0.0.1, unknown", "unknown, 127.0.0.1", "unix:", ",,,"]
)
def test_a_trusted_proxy_here_that_names_no_address_speaks_for_nobody_known(named: str) -> None:
    """Some proxies write `unknown` for a client they hide: its own place on the loopback is not theirs."""
    assert not is_local(request({"X-Forwarded-For": named}), house(listen={"trusted_proxies": ["127.0.0.1"]}))


@pytest.mark.parametrize("headers", [
    {"Origin": "http://a-page.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1.a-page.example"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Host": "attacker.example"},
    {"Host": "attacker.example:8080"}, {"Host": "127.0.0.1.attacker.example"}, {"Host": "[nonsense"},
    {"Host": "localhost@attacker.example"},
])  # fmt: skip
def test_a_page_in_a_browser_is_not_local(headers: dict[str, str]) -> None:
    assert not is_local(request(headers), house())


@pytest.mark.parametrize("headers", [
    {}, {"Host": "localhost:8080"}, {"Host": "127.0.0.1"}, {"Host": "[::1]:8080"}, {"Host": "gateway"},
    {"Origin": "http://localhost:8080", "Host": "localhost:8080", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
])  # fmt: skip
def test_this_machine_itself_is(headers: dict[str, str]) -> None:
    assert is_local(request(headers), house())


def test_loopback_names() -> None:
    assert [is_loopback(host) for host in ("localhost", "::1", "127.1.2.3", "0.0.0.0", "localhost.example", "")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def allowed(desk: Desk, guard: Any, shown: str | None, **headers: str) -> bool:
    given = headers if shown is None else {**headers, "Authorization": shown}
    try:
        asyncio.run(guard(request(given, "203.0.113.9")))
    except AdminOnly:
        return False
    return True


def test_with_a_token_it_alone_counts() -> None:
    desk = Desk(admin_token="t0ken")
    guard = build_guard(desk.house)
    assert allowed(desk, guard, "Bearer t0ken", Host="gateway.example")
    assert allowed(desk, guard, "bearer  t0ken ")
    for shown in (
        None,
        "",
        "t0ken",
        "Bearer",
        "Bearer t0ke",
        "Bearer t0ken2",
        "Basic t0ken",
        "Bearer \xe9",
        "Bearer T0KEN",
    ):
        assert not allowed(desk, guard, shown), shown


def test_a_token_that_changes_counts_at_once() -> None:
    desk = Desk(admin_token="t0ken")
    guard = build_guard(desk.house)
    desk.house.adopt(Desk(admin_token="an0ther").house.settings)
    assert not allowed(desk, guard, "Bearer t0ken")
    assert allowed(desk, guard, "Bearer an0ther")


def test_wrong_tokens_are_logged_now_and_then_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(admin_token="t0ken")
    guard = build_guard(desk.house)
    with caplog.at_level(logging.WARNING, "router"):
        allowed(desk, guard, None)
        assert caplog.records == [], "who shows none tries none"
        for at in range(100):
            desk.now = at * TELL_EVERY / 100
            allowed(desk, guard, f"Bearer gu3ss-{at}")
        desk.now = TELL_EVERY
        allowed(desk, guard, "Bearer gu3ss")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "admin: 1 requests with a wrong token, the latest from 203.0.113.9",
        "admin: 100 requests with a wrong token, the latest from 203.0.113.9",
    ]
