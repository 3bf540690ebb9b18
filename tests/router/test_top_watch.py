"""Asking a gateway again and again, whatever it answers."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from router.top_watch import Refused, Watch, show

WORKERS = {"workers": [{"id": "w0", "state": "ready", "in_flight": 1}], "panic": False}
DECISIONS = {"decisions": [{"worker": "w0", "reason": "home", "age_seconds": 0.1}]}
URL = "http://gw:8080"
CLIENT = httpx.Client


class Gateway:
    """Answers as told; `trouble` comes first, one a request."""

    def __init__(self) -> None:
        self.trouble: list[httpx.Response | Exception] = []
        self.asked: list[httpx.Request] = []
        self.counted = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.trouble:
            first = self.trouble.pop(0)
            if isinstance(first, Exception):
                raise first
            return first
        if request.url.path == "/metrics":
            self.counted += 10
            return httpx.Response(200, text=f'prefix_router_requests_total{{code="200"}} {self.counted}\n')
        return httpx.Response(200, json=WORKERS if request.url.path == "/admin/workers" else DECISIONS)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    made = Gateway()
    monkeypatch.setattr(httpx, "Client", partial(CLIENT, transport=httpx.MockTransport(made)))
    return made


def test_the_first_look_is_at_the_present_and_the_second_at_the_time_between(gateway: Gateway) -> None:
    with Watch(URL, None) as watch:
        first, second = watch.look(), watch.look()
    assert first.trouble is second.trouble is None
    assert first.shown is not None
    assert second.shown is not None
    assert first.shown.seconds is None
    assert second.shown.totals.requests_per_second == pytest.approx(10 / (second.shown.seconds or 0))
    assert [request.url.path for request in gateway.asked[:3]] == ["/admin/workers", "/admin/decisions", "/metrics"]


def test_the_token_goes_with_every_question(gateway: Gateway) -> None:
    with Watch(URL, "sesame") as watch:
        watch.look()
    assert {request.headers["authorization"] for request in gateway.asked} == {"Bearer sesame"}


@pytest.mark.parametrize(
    ("trouble", "word"),
    [
        (httpx.ConnectError("refused"), "no gateway answers at http://gw:8080 (ConnectError)"),
        (httpx.ReadTimeout("slow"), "ReadTimeout"),
        (httpx.Response(503), "status 503"),
        (httpx.Response(429), "status 429"),
    ],
)
def test_a_gateway_that_goes_away_is_asked_again_and_its_last_figures_stay(
    gateway: Gateway, trouble: httpx.Response | Exception, word: str
) -> None:
    with Watch(URL, None) as watch:
        before = watch.look()
        gateway.trouble = [trouble]
        gone, back = watch.look(), watch.look()
    assert word in (gone.trouble or "")
    assert (gone.trouble or "").endswith("trying again")
    assert gone.shown == before.shown
    assert back.trouble is None


def test_who_needs_a_token_is_told_so(gateway: Gateway) -> None:
    gateway.trouble = [httpx.Response(403, json={"error": {"message": "no"}})] * 2
    with Watch(URL, None) as watch, pytest.raises(Refused, match=r"--token or PREFIX_ROUTER_ADMIN_TOKEN"):
        watch.look()
    with Watch(URL, "wrong") as watch, pytest.raises(Refused, match="refused this admin token"):
        watch.look()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="nothing here"),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json=[1]),
        httpx.Response(200, json={"workers_ready": 3}),
        httpx.Response(302, headers={"location": "/login"}),
    ],
)
def test_what_is_no_gateway_ends_it(gateway: Gateway, answer: httpx.Response) -> None:
    gateway.trouble = [answer]
    with Watch(URL, None) as watch, pytest.raises(Refused, match="is no gateway"):
        watch.look()


Printed = pytest.CaptureFixture[str]


def test_once_prints_one_frame_with_rates(gateway: Gateway, capsys: Printed) -> None:
    with Watch(URL, None) as watch:
        assert show(watch, 0.1, once=True, as_json=False) == 0
    out = capsys.readouterr().out
    assert out.count("prefix-router top") == 1
    assert "1 of 1 workers ready" in out
    assert " - requests/s" not in out


def test_once_as_json_prints_one_object(gateway: Gateway, capsys: Printed) -> None:
    with Watch(URL, None) as watch:
        assert show(watch, 0.1, once=True, as_json=True) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["workers"][0]["id"] == "w0"
    assert said["totals"]["requests_per_second"] > 0


def test_once_without_a_gateway_is_exit_1_and_one_line(gateway: Gateway, capsys: Printed) -> None:
    gateway.trouble = [httpx.ConnectError("refused")]
    with Watch(URL, None) as watch:
        assert show(watch, 0.1, once=True, as_json=False) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "prefix-router: no gateway answers at http://gw:8080 (ConnectError)\n")


def enough_after(questions: int, gateway: Gateway) -> Callable[[httpx.Request], httpx.Response]:
    """Somebody presses Ctrl-C then."""

    def answer(request: httpx.Request) -> httpx.Response:
        if len(gateway.asked) >= questions:
            raise KeyboardInterrupt
        return gateway(request)

    return answer


@pytest.mark.parametrize("as_json", [False, True])
def test_in_a_pipe_frames_follow_one_another_until_somebody_ends_it(
    gateway: Gateway, capsys: Printed, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    transport = httpx.MockTransport(enough_after(12, gateway))
    monkeypatch.setattr(httpx, "Client", partial(CLIENT, transport=transport))
    with Watch(URL, None) as watch, pytest.raises(KeyboardInterrupt):
        show(watch, 0.01, once=False, as_json=as_json)
    out = capsys.readouterr().out
    if as_json:
        assert [json.loads(line)["url"] for line in out.splitlines()] == [URL] * 3
    else:
        assert out.count("prefix-router top") == 3
    assert "\x1b" not in out


def test_in_a_pipe_a_gateway_that_is_gone_is_told_of(
    gateway: Gateway, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.trouble = [httpx.ConnectError("refused")]
    transport = httpx.MockTransport(enough_after(1, gateway))
    monkeypatch.setattr(httpx, "Client", partial(CLIENT, transport=transport))
    with Watch(URL, None) as watch, pytest.raises(KeyboardInterrupt):
        show(watch, 0.01, once=False, as_json=True)
    assert "trying again" in json.loads(capsys.readouterr().out)["error"]
