"""The soak in its short form: every answer is read and judged while workers and a process of the gateway die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.soak import beyond_bounds
from bench.soak_client import Outcome
from bench.soak_load import Request, fault_of

ROOT = Path(__file__).parents[2]
SECONDS = 25
JSON = Request("json", b"{}", 4, stream=False, known=True)
STREAM = Request("stream", b"{}", 4, stream=True, known=True)


def outcome(body: bytes, *, status: int = 200, whole: bool = True, request_id: str = "a") -> Outcome:
    return Outcome(began=0.0, status=status, body=bytearray(body), whole=whole, request_id=request_id)


def chat(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def event(text: str, finish: str | None = None) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}).encode() + b"\n\n"
    )


WHOLE = event("one ") + event("two", "length") + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("request_", "came", "fault"),
    [
        (JSON, outcome(chat("one two")), ""),
        (JSON, outcome(chat("another")), "another text"),
        (JSON, outcome(chat("one two"), request_id="b"), "the answer to b came to a"),
        (JSON, outcome(b"{}"), "no answer"),
        (JSON, outcome(b"no json"), "no answer"),
        (STREAM, outcome(WHOLE), ""),
        (STREAM, outcome(WHOLE + event("more")), "no answer: ValueError no [DONE]"),
        (STREAM, outcome(event("one ") + event("two") + b"data: [DONE]\n\n"), "no answer: ValueError no finish"),
        (STREAM, outcome(event("one ", "length") + b"data: [DONE]\n\n"), "another text"),
        (STREAM, outcome(WHOLE, whole=False), ""),  # a cut is judged by whose death it was
        (JSON, outcome(b"busy", status=503), ""),
    ],
)
def test_an_answer_is_wrong_when_it_is_not_what_a_worker_apart_says(
    request_: Request, came: Outcome, fault: str
) -> None:
    found = fault_of(request_, came, "a", "one two")
    assert found == fault if not fault else found.startswith(fault)


@pytest.mark.parametrize(
    ("name", "value"), [("requests_per_second", 299.0), ("memory_ratio", 1.2), ("worst_health_seconds", 0.3)]
)
def test_a_long_soak_also_has_bounds_on_speed_memory_and_health(name: str, value: float) -> None:
    well = {"requests_per_second": 400.0, "memory_ratio": 1.0, "worst_health_seconds": 0.05}
    assert beyond_bounds(well) == []
    assert len(beyond_bounds(well | {name: value})) == 1


@pytest.mark.xdist_group("soak")
def test_nothing_is_lost_and_no_answer_is_wrong_while_things_go_wrong() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--short", "--json", "--seconds", str(SECONDS), "--rate", "120"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.stdout, run.stderr[-2000:]
    report: dict[str, Any] = json.loads(run.stdout)
    assert report["faults"] == []
    assert run.returncode == 0
    assert report["troubles"]["killed"] >= 1
    assert report["troubles"]["process killed"] == 1
    assert report["answered"] > 200
    assert (report["lost"], report["wrong"], report["refused"], report["leases_left"]) == (0, 0, 0, 0)
