"""One stream of Envoy's, message by message: what is answered to what, in each mode of bodies."""

import json

import pytest

from router.picker.messages import BUFFERED, FULL_DUPLEX, MOST_PIECE, NONE, STREAMED, Malformed
from tests.support.client import HELLO
from tests.support.talks import (
    EVENTS,
    Counter,
    request_body,
    request_head,
    response_body,
    response_head,
    trailers,
)


async def test_in_full_duplex_nothing_is_answered_until_the_body_is_there_and_then_it_goes_back_whole() -> None:
    heard = Counter().talk()
    heard.hear(request_head(), request_body(HELLO[:10], end=False))
    assert heard.answers == []
    heard.hear(request_body(HELLO[10:]))
    assert heard.kinds == ["request_headers", "request_body"]
    assert heard.endpoints == "w0:8000,w1:8000"
    assert heard.body == HELLO
    assert heard.answers[-1].request_body.response.body_mutation.streamed_response.end_of_stream


async def test_a_large_body_goes_back_in_pieces_of_which_the_last_says_so() -> None:
    body = json.dumps({"model": "m", "prompt": "x" * 150_000}).encode()
    heard = Counter().talk().hear(request_head("/v1/completions"), request_body(body))
    pieces = [answer.request_body.response.body_mutation.streamed_response for answer in heard.answers[1:]]
    assert [len(piece.body) for piece in pieces] == [MOST_PIECE, MOST_PIECE, len(body) - 2 * MOST_PIECE]
    assert [piece.end_of_stream for piece in pieces] == [False, False, True]
    assert heard.body == body


async def test_a_request_that_ends_with_trailers_is_placed_when_they_come() -> None:
    heard = Counter().talk().hear(request_head(), request_body(HELLO, end=False))
    assert heard.answers == []
    heard.hear(trailers("request_trailers"))
    assert heard.kinds == ["request_headers", "request_body", "request_trailers"]
    assert not heard.answers[1].request_body.response.body_mutation.streamed_response.end_of_stream


async def test_a_body_that_envoy_keeps_is_answered_with_the_place_and_not_sent_back() -> None:
    heard = Counter().talk().hear(request_head(request=BUFFERED))
    assert heard.kinds == ["request_headers"]
    heard.hear(request_body())
    assert heard.kinds == ["request_headers", "request_body"]
    assert heard.endpoints == "w0:8000,w1:8000"
    assert not heard.answers[-1].request_body.response.HasField("body_mutation")


@pytest.mark.parametrize("mode", [NONE, STREAMED])
async def test_where_no_body_can_be_waited_for_the_head_alone_decides(mode: int) -> None:
    heard = Counter().talk().hear(request_head(request=mode))
    assert heard.kinds == ["request_headers"]
    assert heard.endpoints == "w0:8000,w1:8000"


async def test_what_has_no_prompt_is_placed_at_its_head_and_its_body_echoed_as_it_comes() -> None:
    heard = Counter().talk().hear(request_head("/v1/files?a=b"))
    assert heard.kinds == ["request_headers"]
    heard.hear(request_body(b"one", end=False), request_body(b"two"))
    assert heard.body == b"onetwo"
    kept = Counter().talk().hear(request_head("/v1/files", request=BUFFERED), request_body(b"one"))
    assert kept.kinds == ["request_headers", "request_body"]
    assert kept.body == b""


async def test_a_get_goes_to_the_least_loaded() -> None:
    counter = Counter()
    heard = counter.talk().hear(request_head("/v1/models", "GET", end=True))
    assert heard.endpoints == "w0:8000,w1:8000"
    heard.hear(response_head(end=True)).talk.over()
    assert counter.finished.path == "other"
    assert counter.at_rest()


@pytest.mark.parametrize("mode", [FULL_DUPLEX, BUFFERED])
async def test_what_is_refused_is_answered_at_once_and_nothing_after_it_counts(mode: int) -> None:
    counter = Counter()
    heard = counter.talk().hear(request_head(request=mode), request_body(b"{nope"))
    assert heard.refusal.status.code == 400
    assert json.loads(heard.refusal.body)["error"]["code"] == "invalid_json"
    headers = {each.header.key: each.header.raw_value for each in heard.refusal.headers.set_headers}
    assert headers["content-type"] == b"application/json"
    assert headers["x-request-id"]
    count = len(heard.answers)
    heard.hear(request_body(b"more"), response_head())
    assert len(heard.answers) == count
    heard.talk.over()
    assert counter.finished.status == 400
    assert counter.at_rest()


async def test_a_post_without_a_body_is_no_json() -> None:
    heard = Counter().talk().hear(request_head(end=True))
    assert heard.refusal.status.code == 400


async def test_a_body_over_the_limit_is_refused_before_it_is_whole() -> None:
    counter = Counter(limits={"body_bytes": 20})
    heard = counter.talk().hear(request_head(), request_body(b"x" * 30, end=False))
    assert heard.refusal.status.code == 413
    announced = counter.talk().hear(request_head("/v1/completions", "POST", ("content-length", "30")))
    assert announced.refusal.status.code == 413


async def test_a_response_s_head_is_passed_with_where_it_came_from() -> None:
    heard = Counter().picked().hear(response_head())
    put = heard.answers[-1].response_headers.response.header_mutation.set_headers
    assert {each.header.key: each.header.raw_value for each in put} == {
        "x-router-worker": b"w0", "x-router-reason": b"load", "x-router-policy": b"tests.support.in_order",
    }  # fmt: skip


