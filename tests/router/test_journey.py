"""One request's life, step by step, without a socket."""

import pytest

from router.errors import IdleTimeout
from router.events import Chosen, FirstToken
from tests.support.client import HELLO, STREAM
from tests.support.stories import EVENT_HEAD, JSON_HEAD, Desk
from tests.support.worker import DONE, event


async def test_an_answer_passes_in_order_and_everything_goes_back() -> None:
    desk = Desk()
    _, sink = desk.ask(STREAM)
    attempt = desk.sent[0].attempt
    assert desk.seats[0].load.in_flight == 1
    attempt.on_head(200, EVENT_HEAD, None)
    attempt.on_body([event("1"), event("2")])
    attempt.on_read()
    attempt.on_body([DONE])
    attempt.on_end()
    assert sink.told == ["head 200", "body", "body", "flush", "body", "end"]
    assert sink.data == event("1") + event("2") + DONE
    assert sink.headers[b"x-router-worker"] == b"w0"
    assert desk.at_rest()
    assert (desk.finished.status, desk.finished.tries, desk.finished.cut) == (200, 1, False)


async def test_a_body_in_pieces_is_joined_once_it_is_whole() -> None:
    desk = Desk()
    journey, _ = desk.open()
    for at in range(0, len(HELLO), 5):
        journey.feed(HELLO[at : at + 5])
        assert desk.sent == []
    journey.complete()
    assert desk.sent[0].body == HELLO
    assert journey.size == len(HELLO)


async def test_the_first_token_is_told_once_and_ends_the_charge() -> None:
    desk = Desk()
    desk.ask(STREAM)
    attempt = desk.sent[0].attempt
    attempt.on_head(200, EVENT_HEAD, None)
    attempt.on_body([event("")])
    assert desk.told(FirstToken) == []
    assert desk.seats[0].load.charged > 0
    desk.now = 1.5
    attempt.on_body([event("1"), event("2")])
    attempt.on_body([event("3")])
    assert [told.seconds for told in desk.told(FirstToken)] == [1.5]
    assert desk.seats[0].load.charged == 0
    attempt.on_end()
    assert desk.finished.first_token_seconds == 1.5


@pytest.mark.parametrize("step", ["begun", "whole", "answering"])
async def test_leaving_gives_everything_back_and_nothing_more_is_said(step: str) -> None:
    desk = Desk()
    journey, sink = desk.open() if step == "begun" else desk.ask()
    if step == "answering":
        desk.sent[0].answers(200, None, b"{", end=False)
    before = list(sink.told)
    journey.cancel()
    journey.cancel()
    assert desk.at_rest()
    assert [sent.connection.told for sent in desk.sent] == ([["cancel"]] if desk.sent else [])
    phases = {"begun": "receiving", "whole": "waiting", "answering": "streaming"}
    assert (desk.finished.status, desk.finished.cancelled_in) == (499, phases[step])
    journey.feed(b"late")
    journey.complete()
    journey.late()
    assert sink.told == before


async def test_leaving_while_it_connects_says_so() -> None:
    desk = Desk()
    journey, _ = desk.ask()
    desk.sent[0].connection.is_open = False
    journey.cancel()
    assert desk.finished.cancelled_in == "connecting"


async def test_a_refusal_has_the_dialects_form_and_ends_the_story() -> None:
    desk = Desk()
    journey, sink = desk.ask(b"{", path="/v1/messages")
    assert sink.told == ["head 400", "body", "end"]
    assert sink.data.startswith(b'{"type":"error"')
    assert sink.length == len(sink.data)
    assert sink.headers[b"x-request-id"]
    assert b"x-router-worker" not in sink.headers
    journey.complete()
    assert desk.finished.code == "invalid_json"


async def test_a_body_that_is_too_long_is_refused_where_it_becomes_so() -> None:
    desk = Desk(limits={"body_bytes": 10})
    declared, sink = desk.open([(b"content-length", b"11")])
    assert sink.told == ["head 413", "body", "end"]
    journey, sink = desk.open()
    journey.feed(b"12345")
    journey.feed(b"67890")
    assert sink.told == []
    journey.feed(b"1")
    journey.feed(b"2")
    assert sink.told == ["head 413", "body", "end"]
    declared.complete()
    journey.complete()
    assert desk.sent == []


async def test_a_fault_of_the_gateways_own_is_a_500_and_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(desk.house.mind.policy, "order", broken)
    _, sink = desk.ask()
    assert sink.status == 500
    assert b"a fault" not in sink.data
    assert desk.at_rest()
    assert desk.finished.code == "internal_error"


async def test_a_slow_client_pauses_the_worker_that_answers() -> None:
    desk = Desk()
    journey, _ = desk.open()
    journey.pause()
    journey.feed(HELLO)
    journey.complete()
    journey.pause()
    journey.resume()
    assert desk.sent[0].connection.told == ["pause", "resume"]
    desk.sent[0].answers()
    journey.pause()
    assert desk.sent[0].connection.told == ["pause", "resume"]


async def test_times_count_from_the_requests_first_byte() -> None:
    desk = Desk()
    desk.now = 10.0
    journey, _ = desk.open()
    desk.now = 12.0
    journey.feed(HELLO)
    journey.complete()
    desk.now = 13.0
    desk.sent[0].answers(200, JSON_HEAD, b"{}", end=False)
    desk.now = 17.0
    desk.sent[0].attempt.on_end()
    assert (desk.finished.first_byte_seconds, desk.finished.seconds) == (3.0, 7.0)


async def test_a_story_lets_go_of_its_attempt_at_its_end() -> None:
    desk = Desk()
    journey, sink = desk.ask()
    desk.sent[0].answers(200, None, b"{", end=False)
    desk.sent[0].attempt.on_failure(IdleTimeout("silence"))
    assert journey.attempt is None
    assert sink.told[-1] == "abort"
    assert desk.finished.cut


async def test_the_first_token_is_told_with_what_was_allowed_for_it() -> None:
    """More for what must be computed than for what some worker holds."""
    desk = Desk()
    body = b'{"model": "m", "stream": true, "prompt": "' + b"text " * 800 + b'"}'
    for _ in range(2):
        desk.ask(body, path="/v1/completions")
        desk.now += 0.5
        desk.sent[-1].answers(200, EVENT_HEAD, event("1"), DONE)
    first, second = desk.told(FirstToken)
    assert first.seconds == second.seconds == 0.5
    assert desk.house.slo.first_token <= second.allowed < first.allowed
    tokens = desk.told(Chosen)[0].prompt_tokens
    assert first.allowed == pytest.approx(0.3 + 0.0005 * tokens, rel=0.01)
