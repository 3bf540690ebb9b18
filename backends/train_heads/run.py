"""The whole of it: prompts, answers, heads, how good they are, a file. What is done already is not done again."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from backends.medusa import heads_file
from backends.medusa.heads import KINDS
from backends.medusa.heads_file import HeadsFile, quantised, restored
from backends.medusa.model import Llama
from backends.medusa.vocabulary import Vocabulary, vocabulary_of
from backends.medusa.weights import Checkpoint, ModelFileError, bundled, read
from backends.train_heads import prompts
from backends.train_heads.answers import Answering, Asked, write_shards
from backends.train_heads.corpus import Corpus, frequent
from backends.train_heads.distilling import Teacher
from backends.train_heads.evaluation import Judged, judged, pooled
from backends.train_heads.recipe import Recipe
from backends.train_heads.selection import Limits, in_shards, name_of, selected
from backends.train_heads.training import start_from, train

LONGEST_PROMPT = 1024  # tokens; every seat has room for the longest, so one long prompt would cost all of them
SHARD = 512  # prompts
TREE = 64  # nodes whose paths are kept, the root among them
NEVER_TUNED_ON = "mt_bench"

Shards = Mapping[Path, Sequence[Asked]]


class Watch(Protocol):
    """Sees how far it is."""

    def say(self, line: str) -> None: ...

    def stage(self, label: str, total: int) -> AbstractContextManager[Callable[[int, str], None]]:
        """What it gives is told how much of `total` is done, and a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`part`: the i-th of n processes that answer side by side, from 1; `start`: weights to begin with; `model`: None
    for the packaged one."""

    work: Path
    out: Path
    recipe: Recipe
    limits: Limits
    model: Path | None = None
    traces: Path | None = None
    more: Path | None = None
    start: Path | None = None
    only: Literal["answers", "heads"] | None = None
    part: tuple[int, int] = (1, 1)
    seats: int = 128
    most_tokens: int = 224
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Made:
    """`positions`: tokens that were learned from; `shards`: of answers, that there were and that were planned."""

    path: Path
    heads: HeadsFile
    sets: dict[str, Judged]
    positions: int
    shards: tuple[int, int]


def run(plan: Plan, watch: Watch) -> Made | None:
    """None if only answers were asked for. Raises ModelFileError for a model or heads that do not fit, ValueError for
    prompts that are none and for what cannot be trained on."""
    torch.set_num_threads(plan.threads)
    watch.say("reading the model")
    checkpoint = read(plan.model or bundled())
    if "output.weight" in checkpoint.weights:
        raise ModelFileError(f"{checkpoint.source}: its output matrix is not its embedding; heads need a tied model")
    shards = planned(plan, checkpoint, watch)
    if plan.only != "heads":
        answer(plan, checkpoint, shards, watch)
    return make(plan, checkpoint, shards, watch) if plan.only != "answers" else None


def planned(plan: Plan, checkpoint: Checkpoint, watch: Watch) -> Shards:
    """Every shard that there is to be, in order."""
    vocabulary = vocabulary_of(checkpoint)
    found = prompts.collected(plan.traces, plan.recipe.seed, plan.more)
    chosen = asked(selected(found, plan.limits, plan.recipe.seed), vocabulary)
    room = min(LONGEST_PROMPT, checkpoint.shape.context - plan.most_tokens)
    short = [each for each in chosen if len(each.ids) <= room]
    long = len(chosen) - len(short)
    left_out = f"; {long} more are longer than {room} tokens and left out" if long else ""
    watch.say(f"{len(short)} prompts{left_out}")
    model, folder = identity(checkpoint), plan.work / "answers"
    return {folder / name_of(shard, model, plan.most_tokens): shard for shard in in_shards(short, SHARD)}


def asked(chosen: Sequence[prompts.Prompt], vocabulary: Vocabulary) -> list[Asked]:
    return [Asked(prompt.kind, prompt.seen, vocabulary.chat(prompt.chat)) for prompt in chosen]


def identity(checkpoint: Checkpoint) -> str:
    """Tells one network from another, fine-tuned ones of the same size too."""
    digest = sha256(repr(checkpoint.shape).encode())
    for name in ("token_embd.weight", "output_norm.weight"):
        digest.update(checkpoint.weights[name].contiguous().numpy().data)
    return digest.hexdigest()


def taps_of(layers: int) -> tuple[int, int]:
    """Layers that heads look at too: one early, one late."""
    return 3 * layers // 10, 2 * layers // 3


@torch.no_grad()
def answer(plan: Plan, checkpoint: Checkpoint, shards: Shards, watch: Watch) -> None:
    """This process's part of the shards."""
    index, count = plan.part
    mine = dict(list(shards.items())[index - 1 :: count])
    open_ones = [shard for path, shard in mine.items() if not path.exists()]
    if not open_ones:
        return
    plan.work.joinpath("answers").mkdir(parents=True, exist_ok=True)
    weights = {name: weight.bfloat16() for name, weight in checkpoint.weights.items()}
    model = Llama(checkpoint.shape, weights, taps_of(checkpoint.shape.layers))
    longest = max(len(each.ids) for shard in open_ones for each in shard)
    seats = min(plan.seats, max(map(len, open_ones)))
    answering = Answering(model, seats, longest, plan.most_tokens, vocabulary_of(checkpoint).end)
    with watch.stage("answers", sum(map(len, mine.values()))) as told:
        write_shards(answering, mine, lambda done, tokens: told(done, f"{tokens} new tokens"))


