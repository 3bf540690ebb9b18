"""What the commands print."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from router import show
from router.show import ask_explanation, settings_table


def candidate(name: str, **fields: Any) -> dict[str, Any]:
    numbers = {"in_flight": 0, "wait_tokens": 0.0, "expected_cached_tokens": 0, "cost": 9.0}
    return {"worker": name, "state": "ready", **numbers, **fields}


SAID = {
    "chosen": "w1", "reason": "home", "policy": "prefix_cost", "model": "m", "key_depth": 64, "home": "w1",
    "prompt_tokens": 20, "candidates": [candidate("w1", cost=3.25), candidate("w2", state="suspect")],
    "runner_up": "w2",
}  # fmt: skip
Asked = list[dict[str, Any]]
Answering = Callable[[httpx.Response | Exception], Asked]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A gateway that answers so, and notes what it was asked."""

    def set_up(answer: httpx.Response | Exception) -> Asked:
        asked: Asked = []

        def post(url: str, **options: Any) -> httpx.Response:
            asked.append({"url": url, **options})
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(show.httpx, "post", post)
        return asked

    return set_up


def explain(**options: Any) -> int:
    given = {"url": "http://gw:8080/", "body": b"{}", "path": None, "token": None, "as_json": False, **options}
    return ask_explanation(**given)


def test_an_explanation_is_a_line_and_a_table(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering(httpx.Response(200, json=SAID))
    assert explain() == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "w1  reason: home, policy: prefix_cost"
    for word in ("about 20 tokens", "64 bytes deep", "home w1", "expected cached", "suspect", "3.25"):
        assert word in shown


def test_as_json_it_is_the_answer_itself(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering(httpx.Response(200, json=SAID))
    assert explain(as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == SAID


def test_nobody_chosen_is_shown_too(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering(httpx.Response(200, json={**SAID, "chosen": None, "reason": None, "candidates": []}))
    assert explain() == 0
    assert "None" in capsys.readouterr().out


def test_the_body_the_path_and_the_token_are_sent(answering: Answering) -> None:
    asked = answering(httpx.Response(200, json=SAID))
    explain(body=b'{"x": 1}', path="/v1/completions", token="t")
    (request,) = asked
    assert request["url"] == "http://gw:8080/admin/explain"
    assert request["content"] == b'{"x": 1}'
    assert request["params"] == {"path": "/v1/completions"}
    assert request["headers"] == {"authorization": "Bearer t"}
    assert request["trust_env"] is False


@pytest.mark.parametrize(
    "trouble",
    [httpx.ConnectError("no"), httpx.ReadTimeout("no"), httpx.InvalidURL("no"), httpx.Response(200, text="hi")],
)
def test_where_no_gateway_answers_it_says_so_in_one_line(
    answering: Answering, capsys: pytest.CaptureFixture[str], trouble: httpx.Response | Exception
) -> None:
    answering(trouble)
    assert explain() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("prefix-router: no gateway answered at http://gw:8080/ (")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"error": {"message": "No worker serves this."}}),
        httpx.Response(500, json={"error": "No worker serves this."}),
        httpx.Response(500, json=["No worker serves this."]),
    ],
)
def test_a_refusal_is_passed_on_in_one_line(
    answering: Answering, capsys: pytest.CaptureFixture[str], answer: httpx.Response
) -> None:
    answering(answer)
    assert explain() == 1
    err = capsys.readouterr().err
    assert "No worker serves this." in err
    assert err.count("\n") == 1


def test_an_answer_of_another_shape_is_no_traceback(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering(httpx.Response(200, json={"hello": "world"}))
    assert explain() == 1
    assert capsys.readouterr().err == 'prefix-router: what answered is no gateway: {"hello": "world"}\n'


def test_an_address_in_brackets_is_shown_whole(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    name = "[fd00::1]:8000"
    answering(
        httpx.Response(200, json={**SAID, "chosen": name, "candidates": [{**SAID["candidates"][0], "worker": name}]})
    )
    assert explain() == 0
    assert capsys.readouterr().out.count(name) == 2


def test_settings_are_a_table_of_value_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    settings_table([("listen.port", 9, "command line"), ("queue.max", 1000, "default")])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["setting", "value", "from"]
    assert [row.split() for row in rows] == [["listen.port", "9", "command", "line"], ["queue.max", "1000", "default"]]


def test_values_with_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    settings_table([("workers[0].url", "'http://[::1]:80'", "file"), ("labels", "[red]", "file")])
    shown = capsys.readouterr().out
    assert "workers[0].url" in shown
    assert "http://[::1]:80" in shown
    assert "[red]" in shown
