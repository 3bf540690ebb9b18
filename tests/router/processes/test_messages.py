"""What parent and processes say to each other."""

from typing import Any

import msgspec
import pytest

from router.layers import load
from router.observe.snapshot import Snapshot
from router.processes import messages
from router.processes.messages import (
    Change,
    ProcessRow,
    decode_change,
    decode_outcome,
    decode_rows,
    decode_settings,
    encode,
    encode_settings,
    process_row,
)
from router.reload import Outcome
from router.sections.workers import WorkerSettings

GIVEN: dict[str, Any] = {
    "url": "http://user:pass@127.0.0.1:1/base", "api_key": "k", "labels": {"a": "b"}, "kv_events": "tcp://h:1",
    "models": ("m",), "max_in_flight": 3, "weight": 2.5,
}  # fmt: skip


def test_a_change_travels_with_all_that_the_worker_is() -> None:
    change = Change("add", "w", WorkerSettings(**GIVEN).worker())
    assert decode_change(encode(change)) == change
    assert decode_change(encode(Change("drain", "w"))) == Change("drain", "w")


def test_what_is_no_change_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_change(encode({"kind": "explode", "worker_id": "w"}))


def test_a_row_says_what_was_counted() -> None:
    sums = {"prefix_router_requests": {("p", "m", "200"): [2.0], ("p", "m", "500"): [1.0]}}
    row = process_row(1, 7, 1.23456, Snapshot(sums, {"in_flight": {("a",): [4.0], ("b",): [1.0]}}), answers=False)
    assert row == ProcessRow(1, 7, 1.235, 3, 5, False)
    assert decode_rows(encode([row])) == [row]


def test_no_two_kinds_have_one_name() -> None:
    kinds = [value for name, value in vars(messages).items() if name.isupper()]
    assert len(kinds) == 15
    assert len(set(kinds)) == 15


def test_settings_travel_with_their_secrets_and_origins() -> None:
    loaded = load([("file", {"admin_token": "secret", "workers": ["http://w:1"], "queue": {"max": 7}})], {})
    assert decode_settings(encode_settings(*loaded)) == loaded


def test_the_outcome_of_a_reload_travels() -> None:
    outcome = Outcome(("queue.max",), ("share",), ("a: b",))
    assert decode_outcome(encode(outcome)) == outcome
