"""A broken stream is taken up by the next worker, or cut; whatever happens, all that was taken goes back."""

import json
from typing import Any

import pytest

from router.errors import (
    AttemptError,
    BrokenAnswer,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    LocalTrouble,
    Unreachable,
)
from router.events import Resumed
from router.resuming import goes_on_with_chats
from tests.support.stories import EVENT_HEAD, JSON_HEAD, Desk, Sent

PATH = "/v1/completions"
BODY = json.dumps({"model": "m", "stream": True, "prompt": "Once", "max_tokens": 9}).encode()
DONE = b"data: [DONE]\n\n"


def event(text: str, reason: str | None = None) -> bytes:
    chunk = {"id": "a", "choices": [{"index": 0, "text": text, "finish_reason": reason}]}
    return b"data: %s\n\n" % json.dumps(chunk).encode()


def desk_of(workers: int = 3, **routing: Any) -> Desk:
    return Desk(workers, routing={"policy": "tests.support.in_order", "resume": True, **routing})


def begins(sent: Sent, *pieces: bytes) -> None:
    sent.answers(200, EVENT_HEAD, *pieces, end=False)


def told(desk: Desk) -> list[tuple[str, str]]:
    return [(each.worker, each.result) for each in desk.told(Resumed)]


async def test_the_first_lease_goes_back_before_the_second_is_taken() -> None:
    desk = desk_of()
    desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    assert [seat.load.in_flight for seat in desk.seats] == [1, 0, 0]
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    assert [seat.load.in_flight for seat in desk.seats] == [0, 1, 0]
    assert (desk.seats[1].load.waiting, desk.seats[1].load.charged > 0) == (1, True)
    begins(desk.sent[1], event("y"))
    assert (desk.seats[1].load.waiting, desk.seats[1].load.charged) == (0, 0.0)
    desk.sent[1].attempt.on_end()
    assert desk.at_rest()


async def test_the_rest_is_asked_for_on_a_fresh_connection() -> None:
    desk = desk_of()
    _, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"), event("y"))
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    second = desk.sent[1]
    assert (second.worker, second.fresh) == ("w1", True)
    assert json.loads(second.body) == {"model": "m", "stream": True, "prompt": "Oncexy", "max_tokens": 7}
    assert b"content-length: %d" % len(second.body) in second.lines()
    begins(second, event("z"), DONE)
    second.attempt.on_end()
    assert sink.told.count("head 200") == 1
    assert sink.data.startswith(event("x") + event("y") + b": resumed at w1\n\n")
    assert [json.loads(line[6:]) for line in sink.data.splitlines() if line.startswith(b"data: {")] == [
        json.loads(event(text)[6:]) for text in "xyz"
    ]
    assert sink.data.endswith(DONE)
    assert (desk.finished.resumed, desk.finished.worker, desk.finished.reason) == (1, "w1", "retry")
    assert desk.failures == [("w0", "broken", True)]
    assert told(desk) == [("w1", "went_on")]


GONE_ON = [BrokenAnswer("x"), IdleTimeout("x"), Unreachable("x"), ConnectTimeout("x")]
NOT_GONE_ON = [FirstByteTimeout("x"), LocalTrouble("x")]


@pytest.mark.parametrize("failure", GONE_ON + NOT_GONE_ON, ids=lambda failure: failure.kind)
async def test_which_failures_of_the_second_lead_to_a_third(failure: AttemptError) -> None:
    desk = desk_of()
    _, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    desk.sent[1].attempt.on_failure(failure)
    goes_on = failure in GONE_ON
    assert desk.chosen == ["w0", "w1", "w2"][: 2 + goes_on]
    assert ("abort" in sink.told) is not goes_on
    assert desk.failures[-1] == ("w1", failure.kind, goes_on)
    if goes_on:
        begins(desk.sent[2], event("y"))
        desk.sent[2].attempt.on_end()
        assert sink.told[-1] == "end"
    assert desk.at_rest()


@pytest.mark.parametrize("status", [503, 429, 500, 502])
async def test_a_worker_that_is_busy_or_at_fault_is_passed_over(status: int) -> None:
    desk = desk_of()
    desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    desk.sent[1].attempt.on_head(status, JSON_HEAD, None)
    assert desk.sent[1].connection.told == ["cancel"]
    assert desk.failures[-1] == ("w1", f"status_{status}", True)
    assert desk.seats[1].health.state.value == ("ready" if status in (503, 429) else "suspect")
    begins(desk.sent[2], event("y"))
    desk.sent[2].attempt.on_end()
    assert desk.at_rest()


@pytest.mark.parametrize(
    ("status", "headers"),
    [(400, JSON_HEAD), (200, JSON_HEAD), (206, EVENT_HEAD), (200, [*EVENT_HEAD, (b"content-encoding", b"gzip")])],
)
async def test_an_answer_that_is_no_such_stream_ends_it(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    desk = desk_of()
    _, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    desk.sent[1].attempt.on_head(status, headers, None)
    assert (sink.told[-1], sink.data) == ("abort", event("x"))
    assert desk.sent[1].connection.told == ["cancel"]
    assert (desk.finished.cut, desk.finished.resumed) == (True, 0)
    assert told(desk) == [("w1", "cut")]
    assert desk.at_rest()


async def test_tries_are_bounded() -> None:
    desk = desk_of(9, max_tries=2)
    _, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    begins(desk.sent[1], event("y"))
    desk.sent[1].attempt.on_failure(BrokenAnswer("gone"))
    assert (desk.chosen, sink.told[-1]) == (["w0", "w1"], "abort")
    assert (desk.finished.cut, desk.finished.resumed, desk.finished.tries) == (True, 1, 2)
    assert told(desk) == [("w1", "went_on"), ("w1", "cut")]


async def test_what_was_said_whole_is_not_asked_for_again() -> None:
    desk = desk_of()
    _, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], *[event("x")] * 9)
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    assert (desk.chosen, sink.told[-1]) == (["w0"], "abort")


