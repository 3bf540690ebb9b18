"""Who may ask, and whose credentials go where."""

import re
from hashlib import sha256

import pytest

from tests.support.client import CHAT, get, post
from tests.support.gateway import Stage, ask, eventually
from tests.support.worker import reply

ANTHROPIC = "/v1/messages"
KEYS = {"auth": {"api_keys": ["s3cret", {"tenant": "red", "key": "r3d"}]}}
MINE = [("Authorization", "Bearer s3cret")]
SHOWN = {
    "a bearer token": [("Authorization", "Bearer s3cret")],
    "a bearer token in another case": [("authorization", "bearer s3cret")],
    "x-api-key": [("x-api-key", "s3cret")],
    "api-key": [("Api-Key", "s3cret")],
    "another tenant's": [("Authorization", "Bearer r3d")],
    "a good one beside a bad one": [("Authorization", "Bearer wrong"), ("x-api-key", "s3cret")],
}
WRONG = {
    "none": [],
    "a wrong one": [("Authorization", "Bearer wrong")],
    "another scheme": [("Authorization", "Basic czNjcmV0")],
    "no scheme": [("Authorization", "s3cret")],
    "an empty one": [("Authorization", "Bearer ")],
    "only its beginning": [("x-api-key", "s3cre")],
    "bytes of every kind": [("x-api-key", bytes(range(128, 256)))],
    "a cookie": [("Cookie", "api_key=s3cret")],
}


async def test_a_key_lets_in_and_never_reaches_the_worker(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, **KEYS)
    stage.headers = MINE
    for name, headers in SHOWN.items():
        assert (await ask(running.port, post(headers=headers))).status == 200, name
        for header in ("authorization", "x-api-key", "api-key"):
            assert worker.requests[-1].all(header) == [], name
        assert not any(b"s3cret" in value for _, value in worker.requests[-1].headers), name


@pytest.mark.parametrize(("path", "code"), [(CHAT, "invalid_api_key"), (ANTHROPIC, None)])
async def test_without_a_good_key_nobody_comes_in(stage: Stage, path: str, code: str | None) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, **KEYS)
    stage.headers = MINE
    for name, headers in WRONG.items():
        answer = await ask(running.port, post(path=path, headers=headers))
        assert answer.status == 401, name
        error = answer.json()["error"]
        assert (error["type"], error.get("code")) == ("authentication_error", code), name
        assert "s3cret" not in answer.body.decode(), name
        assert (running.finished[-1].status, running.finished[-1].code) == (401, "invalid_api_key"), name
    assert worker.requests == []


async def test_the_model_list_asks_for_a_key_and_health_does_not(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), **KEYS)
    stage.headers = MINE
    assert (await ask(running.port, get("/v1/models"))).status == 401
    assert (await ask(running.port, get("/v1/models", "Authorization: Bearer s3cret"))).status == 200
    for path in ("/healthz", "/readyz", "/ping", "/metrics"):
        assert (await ask(running.port, get(path))).status == 200, path


async def test_tenants_do_not_share_prefixes(stage: Stage) -> None:
    """The same prompt of two tenants has two keys."""
    running = await stage.gateway(*[await stage.worker() for _ in range(8)], **KEYS)
    stage.headers = MINE
    body = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"the same " * 200 + b'"}]}'
    for key in ("s3cret", "r3d"):
        assert (await ask(running.port, post(body, headers=[("x-api-key", key)]))).status == 200
    assert [event.tenant for event in running.finished] == ["default", "red"]


async def test_without_keys_here_the_callers_credentials_pass(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    headers = [("Authorization", "Bearer theirs"), ("x-api-key", "theirs too"), ("Cookie", "a=b; c=d")]
    assert (await ask(running.port, post(headers=headers))).status == 200
    seen = worker.requests[0]
    assert (seen.one("authorization"), seen.one("x-api-key"), seen.one("cookie")) == (
        b"Bearer theirs", b"theirs too", b"a=b; c=d",
    )  # fmt: skip


@pytest.mark.parametrize("settings", [{}, KEYS], ids=["open", "keys"])
async def test_aws_signatures_never_pass(stage: Stage, settings: dict[str, object]) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, **settings)
    stage.headers = MINE
    signed = [
        ("Authorization", "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu/sagemaker/aws4_request, Signature=abc"),
        ("X-Amz-Date", "20260101T000000Z"), ("X-Amz-Security-Token", "token"), ("X-Amz-Content-Sha256", "abc"),
        ("X-Api-Key", "s3cret"),
    ]  # fmt: skip
    assert (await ask(running.port, post(headers=signed))).status == 200
    names = {name.lower() for name, _ in worker.requests[0].headers}
    assert not {b"authorization", b"x-amz-date", b"x-amz-security-token", b"x-amz-content-sha256"} & names


