"""Self-distillation's second half: the heads learn from the answers. A run can be stopped and goes on where it was."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from backends.medusa.heads import KINDS
from backends.medusa.heads_file import load
from backends.train_heads.corpus import Corpus
from backends.train_heads.distilling import Teacher, loss_of
from backends.train_heads.recipe import Recipe, rate_at


def orders(windows: int, a_step: int, seed: int) -> Iterator[Tensor]:
    """Batches of window indices, epoch after epoch, the same for the same seed. An epoch's last few are left out where
    they are not a whole batch."""
    dice = torch.Generator().manual_seed(seed)
    size = min(a_step, windows)
    while True:
        order = torch.randperm(windows, generator=dice)
        yield from order[: windows - windows % size].view(-1, size)


def train(
    weights: dict[str, Tensor],
    teacher: Teacher,
    corpus: Corpus,
    recipe: Recipe,
    state_path: Path,
    told: Callable[[int, list[float], float], None],
    *,
    save_every: int = 500,
    tell_every: int = 500,
) -> None:
    """Trains the heads' `weights` in place, from where the file at `state_path` stopped. `told`: step, losses, seconds
    a step. Raises ValueError if that file belongs to another recipe or other answers, or there is nothing to learn."""
    heads = KINDS[recipe.kind](weights)
    windows = corpus.windows(recipe.depth, seen=True)
    if not windows:
        raise ValueError(f"no answer to learn from has more than {recipe.depth} tokens")
    for weight in weights.values():
        weight.requires_grad_()
    optimizer = torch.optim.AdamW(
        weights.values(), lr=recipe.rate, weight_decay=recipe.weight_decay, betas=(0.9, 0.95), fused=True
    )
    said = {"recipe": asdict(recipe), "positions": corpus.positions(seen=True)}
    first = resumed(state_path, said, weights, optimizer)
    smooth: list[float] | None = None
    began, last = time.monotonic(), first
    for step, chosen in zip(range(recipe.steps), orders(len(windows), recipe.windows, recipe.seed), strict=False):
        if step < first:
            continue
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, recipe)
        batch = corpus.read([windows[index] for index in chosen.tolist()], recipe.depth)
        with torch.autocast("cpu", torch.bfloat16):
            loss, each = loss_of(heads, teacher, batch, recipe)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        smooth = each if smooth is None else [0.98 * old + 0.02 * new for old, new in zip(smooth, each, strict=True)]
        if (step + 1) % save_every == 0 or step + 1 == recipe.steps:
            keep(state_path, {"weights": weights, "optimizer": optimizer.state_dict(), "step": step + 1, **said})
        if (step + 1) % tell_every == 0 or step + 1 == recipe.steps:
            told(step + 1, smooth, (time.monotonic() - began) / (step + 1 - last))


def start_from(path: Path, weights: dict[str, Tensor]) -> None:
    """Puts an earlier run's weights into fresh ones: a file of heads, or what a training run keeps (which is exact).
    Raises ValueError if they are of another kind or size, ModelFileError if the file of heads cannot be read."""
    earlier = load(path).weights if path.suffix == ".safetensors" else state_at(path)["weights"]
    sizes, wanted = ({name: tuple(weight.shape) for name, weight in each.items()} for each in (earlier, weights))
    if sizes != wanted:
        raise ValueError(f"{path}: heads of another kind, depth or width; start anew, or train with its sizes")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(earlier[name])


def keep(path: Path, state: Mapping[str, Any]) -> None:
    """Complete or not at all."""
    part = path.with_suffix(".part")
    torch.save(dict(state), part)
    part.replace(path)


def resumed(path: Path, said: Mapping[str, Any], weights: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> int:
    """Puts a stopped run's state back. Returns its steps, 0 without one."""
    if not path.exists():
        return 0
    kept = state_at(path)
    for name, mine in said.items():
        if kept[name] != mine:
            raise ValueError(f"{path} belongs to other {name}; remove it to start anew, or start from it with --from")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(kept["weights"][name])
    optimizer.load_state_dict(kept["optimizer"])
    steps: int = kept["step"]
    return steps


def state_at(path: Path) -> dict[str, Any]:
    """Raises ValueError if it is not what `train` keeps."""
    try:
        found = torch.load(path, weights_only=True) if is_zipfile(path) else None
    except (OSError, RuntimeError, UnpicklingError) as error:
        raise ValueError(f"{path}: not a training run's state ({error})") from None
    if not isinstance(found, dict) or not {"weights", "optimizer", "step", "recipe", "positions"} <= found.keys():
        raise ValueError(f"{path}: not a training run's state")
    return found
