"""The command line of self-distillation."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backends import serving
from backends.extras import started
from backends.flags import Flags, number, whole

if TYPE_CHECKING:
    from backends.train_heads.run import Plan

HELP = "trains decoding heads for a model on the model's own answers"
WHAT = """
The model answers prompts greedily, and the heads learn to say what it will say (self-distillation). All that is done
lies in the folder --work: the same command goes on where an earlier one was stopped, at the cost of one shard of
answers (512) or 500 steps at most. Several processes can answer side by side, each a part, and one trains afterwards.
"""
EXAMPLES = """examples:
  prefix-worker train-heads --work heads
  prefix-worker train-heads --work heads --only answers --part 1/2 &
  prefix-worker train-heads --work heads --only answers --part 2/2
  prefix-worker train-heads --work heads --only heads --out mine.safetensors
  prefix-worker medusa --heads mine.safetensors
"""
KINDS = ("hydra", "medusa")
STAGES = ("answers", "heads")


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"expected {' or '.join(names)}")
        return value

    return parse


def part(value: str) -> tuple[int, int]:
    """i/n, i from 1."""
    index, _, count = value.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ValueError("expected i/n, such as 1/2 and 2/2")
    return int(index), int(count)


def describe(parser: argparse.ArgumentParser, flags: Flags) -> None:
    parser.description = f"{HELP.capitalize()}.\n{WHAT}"
    parser.epilog = EXAMPLES
    add = flags.add
    add("--work", Path, "folder for the answers and the training's state", required=True, metavar="FOLDER")
    add("--out", Path, "file of heads to write (without: heads.safetensors in --work)", metavar="FILE")
    add("--model-path", Path, "a GGUF file or a safetensors folder (without: the packaged SmolLM2)", metavar="PATH")
    add("--traces", Path, "folder with agent_text_* and mt_bench_question* files, to ask those too", metavar="FOLDER")
    add("--prompts", Path, 'more prompts, lines of JSON: {"messages": [...]} or {"prompt": "..."}', metavar="FILE")
    add("--most-prompts", whole(1), "prompts of each kind to train on", 6500)
    add("--most-unseen", whole(1), "prompts of each kind to judge on", 300)
    add("--most-tokens", whole(1), "tokens of an answer, unless it ends by itself", 224)
    add("--seats", whole(1), "prompts that are answered at a time", 128)
    add("--only", one_of(STAGES), "do one half: answers or heads (without: both)")
    add("--part", part, "answer the i-th of n parts, beside other processes; with --only answers", metavar="I/N")
    add("--kind", one_of(KINDS), f"kind of heads: {' or '.join(KINDS)}", KINDS[0])
    add("--depth", whole(1, 16), "heads, each for one token further", 5)
    add("--inner", whole(1), "width inside a head of the kind hydra", 1024)
    add("--vocabulary", whole(1), "tokens that heads can say, the most frequent", 16384)
    add("--steps", whole(1), "training steps", 12000)
    add("--windows", whole(1), "windows of 32 positions a step", 8)
    add("--rate", number(above=0), "AdamW's highest learning rate", 0.0004)
    add("--from", Path, "begin with the weights of an earlier run: its state in --work, or its file", metavar="FILE")
    add("--seed", whole(0), "seed of the choice of prompts, the first weights and the order", 0)
    add("--threads", whole(1, 1024), "threads to compute with", 1)
    flags.switch("--json", "print JSON")


def run(found: argparse.Namespace) -> int:
    return started("prefix-worker train-heads", faults(found), lambda: made(found))


def faults(found: argparse.Namespace) -> list[str]:
    """What argparse does not see."""
    complaints = []
    if found.part is not None and found.only != "answers":
        complaints.append("--part is for --only answers; train once every part has answered")
    if found.traces is not None and not found.traces.is_dir():
        complaints.append(f"--traces {found.traces}: no such folder")
    for name, path in (("--prompts", found.prompts), ("--from", getattr(found, "from"))):
        if path is not None and not path.is_file():
            complaints.append(f"{name} {path}: no such file")
    return complaints


def made(found: argparse.Namespace) -> int:
    from backends.medusa.weights import ModelFileError
    from backends.train_heads.report import Watch, print_json, show
    from backends.train_heads.run import run as run_all

    try:
        result = run_all(plan_of(found), Watch())
    except (ModelFileError, ValueError, OSError) as error:
        serving.complain(str(error))
        return 1
    if result is not None:
        (print_json if found.json else show)(result)
    return 0


def plan_of(found: argparse.Namespace) -> "Plan":
    from backends.train_heads.recipe import Recipe
    from backends.train_heads.run import Plan
    from backends.train_heads.selection import Limits

    recipe = Recipe(
        kind=found.kind,
        depth=found.depth,
        inner=found.inner,
        vocabulary=found.vocabulary,
        steps=found.steps,
        windows=found.windows,
        rate=found.rate,
        seed=found.seed,
    )
    return Plan(
        work=found.work,
        out=found.out or found.work / "heads.safetensors",
        recipe=recipe,
        limits=Limits(found.most_prompts, found.most_unseen),
        model=found.model_path,
        traces=found.traces,
        more=found.prompts,
        start=getattr(found, "from"),
        only=found.only,
        part=found.part or (1, 1),
        seats=found.seats,
        most_tokens=found.most_tokens,
        threads=found.threads,
    )
