"""What is asked, and what is kept apart for judging."""

import gzip
import json
import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.contract import Turn
from backends.train_heads import prompts
from backends.train_heads.prompts import KINDS, LONGEST_TURN, agents, chats, collected, mt_bench, own, plans, words

PAIRS = [("topics", "unseen_topics"), ("products", "unseen_products")]


def dice() -> random.Random:
    return random.Random(0)


def asked_of(found: Sequence[prompts.Prompt]) -> list[str]:
    return [prompt.chat.turns[-1].text for prompt in found]


def saved(path: Path, rows: Sequence[Any]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def traced(*sessions: str, each: int = 3) -> list[dict[str, str]]:
    return [
        {"session": session, "input": f"Session {session} was asked question {number}"}
        for session in sessions
        for number in range(each)
    ]


@pytest.mark.parametrize(("seen", "unseen"), PAIRS)
def test_no_held_out_word_is_trained_on(seen: str, unseen: str) -> None:
    def folded(name: str) -> set[str]:
        return {word.casefold() for word in words(name)}

    assert folded(unseen)
    assert not folded(seen) & folded(unseen)


@pytest.mark.parametrize(
    "name", ["topics", "unseen_topics", "products", "unseen_products", "places", "days", "chats", "wishes"]
)
def test_no_word_or_template_is_empty_or_there_twice(name: str) -> None:
    found = words(name)
    assert all(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("template", words("chats"))
def test_every_chat_template_has_one_place_for_its_topic(template: str) -> None:
    assert [field for _, field, _, _ in string.Formatter().parse(template) if field is not None] == [""]


@pytest.mark.parametrize("template", words("wishes"))
def test_every_wish_has_one_place_for_its_product_and_no_unknown_one(template: str) -> None:
    fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    assert fields.count("") == 1
    assert set(fields) <= {"", "n", "place", "day"}


def test_every_template_meets_every_topic() -> None:
    assert len(list(chats(seen=True))) == len(words("topics")) * len(words("chats"))
    assert len(list(plans(dice(), seen=False))) == len(words("unseen_products")) * len(words("wishes"))


def test_a_plan_is_asked_with_its_planners_examples() -> None:
    for prompt in plans(dice(), seen=False):
        roles = [turn.role for turn in prompt.chat.turns]
        assert roles[0] == "system"
        assert len(roles) >= 4
        assert roles[1:] == ["user", "assistant"] * ((len(roles) - 2) // 2) + ["user"]
        assert "{" not in prompt.chat.turns[-1].text


def test_no_prompt_is_there_twice() -> None:
    found = [repr(prompt.chat) for prompt in collected(None)]
    assert len(set(found)) == len(found)


def test_seed_and_files_decide_the_prompts(tmp_path: Path) -> None:
    saved(tmp_path / "agent_text_a.jsonl", traced(*"abcdefgh"))
    assert collected(tmp_path, 1) == collected(tmp_path, 1)
    assert collected(tmp_path, 1) != collected(tmp_path, 2)
    assert {prompt.kind for prompt in collected(tmp_path)} == {"chat", "plan", "agent"} <= set(KINDS)


@pytest.mark.parametrize("name", ["agent_text_a.jsonl", "agent_text_a.jsonl.gz"])
def test_a_traces_session_is_either_trained_on_or_judged_on(tmp_path: Path, name: str) -> None:
    found = list(agents([saved(tmp_path / name, traced(*string.ascii_letters))], dice()))
    sides = {
        seen: {text.split()[1] for text in asked_of([each for each in found if each.seen == seen])}
        for seen in (True, False)
    }
    assert len(found) == 3 * 52
    assert not sides[True] & sides[False]
    assert len(sides[False]) == round(0.15 * 52)


def test_one_session_is_held_out_even_of_few(tmp_path: Path) -> None:
    found = list(agents([saved(tmp_path / "a.jsonl", traced("x", "y"))], dice()))
    assert sorted(prompt.seen for prompt in found) == [False] * 3 + [True] * 3


def test_what_agents_were_asked_twice_or_in_a_word_is_left_out_and_long_text_keeps_its_end(tmp_path: Path) -> None:
    rows = [{"session": session, "input": "the very same long question"} for session in "ab"]
    rows += [{"session": "a", "input": "yes"}, {"session": "a", "input": "x" * 5000 + " the end of it"}]
    texts = asked_of(list(agents([saved(tmp_path / "a.jsonl", rows)], dice())))
    assert len(texts) == 2
    assert texts[1].endswith("x the end of it")
    assert len(texts[1]) == LONGEST_TURN


def test_mt_bench_is_never_trained_on(tmp_path: Path) -> None:
    rows = [{"question_id": 81, "category": "writing", "turns": ["First?", "Second?"]}]
    saved(tmp_path / "mt_bench_question.jsonl.gz", rows)
    (found,) = mt_bench(tmp_path / "mt_bench_question.jsonl.gz")
    assert asked_of([found]) == ["First?"]
    kept = [prompt for prompt in collected(tmp_path) if prompt.kind == "mt_bench"]
    assert [prompt.seen for prompt in kept] == [False]


def test_ones_own_prompts_are_texts_or_conversations(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": "Hi"},
    ]
    rows = [{"prompt": "Why?"}, {"messages": [*messages, {"role": "user", "content": "Why?"}]}, {"prompt": "Why?"}]
    one, other = own(saved(tmp_path / "mine.jsonl", rows), dice())
    assert one.chat.turns[-1] == Turn("user", "Why?")
    assert [turn.text for turn in other.chat.turns] == ["Hello", "Hi", "Why?"]


def test_a_share_of_ones_own_prompts_is_held_out(tmp_path: Path) -> None:
    path = saved(tmp_path / "mine.jsonl", [{"prompt": str(number)} for number in range(400)])
    found = [prompt for prompt in collected(None, 0, path) if prompt.kind == "own"]
    assert len(found) == 400
    assert 30 < sum(not prompt.seen for prompt in found) < 100


@pytest.mark.parametrize(
    "row", [[], {}, {"prompt": 3}, {"messages": []}, {"messages": "Hello"}, {"messages": [{"content": "Hello"}]}, None]
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, row: Any) -> None:
    path = saved(tmp_path / "mine.jsonl", [{"prompt": "Why?"}, row])
    with pytest.raises(ValueError, match=r"mine\.jsonl, line 2: expected \{\"messages\""):
        list(own(path, dice()))


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"prompt": "Why?"}\n{"prompt"\n')
    with pytest.raises(ValueError, match=r"mine\.jsonl, line 2: not JSON"):
        list(own(tmp_path / "mine.jsonl", dice()))


@pytest.mark.parametrize("name", ["agent_text_a.jsonl", "mt_bench_question.jsonl"])
@pytest.mark.parametrize("row", [[], {}, {"session": "a", "input": 3, "turns": "no list"}])
def test_a_trace_of_another_form_is_an_error(tmp_path: Path, name: str, row: Any) -> None:
    saved(tmp_path / name, [row])
    with pytest.raises(ValueError, match="in every line"):
        collected(tmp_path)
