"""Events."""

import json

from hypothesis import given
from hypothesis import strategies as st

from backends.sse import HOLE, EventForm, event


def test_an_event_is_a_line_of_data_and_a_blank_line() -> None:
    assert event({"a": 1}) == b'data: {"a":1}\n\n'
    assert event({"a": 1}, "start") == b'event: start\ndata: {"a":1}\n\n'


@given(st.text())
def test_a_form_filled_is_the_event_encoded_at_once(text: str) -> None:
    """Whatever the text, newlines and quotes too: one line of data."""
    filled = EventForm({"choices": [{"text": HOLE}], "n": 1}).fill(text)
    assert filled.count(b"\n") == 2
    assert json.loads(filled.removeprefix(b"data: ")) == {"choices": [{"text": text}], "n": 1}