def make(plan: Plan, checkpoint: Checkpoint, shards: Shards, watch: Watch) -> Made:
    """Heads from the answers that there are, as a file."""
    paths = [path for path in shards if path.exists()]
    if not paths:
        raise ValueError(f"{plan.work}: no answers to these prompts; run without --only heads first")
    if len(paths) < len(shards):
        watch.say(f"{len(paths)} of {len(shards)} shards of answers are there; the heads learn from these")
    corpus, shape = Corpus(paths), checkpoint.shape
    ids = frequent(corpus.counts(shape.vocabulary), plan.recipe.vocabulary)
    recipe = replace(plan.recipe, vocabulary=len(ids))
    teacher = Teacher(checkpoint.weights["token_embd.weight"], ids)
    weights = taught(plan, recipe, teacher, corpus, paths, watch)
    sets = judged_sets(recipe, weights, teacher, corpus)
    heads = HeadsFile(
        kind=recipe.kind,
        weights=weights,
        ids=ids,
        taps=taps_of(shape.layers) if recipe.kind == "hydra" else (),
        paths=pooled([each for kind, each in sets.items() if kind != NEVER_TUNED_ON], TREE),
        base=heads_file.sizes(shape.layers, shape.width, shape.vocabulary),
        accuracy={kind: each.accuracy for kind, each in sets.items()},
        about={"model": checkpoint.source.name, "recipe": asdict(recipe), "positions": corpus.positions(seen=True)},
    )
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    heads_file.save(plan.out, heads)
    return Made(plan.out, heads, sets, corpus.positions(seen=True), (len(paths), len(shards)))


def taught(
    plan: Plan, recipe: Recipe, teacher: Teacher, corpus: Corpus, paths: Sequence[Path], watch: Watch
) -> dict[str, Tensor]:
    """Trained weights, as they will be read from the file."""
    _, states, width = corpus.states[0].shape
    torch.manual_seed(recipe.seed)
    weights = KINDS[recipe.kind].fresh(width, recipe.depth, states - 1, recipe.inner)
    if plan.start is not None:
        start_from(plan.start, weights)
    state = plan.work / f"heads-{run_name(recipe, paths, weights)}.state"
    with watch.stage("steps", recipe.steps) as told:
        train(
            weights, teacher, corpus, recipe, state,
            lambda step, losses, _: told(step, "losses " + " ".join(f"{loss:.2f}" for loss in losses)), tell_every=50,
        )  # fmt: skip
    watch.say(f"kept in {state}: the same command goes on from it, --from begins with it")
    return restored(quantised({name: weight.detach() for name, weight in weights.items()}))


def judged_sets(recipe: Recipe, weights: Mapping[str, Tensor], teacher: Teacher, corpus: Corpus) -> dict[str, Judged]:
    """By set of prompts. Raises ValueError if there is none to choose the tree by."""
    heads = KINDS[recipe.kind](weights)
    found = {kind: judged(heads, teacher, corpus, kind=kind) for kind in prompts.KINDS}
    sets = {kind: each for kind, each in found.items() if each is not None}
    if not sets.keys() - {NEVER_TUNED_ON}:
        raise ValueError("no held-out answer is long enough to judge the heads on; answer more prompts")
    return sets


def run_name(recipe: Recipe, paths: Sequence[Path], weights: Mapping[str, Tensor]) -> str:
    """The same for the same recipe, answers and first weights only, so that no run goes on from another one's state."""
    digest = sha256(json.dumps([asdict(recipe), [path.name for path in paths]]).encode())
    for weight in weights.values():
        digest.update(weight.numpy().data)
    return digest.hexdigest()[:12]
