"""The sets of prompts: none of them was trained on."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backends.contract import Chat

if TYPE_CHECKING:
    from backends.train_heads.prompts import Prompt

NEEDS_TRACES = {"mt_bench": "mt_bench_question.jsonl.gz", "agent": "agent_text_*.jsonl.gz"}
SETS = ("plan", "chat", *NEEDS_TRACES)


class NotEnoughPromptsError(Exception):
    """A set is smaller than what was asked of it."""


def missing(name: str, traces: Path | None) -> str | None:
    """What a set lacks that has to lie in a folder of traces, in words."""
    wanted = NEEDS_TRACES.get(name)
    if wanted is None or (traces is not None and any(traces.glob(wanted.replace(".gz", "*")))):
        return None
    return f"the set {name} needs --traces FOLDER with {wanted}" + (f"; {traces} has none" if traces else "")


def sets(names: Sequence[str], count: int, traces: Path | None, seed: int = 0) -> dict[str, list[Chat]]:
    """`count` prompts of each set, drawn without regard to their order: MT-Bench, for one, is sorted by category.
    Raises NotEnoughPromptsError."""
    from backends.train_heads.prompts import collected  # needs torch, which the command line does not

    prompts = collected(traces)
    return {name: drawn(name, prompts, count, seed) for name in names}


def drawn(name: str, prompts: "Sequence[Prompt]", count: int, seed: int) -> list[Chat]:
    unseen = [prompt.chat for prompt in prompts if prompt.kind == name and not prompt.seen]
    if len(unseen) < count:
        raise NotEnoughPromptsError(f"the set {name} has {len(unseen)} prompts, and --prompts asks for {count}")
    return random.Random(seed).sample(unseen, count)  # noqa: S311  no secret
