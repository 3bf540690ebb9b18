"""A request's story when Envoy carries its bytes: the lease is given back once whatever happens, and the worker's
health hears what the gateway's would."""

from typing import Any

import pytest

from router.core.health import DOWN, READY
from router.picker.messages import BUFFERED, FULL_DUPLEX, STREAMED
from tests.support.client import HELLO, STREAM
from tests.support.fleets import down
from tests.support.talks import (
    EVENTS,
    JSON,
    Counter,
    Heard,
    request_body,
    request_head,
    response_body,
    response_head,
)

TOKEN = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
DONE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\ndata: [DONE]\n\n'


async def test_a_lease_lasts_from_the_choice_to_the_stream_s_end() -> None:
    counter = Counter()
    heard = counter.picked()
    assert [seat.load.in_flight for seat in counter.seats] == [1, 0]
    heard.hear(response_head())
    assert [seat.load.in_flight for seat in counter.seats] == [1, 0]
    heard.talk.over()
    heard.talk.over()
    assert counter.at_rest()
    told = counter.finished
    assert (told.status, told.worker, told.tries, told.model) == (200, "w0", 1, "m")
    assert told.first_byte_seconds is not None
    assert counter.seats[0].answered == 1


async def test_whoever_leaves_before_the_answer_is_a_499() -> None:
    counter = Counter()
    counter.talk().hear(request_head(), request_body(HELLO[:5], end=False)).talk.over()
    assert (counter.finished.status, counter.finished.cancelled_in) == (499, "receiving")
    other = Counter()
    other.picked().talk.over()
    assert (other.finished.status, other.finished.cancelled_in) == (499, "waiting")
    assert other.at_rest()


async def test_a_stream_that_is_cut_while_it_is_seen_is_a_499_in_the_middle() -> None:
    counter = Counter()
    heard = counter.talk().hear(request_head(response=FULL_DUPLEX), request_body(STREAM), response_head(200, EVENTS))
    heard.hear(response_body(TOKEN)).talk.over()
    assert (counter.finished.status, counter.finished.cancelled_in) == (499, "streaming")
    assert counter.at_rest()


async def test_of_an_answer_that_is_seen_tokens_and_usage_are_learnt() -> None:
    counter = Counter()
    heard = counter.talk().hear(request_head(response=STREAMED), request_body(STREAM), response_head(200, EVENTS))
    assert counter.seats[0].load.waiting == 1
    heard.hear(response_body(TOKEN))
    assert counter.seats[0].load.waiting == 0
    heard.hear(response_body(DONE, end=True)).talk.over()
    told = counter.finished
    assert (told.status, told.prompt_tokens, told.output_tokens) == (200, 9, 1)
    assert told.first_token_seconds is not None


async def test_of_a_stream_that_is_not_seen_the_head_ends_the_prefill_and_teaches_no_pace() -> None:
    counter = Counter()
    heard = counter.picked(STREAM)
    counter.now = 1.0
    heard.hear(response_head(200, EVENTS))
    assert counter.seats[0].load.waiting == 0
    heard.talk.over()
    assert counter.seats[0].load.pace is None
    assert counter.finished.status == 200


@pytest.mark.parametrize("status", [500, 502])
async def test_a_worker_s_fault_speaks_against_it(status: int) -> None:
    counter = Counter()
    counter.picked().hear(response_head(status, details="via_upstream")).talk.over()
    assert counter.seats[0].failed == 1
    assert counter.finished.status == status


@pytest.mark.parametrize("status", [429, 503])
async def test_back_pressure_is_no_fault(status: int) -> None:
    counter = Counter()
    counter.picked().hear(response_head(status, (*JSON, ("retry-after", "3")))).talk.over()
    assert counter.seats[0].failed == 0
    assert counter.seats[0].health.pressed_until == 3.0


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ("upstream_reset_before_response_started{remote_connection_failure|refused}", "refused"),
        ("upstream_reset_before_response_started{connection_timeout}", "connect_timeout"),
        ("upstream_reset_before_response_started{connection_termination}", "broken"),
        ("response_timeout", "first_byte_timeout"),
    ],
)
async def test_an_error_of_envoy_s_own_blames_the_worker_that_it_is_about(details: str, kind: str) -> None:
    counter = Counter()
    counter.picked().hear(response_head(503, details=details)).talk.over()
    assert counter.failures == [("w0", kind, False)]
    assert counter.seats[0].failed == 1
    assert counter.at_rest()


async def test_an_error_that_is_no_worker_s_blames_none() -> None:
    counter = Counter()
    counter.picked().hear(response_head(503, details="no_healthy_upstream")).talk.over()
    assert counter.failures == []
    assert [seat.failed for seat in counter.seats] == [0, 0]