async def test_a_response_s_body_that_passes_is_sent_on_piece_by_piece() -> None:
    counter = Counter()
    heard = counter.talk().hear(request_head(response=FULL_DUPLEX), request_body(), response_head(200, EVENTS))
    before = len(heard.answers)
    heard.hear(
        response_body(b"data: {}\n\n"), response_body(b"data: [DONE]\n\n", end=True), trailers("response_trailers")
    )
    streamed = [answer.response_body.response.body_mutation.streamed_response for answer in heard.answers[before:-1]]
    assert [piece.body for piece in streamed] == [b"data: {}\n\n", b"data: [DONE]\n\n"]
    assert [piece.end_of_stream for piece in streamed] == [False, True]
    assert heard.kinds[-1] == "response_trailers"
    heard.talk.over()
    assert counter.finished.status == 200
    assert counter.finished.bytes_out == 24


async def test_a_response_s_body_that_envoy_keeps_is_let_through() -> None:
    heard = (
        Counter().talk().hear(request_head(response=BUFFERED), request_body(), response_head(), response_body(b"{}"))
    )
    assert heard.kinds[-1] == "response_body"
    assert not heard.answers[-1].response_body.HasField("response")


async def test_a_place_that_is_free_later_is_told_later() -> None:
    counter = Counter(1, limits={"worker_in_flight": 1})
    first = counter.picked()
    waits = counter.talk().hear(request_head(), request_body())
    plain = counter.talk().hear(request_head("/v1/files"), request_body(b"kept"))
    assert waits.answers == plain.answers == []
    first.hear(response_head()).talk.over()
    counter.house.pump()
    assert waits.endpoints == "w0:8000"
    assert waits.late == 1
    waits.hear(response_head()).talk.over()
    counter.house.pump()
    assert plain.endpoints == "w0:8000"
    assert plain.body == b"kept"


async def test_only_a_stream_that_waits_for_its_end_can_be_left() -> None:
    counter = Counter()
    heard = counter.picked()
    assert not heard.talk.may_leave
    assert heard.hear(response_head()).talk.may_leave
    seen = counter.talk().hear(request_head(response=FULL_DUPLEX), request_body(), response_head())
    assert not seen.talk.may_leave


async def test_the_client_is_whom_envoy_names_last() -> None:
    counter = Counter()
    heard = counter.picked()
    assert heard.talk.peer == ""
    named = counter.talk().hear(request_head("/v1/models", "GET", ("x-forwarded-for", "10.9.9.9, 192.0.2.7"), end=True))
    assert named.talk.peer == "192.0.2.7"


async def test_an_empty_stream_and_unknown_messages_are_nothing() -> None:
    counter = Counter()
    counter.talk().talk.over()
    heard = counter.talk().hear(type(request_head())())
    assert heard.answers == []


OUT_OF_TURN = {
    "a second head": [request_head(), request_body(), request_head()],
    "a second head before the body": [request_head(), request_head()],
    "a body after its end": [request_head(), request_body(), request_body()],
    "a second body that envoy kept": [request_head(request=BUFFERED), request_body(end=False), request_body()],
    "a body after its trailers": [
        request_head(),
        request_body(end=False),
        trailers("request_trailers"),
        request_body(),
    ],
    "a body after a head that was all": [request_head("/v1/models", "GET", end=True), request_body()],
    "a body that nobody reads, after its end": [request_head("/v1/files"), request_body(), request_body()],
    "trailers twice": [request_head(), request_body(), trailers("request_trailers"), trailers("request_trailers")],
    "a second response": [request_head(), request_body(), response_head(), response_head()],
    "a body without a head": [request_body()],
    "trailers without a head": [trailers("request_trailers")],
}


@pytest.mark.parametrize("told", OUT_OF_TURN.values(), ids=OUT_OF_TURN)
async def test_what_comes_out_of_turn_ends_the_stream_and_what_was_taken_goes_back(told: list[object]) -> None:
    counter = Counter()
    heard = counter.talk().hear(*told[:-1])
    assert sum(seat.load.in_flight for seat in counter.seats) <= 1
    with pytest.raises(Malformed):
        heard.hear(told[-1])
    heard.talk.over()
    assert counter.at_rest()


async def test_trailers_of_a_request_that_waits_its_turn_do_not_place_it_twice() -> None:
    counter = Counter(1, limits={"worker_in_flight": 1})
    first = counter.picked()
    waits = counter.talk().hear(request_head(request=BUFFERED), request_body(), trailers("request_trailers"))
    assert len(counter.house.room) == 1
    first.hear(response_head()).talk.over()
    counter.house.pump()
    assert waits.kinds == ["request_headers", "request_body", "request_trailers"]
    assert [seat.load.in_flight for seat in counter.seats] == [1]
    waits.talk.over()
    assert counter.at_rest()


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED])
async def test_a_body_that_nobody_reads_has_the_limit_of_any(mode: int) -> None:
    counter = Counter(limits={"body_bytes": 20})
    heard = counter.talk().hear(request_head("/v1/files", request=mode), request_body(b"x" * 15, end=False))
    heard.hear(request_body(b"x" * 15, end=False))
    assert heard.refusal.status.code == 413
    heard.talk.over()
    assert counter.finished.status == 413
    assert counter.at_rest()
