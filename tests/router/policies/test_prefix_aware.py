"""Amazon SageMaker's prefix-aware routing, by what is documented of it."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.core.fingerprint import prefix_hash
from router.core.mind import Caller
from router.core.standing import SMALL
from router.dialects.anthropic import Anthropic
from router.policies.prefix_aware import BORDER, Options, PrefixAware, beginning, build
from router.prompt import Prompt
from router.types import Reason
from tests.support import plain_rule
from tests.support.churn import Churn
from tests.support.fleets import Look, Stage, ask_of, caller, chat, named, prompt_of, ring_of
from tests.support.strategies import FEW, MANY, seeds

RING = ring_of(named(8))
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
CHATS = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "poet"]), ANY_TEXT), min_size=1, max_size=6)


def policy(**options: int) -> PrefixAware:
    return build(Options(**options), PolicyTools(RING, None))


def order(ask: Ask, looks: Sequence[Candidate] | None = None, **options: int) -> list[Ranked]:
    return list(policy(**options).order(ask, looks or [Look(name) for name in named(8)], 0.0))


def asked(*turns: str, **fields: Any) -> Ask:
    return ask_of(prompt_of(chat(*turns, **fields)).text)


def native(body: bytes) -> Ask:
    return ask_of(b"", native=True, body=body)


def home(ask: Ask, **options: int) -> str:
    return order(ask, None, **options)[0].worker


def text_of(messages: list[dict[str, Any]], characters: int = 65536, **fields: Any) -> bytes:
    return beginning(prompt_of(json.dumps({"messages": messages, **fields}).encode()).text, characters)


# The prefix of an OpenAI call: the messages' text, in characters.


def test_the_prefix_ends_with_the_very_character_of_its_length() -> None:
    assert len({home(asked("h" * 1024 + f"{at:02}"), prefix_length=1024) for at in range(20)}) == 1
    assert len({home(asked("h" * 1022 + f"{at:02}"), prefix_length=1024) for at in range(20)}) > 3


def test_the_length_counts_characters_and_not_bytes() -> None:
    head = "é" * 1500
    assert len({home(asked(head + f"{at}" * 50), prefix_length=1024) for at in range(20)}) == 1
    assert len({home(asked("é" * 900 + f"{at:03}" * 50), prefix_length=1024) for at in range(20)}) > 1


def test_a_short_prompt_counts_whole() -> None:
    said = [f"turn {at}" for at in range(20)]
    assert len({home(asked(*said, f"{at:02}")) for at in range(30)}) > 3
    assert len({home(asked(f"What is the answer to question {letter}")) for letter in "abcdefghijklmnop"}) > 3


@MANY
@given(messages=CHATS, characters=st.integers(1, 120))
def test_it_is_the_first_characters_of_what_the_messages_say(messages: list[tuple[str, str]], characters: int) -> None:
    found = text_of([{"role": role, "content": text} for role, text in messages], characters)
    assert found.replace(BORDER, b"").decode() == "".join(text for _, text in messages)[:characters]


@MANY
@given(messages=CHATS, more=CHATS, length=st.integers(1, 60))
def test_what_comes_after_the_prefix_never_matters(
    messages: list[tuple[str, str]], more: list[tuple[str, str]], length: int
) -> None:
    asked = [{"role": role, "content": text} for role, text in messages]
    further = [*asked, *({"role": role, "content": text} for role, text in more)]
    if sum(len(text) for _, text in messages) >= length:
        assert text_of(asked, length) == text_of(further, length)


@given(st.binary(max_size=300), st.integers(1, 400))
def test_any_bytes_have_a_beginning(canonical: bytes, characters: int) -> None:
    """Also those that are no prompt and no UTF-8."""
    assert len(beginning(canonical, characters)) <= 4 * characters + characters


def test_neither_tools_nor_roles_nor_images_nor_calls_are_text() -> None:
    plain = text_of([{"role": "user", "content": "hello"}])
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert plain == b"hello"
    assert text_of([{"role": "user", "content": "hello"}], tools=[tool]) == plain
    assert text_of([{"role": "poet", "content": [{"type": "text", "text": "hello"}]}]) == plain
    assert text_of([{"role": "user", "content": [image, {"type": "text", "text": "hello"}]}]) == plain
    assert text_of([{"role": "assistant", "content": "hello", "tool_calls": [call]}]) == plain
    assert text_of([{"role": "tool", "content": "hello", "tool_call_id": "1", "name": "f"}]) == plain


def test_where_one_text_ends_counts_but_is_no_character() -> None:
    two = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}]
    assert text_of(two) != text_of([{"role": "user", "content": "abcd"}])
    assert text_of(two, 2) == b"ab"
    assert text_of(two, 3) == b"ab" + BORDER + b"c"


def test_other_openai_and_anthropic_calls_have_a_text_too() -> None:
    completion = prompt_of(b'{"prompt": "once upon"}', "/v1/completions").text
    tokens = prompt_of(b'{"prompt": [104, 105, 300]}', "/v1/completions").text
    system = b'{"system": "be kind", "messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "f"}]}'
    assert beginning(completion, 4) == b"once"
    assert beginning(tokens, 9).decode() == "hi\u012c"
    assert beginning(Anthropic().read("/v1/messages", system).text, 99) == b"be kind" + BORDER + b"hi"


def test_a_prompt_without_text_goes_by_load() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    ask = ask_of(prompt_of(json.dumps({"messages": [{"role": "user", "content": [image]}]}).encode()).text)
    assert {each.reason for each in order(ask)} == {Reason.LOAD}


# The prefix of a native call: its raw body, in bytes.


def test_a_native_call_is_keyed_by_the_bytes_of_its_body() -> None:
    head = b'{"inputs": "' + b"x" * 1500
    assert len({home(native(head + bytes([65 + at]) * 9), prefix_length=1024) for at in range(20)}) == 1
    assert len({home(native(bytes([65 + at]) * 500)) for at in range(20)}) > 3


def test_the_same_prompt_written_otherwise_is_another_native_prefix() -> None:
    """Spacing, the order of keys and a temperature before the prompt are bytes as well."""
    say = '"inputs": "' + "x" * 100 + '"'
    bodies = [f'{{{" " * gap}"temperature": {heat}, {say}}}' for gap in range(4) for heat in range(5)]
    assert len({home(native(body.encode())) for body in bodies}) > 3


@FEW
@given(body=st.binary(min_size=1024, max_size=1100), more=st.binary(max_size=50), seed=seeds)
def test_bytes_after_the_prefix_never_matter(body: bytes, more: bytes, seed: int) -> None:
    head = body[:1024]
    asks = [ask_of(b"", seed, native=True, body=head + tail) for tail in (b"", body[1024:], more)]
    assert len({home(ask, prefix_length=1024) for ask in asks}) == 1


# Above the threshold.


def test_one_below_the_threshold_is_not_full() -> None:
    ask = asked("hello" * 300)
    first = home(ask)
    looks = [Look(name, in_flight=63 if name == first else 0) for name in named(8)]
    ranked = order(ask, looks)[0]
    assert (ranked.worker, ranked.reason, ranked.expected, ranked.cost) == (first, Reason.HOME, 0.0, 63.0)
    assert order(ask, looks, concurrency_threshold=63)[0].worker != first


def test_the_requests_of_other_processes_count_too() -> None:
    ask = asked("hello" * 300)
    looks = [Look(name, in_flight=40) for name in named(8)]
    for look in looks:
        vars(look.load)["elsewhere"] = 24 if look.id == home(ask) else 0
    ranked = order(ask, looks)
    assert ranked[0].reason == Reason.SPILL
    assert (ranked[-1].worker, ranked[-1].cost) == (home(ask), 64.0)


def test_when_nobody_has_fewer_the_prefix_stays() -> None:
    """There is no worker with more capacity to move to."""
    ask = asked("hello" * 300)
    ranked = order(ask, [Look(name, in_flight=90) for name in named(8)])
    assert (ranked[0].worker, ranked[0].reason) == (home(ask), Reason.HOME)
    assert {each.reason for each in ranked[1:]} == {Reason.SPILL}


def test_after_the_home_the_least_loaded_follows() -> None:
    ask = asked("hello" * 300)
    looks = [Look(name, in_flight=8 - at) for at, name in enumerate(named(8))]
    rest = [each.worker for each in order(ask, looks)[1:]]
    assert rest == [name for name in reversed(named(8)) if name != home(ask)]


@MANY
@given(counts=st.lists(st.integers(0, 30), min_size=8, max_size=8), threshold=st.integers(1, 20), text=ANY_TEXT)
def test_the_law_of_the_threshold(counts: list[int], threshold: int, text: str) -> None:
    """Below it the home, whatever the others have; from it on the fewest in flight, and the home at a tie."""
    ask = asked("x" + text)
    looks = [Look(name, in_flight=count) for name, count in zip(named(8), counts, strict=True)]
    has, at_home = dict(zip(named(8), counts, strict=True)), home(ask)
    chosen = order(ask, looks, concurrency_threshold=threshold)[0]
    if has[at_home] < threshold:
        assert (chosen.worker, chosen.reason) == (at_home, Reason.HOME)
    else:
        assert has[chosen.worker] == min(counts)
        assert (chosen.worker == at_home) == (has[at_home] == min(counts)) == (chosen.reason == Reason.HOME)


# When the fleet changes, and who is kept apart.


@FEW
@given(gone=st.sampled_from(named(8)), texts=st.lists(ANY_TEXT, min_size=20, max_size=20))
def test_when_a_worker_goes_only_its_prefixes_move(gone: str, texts: list[str]) -> None:
    left = [Look(name) for name in named(8) if name != gone]
    for text in texts:
        ask = asked("x" + text)
        if home(ask) != gone:
            assert order(ask, left)[0].worker == home(ask)


def test_an_id_is_part_of_the_prefix_by_header_or_in_the_body() -> None:
    stage = Stage(8, "prefix_aware")
    body = chat("hello" * 300)
    by_header = [stage.look(body, caller(prefix_id=f"app-{at}")) for at in range(20)]
    in_body = [stage.look(chat("hello" * 300, prompt_cache_key=f"app-{at}")) for at in range(20)]
    assert len(set(by_header)) > 3
    assert len(set(in_body)) > 3


def test_an_id_and_a_tenant_part_native_calls_too() -> None:
    stage = Stage(8, "prefix_aware")

    def goes(who: Caller) -> str:
        ask = stage.mind.weigh(Prompt(b"said"), who, b'{"inputs": "said"}', native=True, count=False)
        choice = stage.mind.choose(ask, None, (), 0.0)
        assert choice is not None
        return choice.seat.id

    assert len({goes(caller(prefix_id=f"app-{at}")) for at in range(20)}) > 3
    assert len({goes(caller(tenant=f"team-{at}")) for at in range(20)}) > 3
    assert goes(caller(prefix_id="app-1")) == goes(caller(prefix_id="app-1"))


@pytest.mark.parametrize(
    "options",
    [{"prefix_length": 1023}, {"prefix_length": 65537}, {"concurrency_threshold": 0}, {"concurrency_threshold": 1025}],
)
def test_what_is_outside_the_documented_ranges_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Options(**options)
    Options(prefix_length=1024, concurrency_threshold=1)
    Options(prefix_length=65536, concurrency_threshold=1024)


@pytest.mark.parametrize("workers", [1, 3, SMALL + 1, 50])
def test_whatever_happens_to_a_fleet_the_order_is_that_of_looking_at_everybody(workers: int) -> None:
    churn = Churn(Random(workers), workers, even=False)
    aware = build(Options(concurrency_threshold=3), PolicyTools(churn.fleet.ring, None))
    for _ in range(300):
        churn.step()
        ask, candidates = churn.ask(), churn.fleet.candidates(None)
        text = beginning(ask.text, 4096)
        if text and candidates:
            key = prefix_hash(text, ask.seed, len(text))
            expected = plain_rule.prefix_aware([*candidates], churn.fleet.ring, key)
            assert list(aware.order(ask, candidates, churn.now)) == expected