async def test_the_lease_goes_over_to_the_fallback_that_answered() -> None:
    counter = Counter(3)
    heard = counter.picked()
    assert heard.endpoints == "w0:8000,w1:8000"
    heard.hear(response_head(served="w1:8000", details="via_upstream"))
    assert [seat.load.in_flight for seat in counter.seats] == [0, 1, 0]
    assert counter.failures == [("w0", "passed_over", True)]
    assert counter.chosen == ["w0", "w1"]
    heard.talk.over()
    assert (counter.finished.worker, counter.finished.reason, counter.finished.tries) == ("w1", "retry", 2)
    assert counter.at_rest()


async def test_an_address_that_envoy_was_not_told_changes_nothing() -> None:
    counter = Counter()
    counter.picked().hear(response_head(served="w7:8000")).talk.over()
    assert counter.finished.worker == "w0"
    assert counter.failures == []


@pytest.mark.parametrize(("fallbacks", "told"), [(0, "w0:8000"), (2, "w0:8000,w1:8000,w2:8000")])
async def test_the_setting_says_how_many_fallbacks_there_are(fallbacks: int, told: str) -> None:
    assert Counter(4, picker={"fallbacks": fallbacks}).picked().endpoints == told


def subset(counter: Counter, *endpoints: str, header: bool = False) -> Heard:
    more = (("x-gateway-destination-endpoint-subset", ",".join(endpoints)),) if header else ()
    named = None if header else list(endpoints)
    head = request_head("/v1/chat/completions", "POST", *more, request=BUFFERED, subset=named)
    return counter.talk().hear(head, request_body())


@pytest.mark.parametrize("header", [False, True])
async def test_only_the_workers_of_a_subset_are_chosen(header: bool) -> None:
    counter = Counter(3)
    heard = subset(counter, "w1:8000", "w2:8000", "elsewhere:1", header=header)
    assert heard.endpoints == "w1:8000,w2:8000"
    heard.hear(response_head()).talk.over()
    assert counter.finished.reason != "retry"


@pytest.mark.parametrize("named", [(), ("elsewhere:1",)])
async def test_a_subset_without_a_worker_is_a_503(named: tuple[str, ...]) -> None:
    heard = subset(Counter(picker={"fail_open": True}), *named)
    assert heard.refusal.status.code == 503


async def test_a_subset_waits_for_its_own_workers() -> None:
    counter = Counter(2, limits={"worker_in_flight": 1})
    first = subset(counter, "w1:8000")
    second = subset(counter, "w1:8000")
    assert second.kinds == ["request_headers"]
    first.hear(response_head()).talk.over()
    counter.house.pump()
    assert second.endpoints == "w1:8000"


def all_down(counter: Counter) -> None:
    for seat in counter.seats:
        down(counter.fleet, seat)
        seat.health.was_ready = False  # no panic: it was never well
    counter.fleet.reconcile([seat.worker for seat in counter.seats])


async def test_with_no_worker_well_it_is_refused() -> None:
    counter = Counter()
    all_down(counter)
    heard = counter.picked()
    assert heard.refusal.status.code == 503
    assert counter.finished.code == "no_ready_worker"


async def test_where_it_may_fail_open_its_home_is_named_all_the_same_and_charged() -> None:
    counter = Counter(picker={"fail_open": True})
    all_down(counter)
    heard = counter.picked()
    assert heard.endpoints in ("w0:8000", "w1:8000")
    assert sum(seat.load.in_flight for seat in counter.seats) == 1
    again = counter.picked()
    assert again.endpoints == heard.endpoints
    for each in (heard, again):
        each.hear(response_head()).talk.over()
    assert counter.at_rest()
    assert {seat.health.state for seat in counter.seats} == {DOWN}


async def test_where_no_worker_is_known_envoy_may_choose() -> None:
    counter = Counter(0, picker={"fail_open": True})
    heard = counter.picked()
    assert heard.endpoints == ""
    heard.hear(response_head()).talk.over()
    assert (counter.finished.status, counter.finished.worker) == (200, None)
    assert Counter(0).picked().refusal.status.code == 503


async def test_what_is_wrong_with_a_request_is_refused_though_it_may_fail_open() -> None:
    heard = Counter(picker={"fail_open": True}).picked(b'{"model": "other", "messages": []}')
    assert heard.refusal.status.code == 404


async def test_once_it_is_placed_the_picker_s_clock_does_not_end_it() -> None:
    counter = Counter(timeouts={"total_seconds": 5})
    heard = counter.picked()
    assert heard.change["x-request-timeout"] == "5.000"
    counter.now = 9.0
    heard.hear(response_head()).talk.over()
    assert counter.finished.status == 200


async def test_a_policy_that_fails_is_a_500_and_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()

    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(counter.house.mind, "choose", fails)
    assert counter.picked().refusal.status.code == 500
    assert counter.at_rest()
    assert counter.seats[0].health.state is READY