@pytest.mark.parametrize("settings", [{}, KEYS], ids=["open", "keys"])
async def test_a_workers_own_key_replaces_the_callers(stage: Stage, settings: dict[str, object]) -> None:
    worker = await stage.worker(key="w0rker")
    running = await stage.gateway({"url": worker.url, "api_key": "w0rker"}, **settings)
    stage.headers = MINE
    headers = [("Authorization", "Bearer s3cret"), ("X-Api-Key", "s3cret")]
    assert (await ask(running.port, post(headers=headers))).status == 200
    assert worker.requests[0].one("authorization") == b"Bearer w0rker"
    assert worker.requests[0].all("x-api-key") == []
    assert {probe.one("authorization") for probe in worker.probes} == {b"Bearer w0rker"}


async def test_credentials_in_a_workers_url_are_its_own(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(f"http://user:p%40ss@{worker.id}/")
    assert list(running.seats) == [worker.id]
    assert (await ask(running.port, post(headers=[("Authorization", "Bearer theirs")]))).status == 200
    assert worker.requests[0].one("authorization") == b"Basic dXNlcjpwQHNz"
    assert {probe.one("authorization") for probe in worker.probes} == {b"Basic dXNlcjpwQHNz"}
    shown = (await ask(running.port, get("/admin/workers"))).body + (await ask(running.port, get("/admin/config"))).body
    assert b"p%40ss" not in shown
    assert b"p@ss" not in shown


async def test_a_workers_refusal_of_its_key_is_passed_on(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(b'{"error": "bad key"}', 401))
    running = await stage.gateway(worker)
    answer = await ask(running.port, post(headers=[("Authorization", "Bearer theirs")]))
    assert (answer.status, answer.body) == (401, b'{"error": "bad key"}')


# The admin routes.


async def test_without_a_token_the_admin_routes_answer_this_machine_only(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    assert (await ask(running.port, get("/admin/workers"))).status == 200
    for header in (
        "X-Forwarded-For: 127.0.0.1",
        "Forwarded: for=127.0.0.1",
        "X-Real-Ip: 127.0.0.1",
        "x-forwarded-for: ",
        "Via: 1.1 proxy",
        "Origin: http://a-page.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
    ):
        answer = await ask(running.port, get("/admin/workers", header))
        assert (answer.status, answer.code) == (403, "admin_only"), header


async def test_a_page_in_a_browser_does_not_speak_for_this_machine(stage: Stage) -> None:
    """A page of another site, or one whose name was made to resolve to this machine."""
    running = await stage.gateway(await stage.worker())
    rebound = get("/admin/workers").replace(b"localhost", b"attacker.example", 1)
    assert (await ask(running.port, rebound)).status == 403
    for header in ("Origin: http://attacker.example", "Sec-Fetch-Site: cross-site", "Origin: null"):
        assert (await ask(running.port, get("/admin/workers", header))).status == 403, header
    assert (await ask(running.port, get("/admin/workers", f"Origin: http://127.0.0.1:{running.port}"))).status == 200


async def test_with_a_token_it_must_be_shown(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), admin_token="t0ken")
    for shown in ("", "Bearer t0ke", "Bearer t0ken2", "t0ken", "Basic t0ken", "Bearer \xe9"):
        for request in (get("/admin/workers", f"Authorization: {shown}"), get("/admin/workers"), get("/admin/config")):
            answer = await ask(running.port, request)
            assert (answer.status, answer.code) == (403, "admin_only"), shown


async def test_the_right_token_opens_from_anywhere(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), admin_token="t0ken")
    headers = ("Authorization: Bearer t0ken", "X-Forwarded-For: 203.0.113.9")
    assert (await ask(running.port, get("/admin/workers", *headers))).status == 200


