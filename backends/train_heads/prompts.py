"""Prompts to train and to judge the heads on: templates filled with words, what agents were asked in traces, and a file
of one's own.

Which words are in which set is fixed: `unseen_*` words never come into training, nor do a trace's held-out sessions and
the file's held-out lines. MT-Bench is only ever a set to judge on.
"""

import gzip
import json
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from backends.contract import Chat, Turn
from backends.medusa.vocabulary import SYSTEM
from backends.prompts import conversation
from backends.wire import ApiError

HELD_OUT = 0.15  # of a trace's sessions, and of one's own prompts
LONGEST_TURN = 1200  # characters of an agent's turn that are kept, its end


KINDS = ("chat", "plan", "agent", "own", "mt_bench")


@dataclass(frozen=True, slots=True)
class Prompt:
    """`kind`: one of KINDS. `seen`: whether it may be trained on."""

    kind: str
    seen: bool
    chat: Chat


def words(name: str) -> list[str]:
    return [" ".join(word.split()) for word in _table()[name].split(";")]


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("backends.train_heads").joinpath("words.toml").read_text("utf-8"))


def chats(*, seen: bool) -> Iterator[Prompt]:
    """Every template about every topic."""
    for topic in words("topics" if seen else "unseen_topics"):
        for template in words("chats"):
            yield Prompt("chat", seen, asked(template.format(topic)))


def plans(dice: random.Random, *, seen: bool) -> Iterator[Prompt]:
    """Every wish for every product, each planned by one planner of the table."""
    places, days, planners = words("places"), words("days"), _table()["planners"]
    for product in words("products" if seen else "unseen_products"):
        for wish in words("wishes"):
            said = wish.format(product, n=dice.randint(2, 90), place=dice.choice(places), day=dice.choice(days))
            planner = dice.choice(planners)
            turns = [Turn("system", planner["system"])]
            for question, answer in planner["examples"]:
                turns += [Turn("user", question), Turn("assistant", answer)]
            yield Prompt("plan", seen, Chat((*turns, Turn("user", said))))


def agents(paths: list[Path], dice: random.Random) -> Iterator[Prompt]:
    """What was asked in traces of agents: lines of JSON with `session` and `input`. Doubles come once. Raises
    ValueError for other lines."""
    known: set[str] = set()
    for path in paths:
        rows = list(lines(path))
        if not all(isinstance(row, dict) and "session" in row and isinstance(row.get("input"), str) for row in rows):
            raise ValueError(f"{path}: expected a session and an input, a text, in every line")
        sessions = sorted({row["session"] for row in rows})
        dice.shuffle(sessions)
        held_out = set(sessions[: max(1, round(HELD_OUT * len(sessions)))])
        for row in rows:
            text = row["input"].strip()[-LONGEST_TURN:]
            if len(text) >= 20 and text not in known:
                known.add(text)
                yield Prompt("agent", row["session"] not in held_out, asked(text))


def mt_bench(path: Path) -> Iterator[Prompt]:
    """The first turn of each question. Zheng et al. 2023. Raises ValueError for other lines."""
    for row in lines(path):
        if not (isinstance(row, dict) and isinstance(row.get("turns"), list) and row["turns"]):
            raise ValueError(f"{path}: expected a question's turns in every line")
        yield Prompt("mt_bench", False, asked(row["turns"][0]))


def own(path: Path, dice: random.Random) -> Iterator[Prompt]:
    """Lines of JSON, each {"messages": [...]} or {"prompt": "..."}. Doubles come once. Raises ValueError with the
    line's number for anything else."""
    known: set[str] = set()
    for number, chat in enumerate(map(chat_of, lines(path)), 1):
        if chat is None:
            raise ValueError(f'{path}, line {number}: expected {{"messages": [...]}} or {{"prompt": "..."}}')
        held_out = dice.random() < HELD_OUT
        if repr(chat) not in known:
            known.add(repr(chat))
            yield Prompt("own", not held_out, chat)


def chat_of(row: Any) -> Chat | None:
    if isinstance(row, dict) and isinstance(row.get("prompt"), str):
        return asked(row["prompt"])
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list) or not row["messages"]:
        return None
    try:
        return conversation(row["messages"], row.get("tools") or ())
    except ApiError:
        return None


def asked(text: str) -> Chat:
    return Chat((Turn("system", SYSTEM), Turn("user", text)))


def lines(path: Path) -> Iterator[Any]:
    """Raises ValueError for a line that is not JSON."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None


def collected(traces: Path | None, seed: int = 0, more: Path | None = None) -> list[Prompt]:
    """All prompts there are. `traces`: a folder with agent_text_*.jsonl(.gz) and mt_bench_question.jsonl(.gz); `more`:
    a file of one's own. Raises ValueError for a line that is no prompt."""
    dice = random.Random(seed)  # noqa: S311  no secret
    found = [*chats(seen=True), *chats(seen=False), *plans(dice, seen=True), *plans(dice, seen=False)]
    if traces is not None:
        found += agents(sorted(traces.glob("agent_text_*")), dice)
        for path in sorted(traces.glob("mt_bench_question*")):
            found += mt_bench(path)
    return found + (list(own(more, dice)) if more is not None else [])
