"""The live page in a real browser: what it shows, what it asks for, what it never does.

A stand-in gateway serves the shipped page and answers the two admin paths with what a test says; one test uses the real
programs. A `script` given to a test runs after the page's own, in the place of somebody at the keyboard.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.browser.stand_in import DECISION, PAGE, WORKER, StandIn, browse

TOKEN = "open-sesame"
NOTHING = "\u2013"  # a dash where there is no value

pytestmark = [pytest.mark.system("chromium"), pytest.mark.xdist_group("browser")]


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_workers_are_shown_with_state_load_and_models(gateway: StandIn, tmp_path: Path) -> None:
    gateway.workers = [WORKER, WORKER | {"id": "gpu-2:8000", "state": "down", "models": None}]
    seen = browse(gateway.url, tmp_path)
    assert [[*row[:4], row[7]] for row in seen.tables["workers"][1:]] == [
        ["gpu-1:8000", "ready", "3", "12,345", "llama"],
        ["gpu-2:8000", "down", "3", "12,345", "any"],
    ]
    assert seen.texts["status"] == "1 of 2 workers ready"
    assert "content" not in seen.hidden
    assert "login" in seen.hidden


def test_a_workers_cached_tokens_are_shown_as_expected_and_as_delivered(gateway: StandIn, tmp_path: Path) -> None:
    """Of the answers that said what came from the cache; a worker without one says nothing."""
    running = {name: value for name, value in DECISION.items() if name != "cached_tokens"}
    less = DECISION | {"predicted_cached_tokens": 2016, "cached_tokens": 800}
    gateway.workers = [WORKER, WORKER | {"id": "gpu-2:8000"}, WORKER | {"id": "gpu-3:8000"}]
    gateway.decisions = [
        running, DECISION, less, DECISION | {"worker": "gpu-3:8000", "predicted_cached_tokens": 0, "cached_tokens": 0},
    ]  # fmt: skip
    seen = browse(gateway.url, tmp_path)
    assert [row[4:7] for row in seen.tables["workers"][1:]] == [
        ["4,000", "2,800", "70%"], [NOTHING, NOTHING, NOTHING], ["0", "0", NOTHING],
    ]  # fmt: skip


def test_decisions_are_shown_with_what_was_expected_and_delivered(gateway: StandIn, tmp_path: Path) -> None:
    running = {name: DECISION[name] for name in list(DECISION)[:8]} | {"reason": "cold", "predicted_cached_tokens": 0}
    gateway.decisions = [running, DECISION]
    first, second = browse(gateway.url, tmp_path).tables["decisions"][1:]
    assert first[1:] == ["gpu-1:8000", "cold", "256", "2,100", "0", NOTHING, NOTHING]
    assert second[1:] == ["gpu-1:8000", "home", "256", "2,100", "1,984", "2,000", "12 ms"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first[0])


def test_reasons_are_counted(gateway: StandIn, tmp_path: Path) -> None:
    gateway.decisions = [DECISION] * 3 + [DECISION | {"reason": "spill"}]
    seen = browse(gateway.url, tmp_path)
    assert [row[:3] for row in seen.tables["reasons"][1:]] == [["home", "3", " 75%"], ["spill", "1", " 25%"]]
    assert "latest 4 decisions" in seen.texts["reasons-title"]


def test_an_empty_gateway_says_so(gateway: StandIn, tmp_path: Path) -> None:
    gateway.workers, gateway.decisions = [], []
    seen = browse(gateway.url, tmp_path)
    assert seen.tables["workers"][1:] == [["No worker is configured."]]
    assert seen.tables["decisions"][1][0].startswith("No request yet.")


def test_it_asks_again_every_second(gateway: StandIn, tmp_path: Path) -> None:
    browse(gateway.url, tmp_path)
    assert [path for path, _ in gateway.asked].count("/admin/workers") >= 2


def test_nothing_that_comes_from_outside_is_read_as_html(gateway: StandIn, tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">"
    gateway.workers = [WORKER | {"id": evil, "state": evil, "models": [evil], "in_flight": evil}]
    gateway.decisions = [DECISION | {"worker": evil, "reason": evil, "key_depth": evil, "cached_tokens": evil}]
    seen = browse(gateway.url, tmp_path)
    assert seen.tables["workers"][1] == [evil, evil, NOTHING, "12,345", NOTHING, NOTHING, NOTHING, evil]
    assert seen.tables["decisions"][1][1:3] == [evil, evil]
    assert "<img" not in seen.html
    assert "<title>Prefix Router</title>" in seen.html


def test_without_the_token_only_the_form_is_shown(gateway: StandIn, tmp_path: Path) -> None:
    gateway.token = TOKEN
    seen = browse(gateway.url, tmp_path)
    assert "login" not in seen.hidden
    assert {"content", "pause"} <= seen.hidden
    assert seen.texts["status"] == "An admin token is needed"
    assert len([path for path, _ in gateway.asked if path == "/admin/workers"]) == 1  # it does not go on asking


def enter(token: str) -> str:
    """Somebody types a token once the form is there, and presses return."""
    return f"""setTimeout(() => {{
        document.getElementById("token").value = {token!r};
        document.getElementById("login").requestSubmit();
    }}, 800);"""


def test_a_token_that_is_entered_is_sent_and_kept_for_this_tab_only(gateway: StandIn, tmp_path: Path) -> None:
    gateway.token = TOKEN
    shows = """setInterval(() => {
        const kept = [{...sessionStorage}, {...localStorage}, document.cookie];
        document.body.dataset.kept = JSON.stringify(kept);
    }, 100);"""
    gateway.script = enter(TOKEN) + shows
    seen = browse(gateway.url, tmp_path)
    assert seen.tables["workers"][1][0] == "gpu-1:8000"
    assert "login" in seen.hidden
    assert ("/admin/decisions", f"Bearer {TOKEN}") in gateway.asked
    kept = re.search(r'data-kept="([^"]*)"', seen.html)
    assert kept is not None
    session, lasting, cookies = json.loads(kept[1].replace("&quot;", '"'))
    assert (list(session.values()), lasting, cookies) == ([TOKEN], {}, "")


def test_a_wrong_token_is_refused_and_forgotten(gateway: StandIn, tmp_path: Path) -> None:
    gateway.token = TOKEN
    gateway.script = enter("guess")
    seen = browse(gateway.url, tmp_path)
    assert seen.texts["alert"] == "The gateway refused this token."
    assert "login" not in seen.hidden


def test_trouble_is_announced(gateway: StandIn, tmp_path: Path) -> None:
    gateway.panic = True
    assert "Nearly all workers look bad" in browse(gateway.url, tmp_path).texts["alert"]


def test_a_gateway_that_fails_is_asked_again(gateway: StandIn, tmp_path: Path) -> None:
    gateway.status = 500
    seen = browse(gateway.url, tmp_path)
    assert seen.texts["alert"] == "Trying again: the gateway answered with status 500."
    assert [path for path, _ in gateway.asked].count("/admin/workers") >= 2


def test_pausing_stops_the_questions(gateway: StandIn, tmp_path: Path) -> None:
    gateway.script = 'setTimeout(() => document.getElementById("pause").click(), 300);'
    seen = browse(gateway.url, tmp_path)
    assert seen.texts["status"] == "Paused"
    assert 'aria-pressed="true"' in seen.html
    assert [path for path, _ in gateway.asked].count("/admin/workers") == 1


def test_a_narrow_window_does_not_scroll_sideways(gateway: StandIn, tmp_path: Path) -> None:
    """400 pixels; the tables may scroll within their own frames."""
    gateway.script = """
        if (window.top === window) {
            const frame = document.createElement("iframe");
            frame.src = "/";
            frame.style.cssText = "width:400px;height:800px;border:0";
            document.body.replaceChildren(frame);
            const width = () => frame.contentDocument.documentElement.scrollWidth;
            setInterval(() => { document.body.dataset.width = width(); }, 200);
        }"""
    gateway.decisions = [DECISION] * 5
    assert 'data-width="400"' in browse(gateway.url, tmp_path).html


def test_tables_can_be_read_aloud_and_reached_by_keyboard(gateway: StandIn, tmp_path: Path) -> None:
    html = browse(gateway.url, tmp_path).html
    assert html.count("<caption") == html.count("<table") == 3
    assert len(re.findall("<thead>.*?</thead>", html, re.S)) == 3
    assert all('scope="' in head for head in re.findall("<th [^>]*>|<th>", html))
    assert html.count('<section tabindex="0" aria-labelledby=') == 3
    assert '<html lang="en">' in html
    assert '<label for="token">' in html


def test_the_page_needs_nothing_from_outside() -> None:
    text = PAGE.read_text("utf-8")
    assert not re.findall(r"https?://|//[a-z]+\.[a-z]", text)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


@contextmanager
def program(*arguments: str) -> Iterator[str]:
    """One of the real programs, on a free port; its address."""
    command = [sys.executable, "-m", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.kill()


def test_the_real_gateway_is_shown_with_a_real_decision(tmp_path: Path) -> None:
    with program("backends", "mock") as worker, program("router", "serve", "--worker", worker) as url:
        body = {"messages": [{"role": "user", "content": "word " * 200}], "max_tokens": 4}
        for _ in range(100):
            if httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False).status_code == 200:
                break
            time.sleep(0.05)
        seen = browse(f"{url}/", tmp_path)
    name = worker.removeprefix("http://")
    assert seen.tables["workers"][1][:2] == [name, "ready"]
    assert seen.tables["workers"][1][4:] == ["0", "0", NOTHING, "mock-model"]
    _, chosen, reason, _, prompt, _, delivered, first = seen.tables["decisions"][1]
    assert (chosen, reason, delivered) == (name, "cold", "0")
    assert int(prompt) > 200
    assert first == NOTHING or first.endswith(" ms")
