"""Which prompts are decoded."""

from pathlib import Path

import pytest

from backends.bench_decoding.sets import SETS, NotEnoughPromptsError, drawn, missing, sets
from backends.contract import Chat, Turn
from backends.train_heads.prompts import Prompt, collected


def prompt(text: str, kind: str = "chat", *, seen: bool = False) -> Prompt:
    return Prompt(kind, seen, Chat((Turn("user", text),)))


def test_nothing_that_was_trained_on_is_drawn() -> None:
    prompts = [prompt("seen", seen=True), prompt("other", "plan"), prompt("one"), prompt("two")]
    assert {chat.turns[0].text for chat in drawn("chat", prompts, 2, 0)} == {"one", "two"}


def test_a_seed_always_draws_the_same_and_another_draws_others() -> None:
    prompts = [prompt(str(at)) for at in range(100)]
    assert drawn("chat", prompts, 20, 0) == drawn("chat", prompts, 20, 0) != drawn("chat", prompts, 20, 1)


def test_more_prompts_than_there_are_is_refused_with_both_numbers() -> None:
    with pytest.raises(NotEnoughPromptsError, match="the set chat has 1 prompts, and --prompts asks for 2"):
        drawn("chat", [prompt("one")], 2, 0)


def test_every_set_has_at_least_the_prompts_of_the_default(traces: Path) -> None:
    found = sets(("plan", "chat", "mt_bench"), 20, traces)
    assert {name: len(chats) for name, chats in found.items()} == {"plan": 20, "chat": 20, "mt_bench": 20}
    known = {chat for one in collected(traces) if one.seen for chat in [one.chat]}
    assert known.isdisjoint(chat for chats in found.values() for chat in chats)


def test_what_lies_in_traces_is_missing_without_them(traces: Path) -> None:
    assert [name for name in SETS if missing(name, None)] == ["mt_bench", "agent"]
    assert missing("mt_bench", traces) is None
    lacking = missing("agent", traces)
    assert lacking is not None
    assert "agent_text_" in lacking
    assert str(traces) in lacking
