"""The thread of a stream: whole events, what they said, and another worker's made to fit."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects._continuation import CHAT, COMPLETIONS
from router.dialects._thread import MOST_EVENT, Thread

BODY = b'{"stream": true, "max_tokens": 50, "prompt": "P", "messages": [{"role": "user", "content": "P"}]}'
DONE = b"data: [DONE]\n\n"
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=4), max_size=6)


def said(text: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": None, **more.pop("choice", {})}
    value = {"id": "a", "created": 1, "choices": [choice], **more}
    return b"data: %s\n\n" % json.dumps(value, ensure_ascii=False).encode()


def spoke(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    return said(choice={"delta": delta, "finish_reason": reason}, **more)


def values(pieces: list[bytes]) -> list[Any]:
    return [json.loads(event[6:]) for event in b"".join(pieces).split(b"\n\n") if event and event != DONE.strip()]


def asked(thread: Thread) -> Any:
    body = thread.onward()
    return None if body is None else json.loads(body)


@given(TEXTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_cut_anywhere_the_passed_events_are_whole_and_tell_the_text(
    texts: list[str], end: bytes, data: st.DataObject
) -> None:
    events = [b": hi\n\n", *[said(text) for text in texts]]
    events = [event.replace(b"\n", end) for event in events]
    whole = b"".join(events)
    cut = data.draw(st.integers(0, len(whole)))
    size = data.draw(st.integers(1, 40))
    thread = Thread(COMPLETIONS, BODY)
    passed = b"".join(b"".join(thread.take([whole[at : min(at + size, cut)]])) for at in range(0, cut, size))
    bounds = [sum(map(len, events[:count])) for count in range(len(events) + 1)]
    assert len(passed) == max(bound for bound in bounds if bound <= cut)
    assert whole.startswith(passed)
    count = max(0, bounds.index(len(passed)) - 1)
    assert asked(thread)["prompt"] == "P" + "".join(texts[:count])
    assert thread.before == sum(map(bool, texts[:count]))


@given(st.binary(max_size=200), st.binary(max_size=200), st.booleans())
def test_any_bytes_are_taken_without_failing(first: bytes, second: bytes, again: bool) -> None:
    thread = Thread(COMPLETIONS, BODY)
    passed = b"".join(thread.take([first]))
    assert first.startswith(passed)
    if again:
        thread.onward()
    thread.take([second])
    thread.rest()


@given(st.lists(st.binary(max_size=50).map(lambda data: data.replace(b"\n", b"")), max_size=9))
def test_without_another_worker_not_a_byte_is_changed(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n\n" for line in lines)
    thread = Thread(CHAT, BODY)
    assert b"".join([*thread.take([data, b"rest"]), *thread.rest()]) == data + b"rest"
    assert thread.rest() == []


ENDS = {
    "finish": spoke({}, "stop"), "tool": spoke({"tool_calls": [{}]}), "function": spoke({"function_call": {}}, "x"),
    "reasoning": spoke({"reasoning": "h"}), "thought": spoke({"reasoning_content": "h"}),
    "audio": spoke({"audio": {"id": 1}}), "refusal": spoke({"refusal": "no"}), "done": DONE,
    "logprobs": said("x", choice={"logprobs": {"tokens": ["x"]}}), "index": said("x", choice={"index": 1}),
    "error": b'data: {"error": 1}\n\n', "list": b"data: []\n\n", "unknown": said("\ufffd"), "named": b"event: x\n\n",
    "ids": said(choice={"text": [1]}),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_after_what_no_text_tells_nobody_can_go_on(name: str) -> None:
    thread = Thread(CHAT, BODY)
    tail = b"data: ha"
    assert b"".join(thread.take([said("x") + ENDS[name] + tail])) == said("x") + ENDS[name] + tail
    assert not thread.open
    assert thread.onward() is None
    assert thread.take([b"lf", b"\n\n"]) == [b"lf", b"\n\n"]


def test_an_event_too_long_is_let_through() -> None:
    thread = Thread(CHAT, BODY)
    long = b"x" * (MOST_EVENT + 1)
    assert b"".join(thread.take([long])) == long
    assert not thread.open


def test_an_event_too_long_is_let_through_of_another_worker_too() -> None:
    thread = Thread(CHAT, BODY)
    thread.onward()
    long = b"x" * (MOST_EVENT + 1)
    assert thread.take([said("a"), long])[-1].endswith(long)
    assert thread.take([b"\n\n", said("b", id="z")]) == [b"\n\n", said("b", id="z")]
    assert thread.onward() is None


def test_only_a_chat_that_said_something_needs_an_engine_of_a_kind() -> None:
    plain, chat = Thread(COMPLETIONS, BODY), Thread(CHAT, BODY)
    for thread in (plain, chat):
        thread.take([spoke({"role": "assistant", "content": ""})])
    assert not plain.needs_engine
    assert not chat.needs_engine
    plain.take([said("x")])
    chat.take([spoke({"content": "x"})])
    assert not plain.needs_engine
    assert chat.needs_engine


def test_another_workers_events_bear_the_first_ones_names() -> None:
    thread = Thread(COMPLETIONS, BODY)
    thread.take([said("x", model="m")])
    thread.onward()
    passed = thread.take([said("y", id="b", created=2, model="n") + said("z", id="b", created=2) + DONE])
    assert [(each["id"], each["created"], each.get("model")) for each in values(passed)] == [
        ("a", 1, "m"), ("a", 1, None)
    ]  # fmt: skip
    assert passed[-1].endswith(DONE)


def test_the_role_is_told_once() -> None:
    begin, word = {"role": "assistant", "content": ""}, {"role": "assistant", "content": "x"}
    thread = Thread(CHAT, BODY)
    thread.onward()
    assert values(thread.take([spoke(begin)]))[0]["choices"][0]["delta"] == begin
    thread.onward()
    assert thread.take([spoke(begin)]) == []
    assert values(thread.take([spoke(word)]))[0]["choices"][0]["delta"] == {"content": "x"}
    assert values(thread.take([spoke(dict(begin), "stop")]))[0]["choices"][0]["finish_reason"] == "stop"


def test_several_workers_one_after_the_other_say_one_text() -> None:
    thread = Thread(COMPLETIONS, BODY)
    for count, text in enumerate("abc", 1):
        thread.take([said(text), b"data: ha"])
        found = asked(thread)
        assert (found["prompt"], found["max_tokens"]) == ("P" + "abc"[:count], 50 - count)


def usage(prompt: int, output: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output, **more}


def test_usage_is_told_of_the_whole() -> None:
    thread = Thread(COMPLETIONS, BODY)
    thread.take([said("a"), said("b")])
    thread.onward()
    cached = {"prompt_tokens_details": {"cached_tokens": 12}}
    passed = thread.take([said("c"), said(choices=[], usage=usage(12, 1, **cached))])
    assert values(passed)[-1]["usage"] == usage(10, 3, prompt_tokens_details={"cached_tokens": 10})


def test_usage_told_on_the_way_is_better_than_counting_events() -> None:
    thread = Thread(COMPLETIONS, BODY)
    thread.take([said("a", usage=usage(10, 4))])
    assert asked(thread)["max_tokens"] == 46
    passed = thread.take([said("b", usage=usage(15, 2))])
    assert values(passed)[0]["usage"] == usage(10, 6)
    assert asked(thread)["max_tokens"] == 44


@pytest.mark.parametrize("odd", [{"prompt_tokens": "x"}, {}, {"completion_tokens": 1}], ids=str)
def test_odd_usage_is_left_as_it_is(odd: dict[str, Any]) -> None:
    thread = Thread(COMPLETIONS, BODY)
    thread.take([said("a")])
    thread.onward()
    assert values(thread.take([said("b", usage=odd)]))[0]["usage"] == odd


def test_tokens_without_a_text_are_computed_anew() -> None:
    thread = Thread(COMPLETIONS, BODY)
    thread.take([said("", usage=usage(10, 4))])
    assert thread.onward() == BODY
    assert thread.before == 0


def rest_of(texts: list[str], before: str, who: str) -> list[bytes]:
    """What an engine says after this: a beginning, the rest of the texts, an end, and the usage."""
    at = next(at for at in range(len(texts) + 1) if "".join(texts[:at]) == before)
    events = [spoke({"role": "assistant", "content": ""}, id=who)]
    events += [spoke({"content": text}, id=who) for text in texts[at:]]
    events += [spoke({}, "stop", id=who), said(choices=[], id=who, usage=usage(7 + at, len(texts) - at))]
    return [*events, DONE]


@given(
    st.lists(st.text("aä🙂\n ", min_size=1, max_size=3), max_size=6),
    st.lists(st.integers(0, 900), max_size=4),
    st.integers(1, 200),
)
def test_however_often_and_wherever_workers_die_the_client_reads_one_whole_stream(
    texts: list[str], deaths: list[int], size: int
) -> None:
    thread = Thread(CHAT, BODY)
    passed: list[bytes] = []
    before, ended = "", False
    for who, death in enumerate([*deaths, None]):
        whole = b"".join(rest_of(texts, before, str(who)))
        data = whole[:death]
        for at in range(0, len(data), size):
            passed += thread.take([data[at : at + size]])
        if not thread.open:
            passed += [*thread.take([whole[len(data) :]]), *thread.rest()]  # the end was told: nobody goes on
            ended = True
            break
        body = asked(thread)
        last = body["messages"][-1]
        before = last["content"] if last["role"] == "assistant" else ""
        assert "".join(texts).startswith(before)
    assert ended
    found = values(passed)
    choices = [choice for value in found for choice in value["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "".join(texts)
    assert sum("role" in choice["delta"] for choice in choices) == 1
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert len({value["id"] for value in found}) == 1
    assert found[-1]["usage"] == usage(7, len(texts))
    assert b"".join(passed).count(DONE) == 1
