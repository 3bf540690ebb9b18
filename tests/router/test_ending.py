"""What is told of a request at its end."""

import json

import pytest

from router.ending import MOST_MODEL, refusal_headers, shown_model
from router.errors import InvalidRequest, Overloaded
from router.events import Finished
from tests.support.client import HELLO, STREAM
from tests.support.stories import EVENT_HEAD, JSON_HEAD, Desk
from tests.support.worker import DONE, event

USAGE = {"prompt_tokens": 70, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 64}}


async def test_a_served_request_is_told_whole() -> None:
    desk = Desk()
    desk.ask(STREAM, [(b"x-request-id", b"mine")])
    desk.now = 2.0
    desk.sent[0].answers(200, EVENT_HEAD, event("1"), event("2", usage=USAGE), DONE)
    told = desk.finished
    assert (told.request_id, told.path, told.model) == ("mine", "/v1/chat/completions", "m")
    assert (told.status, told.code, told.stream, told.tries) == (200, None, True, 1)
    assert (told.worker, told.reason, told.policy) == ("w0", "load", "tests.support.in_order")
    assert (told.prompt_tokens, told.output_tokens, told.cached_tokens, told.usage_reported) == (70, 3, 64, True)
    assert told.bytes_in == len(STREAM)
    assert told.bytes_out == len(event("1") + event("2", usage=USAGE) + DONE)
    assert told.hashes is None


async def test_without_a_report_the_prompt_is_an_estimate() -> None:
    desk = Desk()
    desk.ask(b'{"model": "m", "messages": [{"role": "user", "content": "' + b"text " * 100 + b'"}]}')
    desk.sent[0].answers(200, JSON_HEAD, b"{}")
    assert not desk.finished.usage_reported
    assert 80 < desk.finished.prompt_tokens < 300
    assert (desk.finished.output_tokens, desk.finished.cached_tokens) == (None, None)


async def test_a_request_that_never_found_a_worker_names_none() -> None:
    desk = Desk()
    desk.ask(b"{")
    told = desk.finished
    assert (told.worker, told.reason, told.policy, told.tries, told.model) == (None, None, None, 0, "")
    assert told.first_byte_seconds is None


async def test_hashes_are_told_only_when_asked_for() -> None:
    desk = Desk(log={"hashes": True})
    desk.ask(b'{"model": "m", "messages": [{"role": "user", "content": "' + b"text " * 200 + b'"}]}')
    desk.sent[0].answers()
    assert desk.finished.hashes
    assert all(isinstance(each, int) for each in desk.finished.hashes)


async def test_no_text_of_the_request_is_told() -> None:
    desk = Desk()
    desk.ask(HELLO, [(b"authorization", b"Bearer s3cret"), (b"cookie", b"session_id=abc")])
    desk.sent[0].answers()
    text = repr(desk.events)
    for secret in ("hello", "s3cret", "abc"):
        assert secret not in text


@pytest.mark.parametrize(
    ("model", "shown"),
    [(None, ""), ("", ""), ("m", "m"), ("x" * MOST_MODEL, "x" * MOST_MODEL), ("x" * 5000, "x" * MOST_MODEL),
     ("modèle", "modèle"), ("a\ud800b", "a?b")],
)  # fmt: skip
def test_a_models_name_is_shown_short_and_in_valid_unicode(model: str | None, shown: str) -> None:
    assert shown_model(model) == shown
    json.dumps(shown_model(model)).encode()


def test_a_refusals_headers_say_when_to_come_back() -> None:
    assert refusal_headers(InvalidRequest("no"), b"text/plain") == [(b"content-type", b"text/plain")]
    later = refusal_headers(Overloaded("later", retry_after=0.2), b"application/json")
    assert later[1] == (b"retry-after", b"1")


# What the mind learns of it, and what is told of that.

LONG = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"text " * 400 + b'"}]}'


def answered(desk: Desk, status: int = 200, usage: dict[str, object] | None = None) -> None:
    """One long request, asked and answered."""
    desk.ask(LONG)
    desk.sent[-1].answers(status, JSON_HEAD, json.dumps({"usage": usage} if usage else {}).encode())


async def test_the_mind_learns_from_answers_that_went_well_and_from_no_others() -> None:
    desk = Desk()
    learnt: list[tuple[str, int | None]] = []
    desk.house.mind.learn = lambda ask, choice, usage, now: learnt.append((choice.seat.id, usage.prompt))  # type: ignore[method-assign]
    answered(desk, 500, {"prompt_tokens": 1})
    desk.ask(b"{")
    journey, _ = desk.ask(LONG)
    journey.cancel()
    assert learnt == []
    answered(desk, 200, {"prompt_tokens": 2})
    answered(desk, 200)
    assert learnt == [("w0", 2), ("w0", None)]


async def test_the_length_of_a_token_is_learnt_from_what_workers_report() -> None:
    desk = Desk()
    estimates = []
    for _ in range(60):
        desk.ask(LONG)
        estimates.append(desk.sent[-1].attempt.journey.ask.prefix.tokens)
        desk.sent[-1].answers(200, JSON_HEAD, b'{"usage": {"prompt_tokens": 400}}')
    assert abs(estimates[-1] - 400) < abs(estimates[0] - 400)


async def test_what_a_worker_drawn_at_random_would_hold_is_told() -> None:
    """Of four workers one holds the whole prompt: a worker drawn at random holds a quarter of it."""
    desk = Desk(4)
    answered(desk)
    answered(desk)
    first, second = desk.told(Finished)
    assert (first.chance_cached_tokens, first.prompt_bytes) == (0, 0)
    assert 0.2 * second.prompt_tokens < second.chance_cached_tokens <= 0.25 * second.prompt_tokens


async def test_with_hashes_the_prompts_length_in_bytes_is_told_too() -> None:
    desk = Desk(log={"hashes": True})
    answered(desk)
    told = desk.finished
    assert told.prompt_bytes > 2000
    assert told.prompt_bytes >= 4 * told.prompt_tokens - 4


async def test_a_failure_of_learning_is_no_failure_of_the_request() -> None:
    """Reports that cannot be are passed over by whoever learns from them."""
    for usage in ({"prompt_tokens": 0}, {"prompt_tokens": 10**15}, {"prompt_tokens": -5}, {"prompt_tokens": "many"},
                  {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 10**15}},
                  {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": -7}}):  # fmt: skip
        desk = Desk()
        for _ in range(3):
            answered(desk, 200, usage)
        assert [each.status for each in desk.told(Finished)] == [200] * 3
        assert all(0 < seat.load.wait(desk.now) < 1 or seat.load.wait(desk.now) == 0 for seat in desk.seats)
