"""What Envoy is told to do with a request: where it goes, and what of it is changed on the way."""

import json

from router.picker.orders import alike, endpoint_of
from tests.support.talks import Counter, Place, request_body, request_head

AUTHORIZED = b"authorization: Bearer the-worker-s\r\n"


class Named:
    preferred: str | None = None

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses


async def test_a_worker_is_named_by_the_address_that_its_name_has() -> None:
    counter = Counter(1)
    [seat] = counter.seats
    place = counter.places[seat.id] = Place(seat)
    assert endpoint_of(counter.house, seat) == "w0:8000"
    for name, told in (
        (Named(), "w0:8000"),
        (Named("10.0.0.1"), "10.0.0.1:8000"),
        (Named("fd00::1"), "[fd00::1]:8000"),
    ):
        place.name = name  # type: ignore[assignment]
        assert endpoint_of(counter.house, seat) == told
    both = Named("10.0.0.1", "10.0.0.2")
    both.preferred = "10.0.0.2"
    place.name = both  # type: ignore[assignment]
    assert endpoint_of(counter.house, seat) == "10.0.0.2:8000"


async def test_the_worker_s_own_key_takes_the_place_of_the_caller_s() -> None:
    counter = Counter()
    for seat in counter.seats:
        counter.places[seat.id] = Place(seat, AUTHORIZED)
    heard = counter.talk().hear(request_head("/v1/completions", "POST", ("x-api-key", "mine")), request_body())
    assert heard.change["authorization"] == "Bearer the-worker-s"
    dropped = heard.answers[0].request_headers.response.header_mutation.remove_headers
    assert set(dropped) == {"x-api-key", "api-key"}


async def test_a_worker_that_needs_another_key_or_path_is_no_fallback() -> None:
    counter = Counter()
    one, two = counter.seats
    counter.places[two.id] = Place(two, AUTHORIZED)
    assert not alike(counter.house, one, two)
    assert counter.picked().endpoints == "w0:8000"
    counter.places[two.id] = Place(two)
    counter.places[two.id].base_path = b"/base"
    assert not alike(counter.house, one, two)
    counter.places[one.id] = Place(one)
    counter.places[one.id].base_path = b"/base"
    assert alike(counter.house, one, two)
    assert counter.picked().change[":path"] == "/base/v1/chat/completions"


async def test_the_key_that_let_the_caller_in_goes_no_further_in_any_form() -> None:
    counter = Counter(auth={"api_keys": [{"tenant": "a", "key": "the-key-of-a"}]})
    shown = (("authorization", "Bearer the-key-of-a"), ("x-copy", "the-key-of-a"), ("x-kept", "yes"))
    head = request_head("/v1/completions?key=the-key-of-a&b=c", "POST", *shown)
    heard = counter.talk().hear(head, request_body(b'{"model": "m", "prompt": "hello"}'))
    dropped = heard.answers[0].request_headers.response.header_mutation.remove_headers
    assert set(dropped) == {"authorization", "x-copy"}
    assert heard.change[":path"] == "/v1/completions?b=c"
    assert json.loads(heard.body)["cache_salt"]


async def test_a_plain_request_is_changed_in_nothing_but_its_place() -> None:
    heard = Counter().picked()
    assert list(heard.change) == ["x-gateway-destination-endpoint"]
