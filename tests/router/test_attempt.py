"""One try at one worker: what it holds is given back once, whatever the way it ends."""

import pytest

from router.attempt import MOST_HELD
from router.errors import BrokenAnswer, FirstByteTimeout
from tests.support.client import STREAM
from tests.support.stories import EVENT_HEAD, JSON_HEAD, Desk


@pytest.mark.parametrize("ending", ["end", "failure", "cancel", "cancel after the end"])
async def test_the_lease_goes_back_once(ending: str) -> None:
    desk = Desk(1)
    desk.ask()
    desk.ask()
    attempt = desk.sent[0].attempt
    attempt.on_head(200, JSON_HEAD, 2)
    if ending == "end" or ending == "cancel after the end":
        attempt.on_end()
    elif ending == "failure":
        attempt.on_failure(BrokenAnswer("broke"))
    if "cancel" in ending:
        attempt.cancel()
        attempt.cancel()
    assert desk.seats[0].load.in_flight == 1
    desk.sent[1].answers()
    assert desk.at_rest()


async def test_the_phases_are_told_apart() -> None:
    desk = Desk(1)
    desk.ask()
    attempt, connection = desk.sent[0].attempt, desk.sent[0].connection
    connection.is_open = False
    assert attempt.phase == "connecting"
    connection.is_open = True
    assert attempt.phase == "waiting"
    attempt.on_head(200, JSON_HEAD, None)
    assert attempt.phase == "streaming"


async def test_one_json_answer_frees_the_prefill_at_its_head_and_a_stream_does_not() -> None:
    desk = Desk(2)
    desk.ask(STREAM)
    desk.sent[0].attempt.on_head(200, EVENT_HEAD, None)
    assert desk.seats[0].load.charged > 0
    desk.sent[0].attempt.cancel()
    desk.ask()
    desk.sent[1].attempt.on_head(200, JSON_HEAD, None)
    assert desk.seats[0].load.charged == 0
    assert desk.seats[0].load.in_flight == 1


async def test_a_busy_answer_is_held_while_another_could_be_asked() -> None:
    desk = Desk(2)
    _, sink = desk.ask()
    attempt = desk.sent[0].attempt
    attempt.on_head(503, JSON_HEAD, None)
    attempt.on_body([b"busy"])
    attempt.on_read()
    assert sink.told == []
    assert attempt.held is not None
    attempt.on_end()
    assert desk.chosen == ["w0", "w1"]


async def test_a_busy_answer_is_passed_on_where_nobody_else_is_left() -> None:
    desk = Desk(1)
    _, sink = desk.ask()
    desk.sent[0].answers(503, JSON_HEAD, b"busy")
    assert sink.told == ["head 503", "body", "end"]


async def test_what_is_held_is_bounded() -> None:
    desk = Desk(2)
    _, sink = desk.ask()
    attempt = desk.sent[0].attempt
    attempt.on_head(429, JSON_HEAD, None)
    attempt.on_body([b"x" * MOST_HELD])
    assert sink.told == []
    attempt.on_body([b"y"])
    assert sink.told == ["head 429", "body", "body"]
    attempt.on_end()
    assert sink.data == b"x" * MOST_HELD + b"y"
    assert desk.chosen == ["w0"]


async def test_a_held_answer_that_breaks_off_is_turned_away_all_the_same() -> None:
    desk = Desk(2)
    desk.ask()
    attempt = desk.sent[0].attempt
    attempt.on_head(503, JSON_HEAD, 100)
    attempt.on_failure(BrokenAnswer("broke"))
    assert desk.chosen == ["w0", "w1"]


@pytest.mark.parametrize(("status", "state"), [(200, "ready"), (404, "ready"), (429, "ready"), (503, "ready"),
                                               (500, "suspect"), (502, "suspect")])  # fmt: skip
async def test_only_faults_speak_against_a_worker(status: int, state: str) -> None:
    desk = Desk(1)
    desk.ask()
    desk.sent[0].answers(status)
    assert desk.seats[0].health.state.value == state


@pytest.mark.parametrize("status", [429, 503])
async def test_back_pressure_makes_a_worker_less_wanted_for_as_long_as_it_asks(status: int) -> None:
    desk = Desk(2)
    desk.ask()
    desk.sent[0].answers(status, [*JSON_HEAD, (b"retry-after", b"5")])
    assert desk.seats[0].health.pressed_until >= 5.0
    assert desk.seats[1].health.pressed_until == 0.0


async def test_a_failure_before_the_answer_is_told_to_the_story() -> None:
    desk = Desk(1)
    _, sink = desk.ask()
    desk.sent[0].attempt.on_failure(FirstByteTimeout("nothing"))
    assert sink.status == 504
    assert desk.failures == [("w0", "first_byte_timeout", False)]
