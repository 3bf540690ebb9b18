"""How a frame looks, in a terminal of 80 columns."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from router.top_samples import Samples
from router.top_screen import frame, one_object
from router.top_view import Scrape, View, view

WORKER = {
    "id": "127.0.0.1:40013", "state": "draining", "in_flight": 1024, "outstanding_tokens": 123456,
    "wait_tokens": 99_949, "prefill_tokens_per_second": 123456,
}  # fmt: skip
DECISION = {
    "worker": "127.0.0.1:40013", "reason": "session", "age_seconds": 1000.5, "key_depth": 65536,
    "prompt_tokens": 120_000, "predicted_cached_tokens": 99_999, "cached_tokens": 100_000, "first_token_seconds": 12.34,
}  # fmt: skip
METRICS = """
prefix_router_predicted_cached_tokens_total{worker="127.0.0.1:40013"} 999900000
prefix_router_cached_tokens_total{worker="127.0.0.1:40013"} 1234567
prefix_router_decisions_total{policy="prefix_bounded",reason="home"} 99999
prefix_router_requests_total 123456
prefix_router_shadow_decisions_total{policy="least_work",differs="true"} 1
prefix_router_affinity_saved_tokens_total 45678
"""


def seen(workers: list[dict[str, Any]], decisions: list[dict[str, Any]], *, panic: bool = False) -> View:
    first = Scrape(0.0, workers, panic, [], Samples(""))
    return view(first, Scrape(1.0, workers, panic, decisions, Samples(METRICS)))


def drawn(shown: View | None, trouble: str | None = None, width: int = 80, height: int | None = 24) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False, highlight=False)
    console.print(frame("http://gw:8080", shown, trouble, height))
    return out.getvalue().splitlines()


def test_the_largest_figures_fit_into_80_columns() -> None:
    lines = drawn(seen([WORKER], [DECISION]))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "\u2026" not in text
    for word in ("127.0.0.1:40013", "draining", "123k", "99.9k", "1.2M/1.0G", "session", "12.3 s", "home 100%"):
        assert word in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_long_name_is_cut_and_the_figures_are_not(width: int) -> None:
    name = "gpu-node-17.inference.cluster.internal.example.com:8000"
    text = "\n".join(drawn(seen([WORKER | {"id": name}], [DECISION | {"worker": name}]), width=width))
    assert "draining" in text
    assert (name in text) == (width >= 160)


def test_as_many_decisions_are_shown_as_there_is_room_for() -> None:
    shown = seen([WORKER] * 3, [DECISION] * 50)
    for height in (24, 40):
        lines = drawn(shown, "no gateway answers", height=height)
        assert len(lines) <= height
        assert sum("session" in line for line in lines) > 3
    assert sum("session" in line for line in drawn(shown, height=None)) == 10


def test_trouble_and_panic_stand_above_the_figures() -> None:
    lines = drawn(seen([WORKER], [], panic=True), "no gateway answers at http://gw:8080; trying again")
    assert lines[1].startswith("no gateway answers")
    assert lines[2].startswith("Nearly all workers look bad")
    assert drawn(None, "no gateway answers")[1:] == ["no gateway answers"]


def test_a_shadow_and_what_affinity_saved_are_told() -> None:
    text = "\n".join(drawn(seen([WORKER], [DECISION])))
    assert "least_work differs in 100%" in text
    assert "affinity has saved 45.7k tokens" in text


def test_an_empty_gateway_says_so() -> None:
    text = "\n".join(drawn(seen([], [])))
    assert "no worker is known" in text
    assert "no request yet" in text


def test_what_comes_from_outside_is_neither_markup_nor_control() -> None:
    evil = "[red]\x1b[2J\r\n\x07"
    text = "\n".join(drawn(seen([WORKER | {"id": evil, "state": evil}], [DECISION | {"worker": evil}]), width=120))
    assert "[red]?[2J" in text
    assert not {"\x1b", "\x07", "\r"} & set(text)


def test_one_object_is_one_line() -> None:
    line = one_object("http://gw:8080", seen([WORKER], [DECISION]), None)
    said = json.loads(line)
    assert "\n" not in line
    assert "error" not in said
    assert (said["url"], said["workers"][0]["id"]) == ("http://gw:8080", "127.0.0.1:40013")
    assert json.loads(one_object("u", None, "gone")) == {"url": "u", "error": "gone"}
