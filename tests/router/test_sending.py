"""A request goes out: as it came in, after its choice was told, and charged."""

from router.events import Chosen
from tests.support.client import HELLO
from tests.support.stories import Desk


async def test_a_request_goes_out_as_it_came_in() -> None:
    desk = Desk()
    _, sink = desk.ask(HELLO, [(b"host", b"gateway"), (b"x-kept", b"yes"), (b"content-length", b"%d" % len(HELLO))])
    [sent] = desk.sent
    first, *lines = sent.lines()
    assert first == b"POST /v1/chat/completions HTTP/1.1"
    assert lines[:2] == [b"host: w", b"x-kept: yes"]
    assert lines[2].startswith(b"x-request-id: ")
    assert lines[3:] == [b"content-length: %d" % len(HELLO), b"", b""]
    assert sent.body == HELLO
    assert sink.told == []


async def test_a_choice_is_told_before_the_request_goes_out() -> None:
    desk = Desk()
    desk.ask()
    [chosen] = desk.told(Chosen)
    assert (chosen.worker, chosen.model, chosen.reason, chosen.at) == ("w0", "m", "load", 0.0)
