"""The latest decisions, put together when somebody asks."""

import json
from typing import Any

from router.events import Chosen, Finished
from router.observe.bus import Bus
from router.observe.decisions import LATEST, Decisions, joined


def chosen(name: str = "r1", at: float = 10.0, **fields: Any) -> Chosen:
    given = {"worker": "w1", "model": "m", "reason": "home", "key_depth": 64, "prompt_tokens": 100}
    return Chosen(**{"request_id": name, **given, "predicted_cached_tokens": 80, "passed": ("w2",), "at": at, **fields})


def kept(*events: Chosen | Finished, now: float = 12.5, **options: Any) -> list[dict[str, Any]]:
    bus = Bus()
    decisions = Decisions(bus, lambda: now, **options)
    for event in events:
        bus.emit(event)
    return decisions.latest()


def test_a_choice_tells_its_age_and_not_its_moment() -> None:
    (row,) = kept(chosen())
    assert row["age_seconds"] == 2.5
    assert "at" not in row
    assert {"request_id": "r1", "worker": "w1", "reason": "home", "predicted_cached_tokens": 80}.items() <= row.items()
    assert "status" not in row


def test_once_it_has_ended_it_tells_how() -> None:
    end = Finished("r1", "/p", "m", 200, cached_tokens=70, first_token_seconds=0.2, seconds=1.5)
    (row,) = kept(chosen(), end)
    assert (row["status"], row["cached_tokens"], row["first_token_seconds"], row["seconds"]) == (200, 70, 0.2, 1.5)


def test_the_newest_stands_first_and_every_attempt_has_its_row() -> None:
    rows = kept(chosen("r1"), chosen("r2"), chosen("r2", worker="w3", reason="retry"))
    assert [(row["request_id"], row["worker"]) for row in rows] == [("r2", "w3"), ("r2", "w1"), ("r1", "w1")]


def test_only_so_many_are_kept() -> None:
    rows = kept(*(chosen(f"r{at}") for at in range(LATEST + 10)))
    assert len(rows) == LATEST
    assert rows[0]["request_id"] == f"r{LATEST + 9}"
    assert len(kept(*(chosen() for _ in range(9)), latest=4)) == 4


def test_those_of_several_processes_are_joined_by_their_age() -> None:
    one, other = kept(chosen("r1", 1.0), chosen("r3", 3.0)), kept(chosen("r2", 2.0), chosen("r4", 4.0))
    assert [row["request_id"] for row in joined([one, other])] == ["r4", "r3", "r2", "r1"]
    assert [row["request_id"] for row in joined([one, other], latest=1)] == ["r4"]
    assert joined([]) == []


def test_a_request_that_chose_nobody_has_no_row() -> None:
    assert kept(Finished("r9", "/p", "", 503, code="no_ready_worker")) == []


def test_the_rows_are_plain_json_and_have_no_field_for_a_prompt() -> None:
    rows = kept(chosen(), Finished("r1", "/p", "m", 200, tenant="t", hashes=(1, 2)))
    assert json.loads(json.dumps(rows))[0] == {**rows[0], "passed": ["w2"]}
    assert not {"prompt", "text", "body", "messages", "hashes", "key"} & set(rows[0])