async def test_the_admin_token_is_no_api_key_and_an_api_key_no_admin_token(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), admin_token="t0ken", **KEYS)
    stage.headers = MINE
    assert (await ask(running.port, post(headers=[("Authorization", "Bearer t0ken")]))).status == 401
    assert (await ask(running.port, get("/admin/workers", "Authorization: Bearer s3cret"))).status == 403


# Whose key goes where: real faults of others.

WAYS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "Authorization": (CHAT, []),
    "x-api-key": (CHAT, [("X-Api-Key", "s3cret")]),
    "api-key": (CHAT, [("Api-Key", "s3cret")]),
    "a cookie": (CHAT, [("Cookie", "theme=dark; key=s3cret")]),
    "a query parameter": (f"{CHAT}?a=1&api_key=s3cret", []),
    "a query parameter in escapes": (f"{CHAT}?a=1&api_key=%733cret", []),
    "a cookie in escapes": (CHAT, [("Cookie", "theme=dark; key=%733cret")]),
    "another header": (CHAT, [("X-Goog-Api-Key", "s3cret")]),
    "the request's id": (CHAT, [("X-Request-Id", "s3cret")]),
}


@pytest.mark.parametrize("own", ["w0rker", None, ""], ids=["its own key", "no key", "an empty key"])
async def test_the_callers_key_reaches_no_worker_however_it_is_sent(stage: Stage, own: str | None) -> None:
    """Whether the worker has a key of its own or not."""
    worker = await stage.worker(key=own or None)
    running = await stage.gateway({"url": worker.url, "api_key": own}, **KEYS)
    stage.headers = MINE
    for name, (path, headers) in WAYS.items():
        answer = await ask(running.port, post(path=path, headers=[*MINE, *headers]))
        assert answer.status == 200, name
        seen = worker.requests[-1]
        assert seen.all("authorization") == ([b"Bearer w0rker"] if own else []), name
        everything = b"\n".join([seen.target, *[b"%s: %s" % header for header in seen.headers], seen.body])
        assert b"s3cret" not in everything, name
        assert b"%733cret" not in everything, name
        assert seen.target == path.encode().partition(b"?")[0] + (b"?a=1" if "?" in path else b""), name
        assert "s3cret" not in str(answer.headers), name
        assert running.finished[-1].request_id != "s3cret"


@pytest.mark.parametrize(
    "way", [("?api_key=s3cret", []), ("", [("Cookie", "api_key=s3cret")]), ("", [("X-Goog-Api-Key", "s3cret")])]
)
async def test_a_key_elsewhere_than_in_its_headers_lets_nobody_in(
    stage: Stage, way: tuple[str, list[tuple[str, str]]]
) -> None:
    """Query and cookie would stand in histories and logs, and a browser sends cookies by itself."""
    running = await stage.gateway(await stage.worker(), **KEYS)
    stage.headers = MINE
    assert (await ask(running.port, post(path=CHAT + way[0], headers=way[1]))).status == 401


@pytest.mark.parametrize("key", [{}, {"api_key": ""}], ids=["no key", "an empty key"])
async def test_with_no_keys_here_authorization_passes_as_it_is(stage: Stage, key: dict[str, str]) -> None:
    worker = await stage.worker()
    running = await stage.gateway({"url": worker.url, **key})
    for shown in ("Bearer theirs", "Basic dTpw", "a scheme=of its own"):
        assert (await ask(running.port, post(headers=[("Authorization", shown)]))).status == 200
        assert worker.requests[-1].one("authorization") == shown.encode()


async def test_a_key_given_as_its_digest_lets_in(stage: Stage) -> None:
    digest = sha256(b"s3cret").hexdigest()
    given = [{"tenant": "red", "sha256": digest}, {"tenant": "red", "sha256": sha256(b"other").hexdigest().upper()}]
    running = await stage.gateway(await stage.worker(), auth={"api_keys": given})
    stage.headers = MINE
    for key, status in (("s3cret", 200), ("other", 200), (digest, 401), ("wrong", 401)):
        assert (await ask(running.port, post(headers=[("x-api-key", key)]))).status == status, key
    assert {event.tenant for event in running.finished if event.status == 200} == {"red"}


