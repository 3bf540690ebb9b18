"""What a request takes of its caller's rates, and what is given back."""

from typing import Any

from router.core.rates import Account
from router.events import Limited
from tests.support.client import HELLO
from tests.support.stories import Desk, Sent

LONG = b'{"model": "m", "prompt": "' + b"word " * 400 + b'"}'
PATH = "/v1/completions"


def limited(**caller: Any) -> Desk:
    return Desk(limits={"caller": caller})


def account(desk: Desk) -> Account:
    [found] = desk.house.accounts._accounts.values()
    return found


def reports(sent: Sent, prompt: int) -> None:
    sent.answers(200, None, b'{"usage": {"prompt_tokens": %d, "completion_tokens": 1}}' % prompt)


async def test_a_request_beyond_the_rate_goes_nowhere() -> None:
    desk = limited(requests_per_minute=2)
    answers = [desk.ask()[1] for _ in range(3)]
    assert [sink.status for sink in answers] == [None, None, 429]
    assert len(desk.sent) == 2
    assert answers[2].headers[b"retry-after"] == b"30"
    assert [event.kind for event in desk.told(Limited)] == ["requests"]


async def test_addresses_count_each_for_itself() -> None:
    desk = limited(requests_per_minute=1)
    for address in ("192.0.2.1", "192.0.2.2"):
        journey, sink = desk.open()
        journey.client = address
        journey.feed(HELLO)
        journey.complete()
        assert sink.status is None
    assert len(desk.house.accounts) == 2


async def test_all_addresses_of_one_network_of_version_6_count_together() -> None:
    desk = limited(requests_per_minute=1)
    statuses = []
    for address in ("2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1", "::ffff:192.0.2.1", "192.0.2.1"):
        journey, sink = desk.open()
        journey.client = address
        journey.feed(HELLO)
        journey.complete()
        statuses.append(sink.status)
    assert statuses == [None, 429, None, None, 429]


async def test_what_is_no_request_at_all_takes_no_tokens() -> None:
    desk = limited(prompt_tokens_per_minute=1000)
    _, sink = desk.ask(b"{", path=PATH)
    assert sink.status == 400
    assert account(desk).tokens.full_at < 0.0  # type: ignore[union-attr]


async def test_what_the_worker_reported_is_what_was_taken_in_the_end() -> None:
    desk = limited(prompt_tokens_per_minute=600)
    desk.ask(LONG, path=PATH)
    tokens = account(desk).tokens
    assert tokens is not None
    assert tokens.full_at > 40.0
    reports(desk.sent[0], 100)
    assert round(tokens.full_at, 3) == 10.0


async def test_without_a_report_the_estimate_stands() -> None:
    desk = limited(prompt_tokens_per_minute=600)
    desk.ask(LONG, path=PATH)
    tokens = account(desk).tokens
    assert tokens is not None
    before = tokens.full_at
    desk.sent[0].answers()
    assert tokens.full_at == before


async def test_a_prompt_that_no_worker_was_sent_is_given_back() -> None:
    desk = Desk(1, each={"max_in_flight": 1}, queue={"max": 0}, limits={"caller": {"prompt_tokens_per_minute": 600}})
    desk.ask(LONG, path=PATH)
    tokens = account(desk).tokens
    assert tokens is not None
    before = tokens.full_at
    _, sink = desk.ask(b'{"prompt": "short"}', path=PATH)
    assert (sink.status, desk.finished.code) == (429, "overloaded")
    assert round(tokens.full_at, 6) == round(before, 6)


async def test_a_prompt_beyond_the_rate_is_told_and_takes_nothing() -> None:
    desk = limited(prompt_tokens_per_minute=600)
    desk.ask(LONG, path=PATH)
    tokens = account(desk).tokens
    assert tokens is not None
    before = tokens.full_at
    _, sink = desk.ask(LONG, path=PATH)
    assert sink.status == 429
    assert tokens.full_at == before
    assert [event.kind for event in desk.told(Limited)] == ["prompt_tokens"]