async def test_no_other_worker_is_asked_once_the_end_was_told() -> None:
    desk = desk_of()
    journey, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"), event("", "stop"))
    assert journey.followed is None
    assert (journey.body, journey.ask and journey.ask.text) == (b"", b"")  # let go
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    assert (desk.chosen, sink.told[-1]) == (["w0"], "abort")


async def test_a_client_that_leaves_meanwhile_gives_all_back() -> None:
    desk = desk_of()
    journey, _ = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    journey.cancel()
    assert desk.sent[1].connection.told == ["cancel"]
    assert (desk.finished.status, desk.finished.cut) == (499, False)
    assert desk.at_rest()


async def test_a_fault_of_the_gateways_own_cuts_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = desk_of()
    _, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    monkeypatch.setattr(desk.house, "pool", lambda seat: 1 / 0)
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    assert sink.told[-1] == "abort"
    assert desk.at_rest()


def full_desk(**settings: Any) -> Desk:
    """Two workers with room for one request each, and one there."""
    routing = {"policy": "tests.support.in_order", "resume": True}
    desk = Desk(2, each={"max_in_flight": 1}, routing=routing, **settings)
    desk.ask(BODY, path=PATH)
    desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    return desk


async def test_where_all_are_full_it_waits_its_turn() -> None:
    desk = full_desk()
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    assert (desk.chosen, len(desk.house.room)) == (["w0", "w1"], 1)
    desk.sent[1].answers(200, EVENT_HEAD, DONE)
    desk.house.pump()
    assert (desk.sent[2].worker, json.loads(desk.sent[2].body)["prompt"]) == ("w1", "Oncex")
    begins(desk.sent[2], event("y"))
    desk.sent[2].attempt.on_end()
    assert told(desk) == [("w1", "went_on")]
    assert desk.at_rest()


async def test_its_time_in_the_queue_may_be_up() -> None:
    desk = full_desk()
    sink = desk.sent[0].attempt.journey.sink
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    desk.now += 31
    desk.house.room.expire(desk.now)
    assert (len(desk.house.room), sink.told[-1], sink.told.count("head 200")) == (0, "abort", 1)
    desk.sent[1].answers(200, EVENT_HEAD, DONE)
    assert desk.at_rest()


async def test_a_full_queue_has_no_place_for_it() -> None:
    desk = full_desk(queue={"max": 0})
    sink = desk.sent[0].attempt.journey.sink
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    assert (sink.told[-1], told(desk)) == ("abort", [("w0", "cut")])
    desk.sent[1].answers(200, EVENT_HEAD, DONE)
    assert desk.at_rest()


async def test_a_client_may_leave_the_queue() -> None:
    desk = full_desk()
    journey = desk.sent[0].attempt.journey
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    journey.cancel()
    assert len(desk.house.room) == 0
    desk.sent[1].answers(200, EVENT_HEAD, DONE)
    assert desk.at_rest()


async def test_the_last_worker_may_go_while_it_waits() -> None:
    desk = full_desk()
    sink = desk.sent[0].attempt.journey.sink
    desk.sent[0].attempt.on_failure(BrokenAnswer("gone"))
    desk.sent[1].answers(200, EVENT_HEAD, DONE, end=False)
    desk.house.reconcile([])
    desk.house.pumping = True
    desk.house.pump()
    assert (len(desk.house.room), sink.told[-1]) == (0, "abort")
    desk.sent[1].attempt.on_end()


async def test_what_an_engine_is_stands_in_its_label_or_its_model_list() -> None:
    seat = Desk(1).seats[0]
    assert not goes_on_with_chats(seat)
    for engine in ("vllm", "sglang", "llamacpp"):
        seat.engine = engine
        assert goes_on_with_chats(seat)
    seat.engine = "somebody"
    assert not goes_on_with_chats(seat)
    [labelled] = Desk(1, each={"labels": {"engine": "vllm"}}).seats
    labelled.engine = "somebody"
    assert goes_on_with_chats(labelled)
    [denied] = Desk(1, each={"labels": {"engine": "none"}}).seats
    denied.engine = "vllm"
    assert not goes_on_with_chats(denied)


@pytest.mark.parametrize("resume", [True, False])
async def test_the_head_says_whether_it_could_be(resume: bool) -> None:
    desk = desk_of(resume=resume)
    journey, sink = desk.ask(BODY, path=PATH)
    begins(desk.sent[0], event("x"))
    assert sink.headers.get(b"x-router-resumable") == (b"true" if resume else None)
    assert (journey.followed is not None) is resume
    desk.sent[0].attempt.on_end()