ECHOES = (
    ("Authorization", "Bearer w0rker"), ("X-Api-Key", "w0rker"), ("X-Debug", "sent: Bearer w0rker!"),
    ("X-Plain", "kept"), ("Location", "http://user:p4ssword@inside:9/x?key=w0rker"),
)  # fmt: skip


@pytest.mark.parametrize("status", [200, 201, 302, 307, 401, 503])
async def test_a_workers_key_does_not_come_back_to_the_client(stage: Stage, status: int) -> None:
    """Not in headers, not in a redirect; and a redirect is the client's to follow, never ours."""
    worker = await stage.worker(key="w0rker", answer=reply(b"{}", status, *ECHOES))
    running = await stage.gateway({"url": worker.url, "api_key": "w0rker"}, **KEYS)
    stage.headers = MINE
    answer = await ask(running.port, post(headers=MINE))
    assert answer.status == status
    assert "w0rker" not in str(answer.headers)
    assert answer.one("x-plain") == "kept"
    assert (answer.all("authorization"), answer.all("x-api-key")) == ([], [])
    if status != 200:
        assert "p4ssword" not in str(answer.headers)
        assert answer.one("location") == "http://inside:9/x?key=********"
    assert len(worker.requests) == 1
    worker.answer = reply()


async def test_a_redirected_probe_is_not_followed(stage: Stage) -> None:
    """A worker cannot make the gateway ask other machines, let alone with its key."""
    other = await stage.worker()
    worker = await stage.worker(healthy=302)
    running = await stage.gateway({"url": worker.url, "api_key": "w0rker"}, ready=False)
    await eventually(lambda: running.seat(worker).health.failed_probes > 2)
    assert other.probes == []
    assert running.state(worker) != "ready"


async def test_a_worker_behind_a_key_is_probed_polled_and_listed_with_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await stage.worker(key="w0rker", models=("secret-model",))
    running = await stage.gateway({"url": worker.url, "api_key": "w0rker"}, signals={"queue_seconds": 0.05})
    await eventually(lambda: worker.scrapes and running.seat(worker).models == {"secret-model"})
    assert {b"/health", b"/v1/models"} <= {probe.target for probe in worker.probes}
    for seen in (worker.probes, worker.scrapes):
        assert {request.one("authorization") for request in seen} == {b"Bearer w0rker"}
    assert "api_key" not in caplog.text


# Pages in browsers.


async def test_the_pages_load_nothing_from_elsewhere_and_stand_in_no_frame(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for path in ("/", "/docs"):
        page = await ask(running.port, get(path))
        policy = page.one("content-security-policy") or ""
        assert (page.status, page.one("x-content-type-options")) == (200, "nosniff")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(rb"(src|href)=.?(https?:)?//", page.body), path
    for path in ("/admin/workers", "/admin/config", "/admin/nothing"):
        answer = await ask(running.port, get(path))
        assert (answer.one("cache-control"), answer.one("x-content-type-options")) == ("no-store", "nosniff"), path
    assert (await ask(running.port, get("/openapi.json"))).status == 200


async def test_a_trusted_proxy_on_this_machine_does_not_open_the_admin_routes(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen={"trusted_proxies": ["127.0.0.1"]})
    assert (await ask(running.port, get("/admin/workers", "X-Forwarded-For: 203.0.113.9"))).status == 403
    assert (await ask(running.port, get("/admin/workers", "X-Forwarded-For: 127.0.0.1"))).status == 200


async def test_guessed_tokens_stand_in_the_log_without_the_guess(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    running = await stage.gateway(await stage.worker(), admin_token="t0ken")
    for at in range(20):
        assert (await ask(running.port, get("/admin/workers", f"Authorization: Bearer gu3ss{at}"))).status == 403
    told = [line for line in caplog.messages if line.startswith("admin: ")]
    assert told == ["admin: 1 requests with a wrong token, the latest from 127.0.0.1"]
