"""What stands between a whole request and the choice of its worker."""

import pytest

from router.core.salt import salt
from tests.support.client import CHAT, HELLO
from tests.support.stories import Desk


async def test_a_prompt_that_cannot_be_read_is_routed_by_load(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    journey, _ = desk.open()

    def broken(path: str, body: bytes) -> None:
        raise RecursionError

    monkeypatch.setattr(journey, "dialect", type("Broken", (), {"read": staticmethod(broken), "native": False})())
    journey.feed(HELLO)
    journey.complete()
    assert desk.chosen == ["w0"]


RED = {"auth": {"api_keys": [{"tenant": "red", "key": "r3d-key"}]}}
KEY: list[tuple[bytes, bytes]] = [(b"authorization", b"Bearer r3d-key")]


def sent(body: bytes, path: str = CHAT, **settings: object) -> bytes:
    desk = Desk(**{**RED, **settings})
    desk.ask(body, KEY, path)
    return bytes(desk.sent[0].body)


async def test_a_tenants_salt_goes_into_the_body_and_into_the_length() -> None:
    desk = Desk(**RED)
    desk.ask(HELLO, KEY)
    body = desk.sent[0].body
    assert body == b'{"cache_salt":%s,' % salt("red", None) + HELLO[1:]
    assert b"content-length: %d" % len(body) in desk.sent[0].lines()


async def test_the_salt_is_not_for_those_paths_that_touch_no_cache() -> None:
    assert sent(HELLO, "/tokenize") == HELLO


async def test_without_the_setting_the_body_stays() -> None:
    assert sent(HELLO, auth={**RED["auth"], "tenant_salt": False}) == HELLO


async def test_a_client_salt_is_replaced_and_still_parts_routing_keys() -> None:
    keys = set()
    for own in (b'"a"', b'"b"', b'""', b"null"):
        desk = Desk(**RED)
        journey, _ = desk.ask(HELLO.replace(b'"m"', b'"m", "cache_salt": ' + own), KEY)
        assert b'"cache_salt": ' + salt("red", own) in desk.sent[0].body
        assert journey.ask is not None
        keys.add(journey.ask.seed)
    assert len(keys) == 4


async def test_a_key_that_let_its_caller_in_is_no_request_id() -> None:
    desk = Desk(**RED)
    journey, _ = desk.ask(HELLO, [*KEY, (b"x-request-id", b"r3d-key")])
    assert journey.request_id != "r3d-key"
    assert b"r3d-key" not in desk.sent[0].head


async def test_a_key_that_let_its_caller_in_stays_here_though_a_reload_does_away_with_keys() -> None:
    desk = Desk(**RED)
    journey, _ = desk.open(KEY)
    settings = desk.house.settings
    desk.house.adopt(settings.model_copy(update={"auth": settings.auth.model_copy(update={"api_keys": ()})}))
    journey.feed(HELLO)
    journey.complete()
    assert b"r3d-key" not in desk.sent[0].head


KEYS = [{"tenant": "red", "key": "may", "priority": True, "weight": 3}, {"tenant": "red", "key": "no"}]


def priority_of(desk: Desk, body: bytes = HELLO, **headers: str) -> int:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return desk.ask(body, given)[0].priority


async def test_a_key_brings_its_tenant_and_its_weight() -> None:
    desk = Desk(auth={"api_keys": KEYS})
    journey, _ = desk.ask(headers=[(b"x-api-key", b"no")])
    assert journey.tenant == "red"
    assert journey.key is not None
    assert (journey.key.weight, journey.key.priority) == (3.0, False)


async def test_a_priority_is_heard_from_those_who_may_set_one() -> None:
    desk = Desk(auth={"api_keys": KEYS})
    assert priority_of(desk, x_api_key="may", x_priority="-4") == -4
    assert priority_of(desk, x_api_key="no", x_priority="-4") == 0
    body = b'{"model": "m", "messages": [], "priority": 3}'
    assert priority_of(desk, body, x_api_key="may") == 3
    assert priority_of(desk, body, x_api_key="may", x_priority="+1") == 1
    assert priority_of(desk, body, x_api_key="may", x_priority="99999") == 10
    assert priority_of(desk, body, x_api_key="no") == 0


async def test_where_no_keys_are_asked_for_everybody_may_or_nobody() -> None:
    assert priority_of(Desk(), x_priority="-4") == 0
    assert priority_of(Desk(queue={"open_priorities": True}), x_priority="-4") == -4
    assert priority_of(Desk(queue={"open_priorities": True})) == 0


@pytest.mark.parametrize("bad", ["", "high", "1.5", "0x1", "- 1", "1" * 30])
async def test_a_header_that_says_no_priority_is_told(bad: str) -> None:
    desk = Desk(queue={"open_priorities": True})
    _, sink = desk.ask(headers=[(b"x-priority", bad.encode())])
    assert sink.status == 400
    assert b"whole number" in sink.data
