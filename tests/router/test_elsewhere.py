"""Another worker, where the law allows, or the client is told."""

import pytest

from router.errors import (
    AttemptError,
    BrokenAnswer,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    LocalTrouble,
    NotSent,
    StaleConnection,
    Unreachable,
)
from tests.support.stories import JSON_HEAD, Desk

CERTAIN = [Unreachable("refused"), ConnectTimeout("late"), LocalTrouble("no socket"), NotSent("it waited")]
UNCERTAIN = [BrokenAnswer("broke"), FirstByteTimeout("nothing"), IdleTimeout("silence")]


@pytest.mark.parametrize("failure", CERTAIN, ids=lambda failure: failure.kind)
async def test_what_certainly_did_not_run_is_tried_elsewhere(failure: AttemptError) -> None:
    desk = Desk(2)
    _, sink = desk.ask()
    desk.sent[0].attempt.on_failure(failure)
    assert desk.chosen == ["w0", "w1"]
    desk.sent[1].answers(200, None, b"{}")
    assert (sink.status, sink.headers[b"x-router-reason"]) == (200, b"retry")
    assert desk.failures == [("w0", failure.kind, True)]
    assert desk.at_rest()


@pytest.mark.parametrize("failure", UNCERTAIN, ids=lambda failure: failure.kind)
async def test_what_may_have_run_is_not(failure: AttemptError) -> None:
    desk = Desk(2)
    _, sink = desk.ask()
    desk.sent[0].attempt.on_failure(failure)
    assert desk.chosen == ["w0"]
    assert sink.status == failure.answer.status
    assert desk.failures == [("w0", failure.kind, False)]
    assert desk.at_rest()


@pytest.mark.parametrize("failure", [*CERTAIN, *UNCERTAIN], ids=lambda failure: failure.kind)
async def test_after_the_head_nothing_is_tried_again(failure: AttemptError) -> None:
    desk = Desk(2)
    _, sink = desk.ask()
    desk.sent[0].answers(200, None, b"{", end=False)
    desk.sent[0].attempt.on_failure(failure)
    assert desk.chosen == ["w0"]
    assert sink.told == ["head 200", "body", "flush", "abort"]
    assert (desk.finished.status, desk.finished.cut) == (200, True)


@pytest.mark.parametrize(("failure", "status"), [(CERTAIN[0], 503), (CERTAIN[1], 504), (CERTAIN[2], 503)])
async def test_when_nobody_is_left_the_last_failure_is_named(failure: AttemptError, status: int) -> None:
    desk = Desk(3)
    _, sink = desk.ask()
    for at in range(3):
        desk.sent[at].attempt.on_failure(failure)
    assert desk.chosen == ["w0", "w1", "w2"]
    assert sink.status == status


async def test_refusals_do_not_count_as_tries_and_busy_answers_do() -> None:
    desk = Desk(6)
    desk.house.max_tries = 2
    _, sink = desk.ask()
    for at in range(3):
        desk.sent[at].attempt.on_failure(Unreachable("refused"))
    for at in (3, 4):
        desk.sent[at].answers(503, JSON_HEAD, b"busy")
    assert desk.chosen == ["w0", "w1", "w2", "w3", "w4"]
    assert sink.status == 503
    assert sink.data == b"busy"


async def test_a_held_answer_is_passed_on_when_the_rest_cannot_be_reached() -> None:
    desk = Desk(2)
    _, sink = desk.ask()
    desk.sent[0].answers(429, [*JSON_HEAD, (b"retry-after", b"9")], b"slow", b" down")
    desk.sent[1].attempt.on_failure(Unreachable("refused"))
    assert sink.told == ["head 429", "body", "body", "end"]
    assert (sink.data, sink.length) == (b"slow down", 9)
    assert (sink.headers[b"retry-after"], sink.headers[b"x-router-worker"]) == (b"9", b"w0")
    assert desk.finished.worker == "w0"


async def test_a_stale_connection_is_replaced_by_a_fresh_one_to_the_same_worker() -> None:
    desk = Desk(2)
    desk.ask()
    desk.sent[0].attempt.on_failure(StaleConnection("closed"))
    assert desk.chosen == ["w0", "w0"]
    assert [sent.fresh for sent in desk.sent] == [False, True]
    assert desk.seats[0].health.state.value == "ready"
    desk.sent[1].answers()
    assert desk.at_rest()


async def test_after_a_stale_connection_a_request_goes_nowhere_else() -> None:
    """A request that kills its worker at once looks the same, and must not walk the fleet."""
    desk = Desk(6)
    _, sink = desk.ask()
    while not sink.told:
        sent = desk.sent[-1]
        sent.attempt.on_failure(Unreachable("refused") if sent.fresh else StaleConnection("closed"))
    assert desk.chosen == ["w0", "w0"]
    assert sink.status == 502
    assert desk.at_rest()


async def test_a_worker_that_is_gone_is_held_to_have_lost_its_cache() -> None:
    desk = Desk(2)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"text " * 500 + b'"}]}'
    desk.ask(body)
    desk.sent[0].answers()
    journey, _ = desk.ask(body)
    assert journey.ask is not None
    assert set(journey.ask.held) == {"w0"}
    desk.sent[1].attempt.on_failure(Unreachable("refused"))
    desk.sent[2].answers()
    later, _ = desk.ask(body)
    assert later.ask is not None
    assert set(later.ask.held) == {"w1"}


async def test_trouble_of_the_gateways_own_speaks_against_nobody() -> None:
    desk = Desk(1)
    desk.ask()
    desk.sent[0].attempt.on_failure(LocalTrouble("no socket"))
    assert desk.seats[0].health.state.value == "ready"


# A worker that failed is not idle.


@pytest.mark.parametrize("failure", [*CERTAIN, *UNCERTAIN], ids=lambda failure: failure.kind)
async def test_a_failure_stands_for_a_wait_unless_it_was_ours(failure: AttemptError) -> None:
    desk = Desk(2)
    desk.ask()
    desk.sent[0].attempt.on_failure(failure)
    penalised = desk.seats[0].load.wait(desk.now)
    assert (penalised > 0) is not isinstance(failure, (LocalTrouble, NotSent))
    desk.now += 60
    assert desk.seats[0].load.wait(desk.now) < 1


async def test_a_kept_connection_that_broke_says_nothing_against_the_worker() -> None:
    desk = Desk(1)
    desk.ask()
    desk.sent[0].attempt.on_failure(StaleConnection("closed while idle"))
    desk.sent[1].answers(200, None, b"{}")
    assert desk.seats[0].load.wait(desk.now) == 0


@pytest.mark.parametrize(("status", "counts"), [(500, True), (502, True), (400, False), (404, False), (429, False)])
async def test_an_answer_that_says_the_worker_is_broken_stands_for_a_wait_too(status: int, counts: bool) -> None:
    desk = Desk(1)
    desk.ask()
    desk.sent[0].answers(status, None, b"{}")
    assert (desk.seats[0].load.wait(desk.now) > 0) is counts
