"""Heads on disk: one safetensors file with int8 weights, the tokens the heads can say, and how good they are.

Every row of a weight matrix is kept as int8 with one float32 scale: half of bfloat16's size, at an error far below what
training noise is. The tree is chosen from the ranks that were measured on held-out text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import Tensor

from backends.medusa.heads import KINDS
from backends.medusa.tree import Tree
from backends.medusa.weights import ModelFileError

FORMAT = "prefix-router heads 1"
ENTRY = "heads"  # one entry of metadata: several would be written in a random order
LEAST_SCALE = 1e-30  # of a row of zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsFile:
    """`ids` [size], ascending; `taps`: layers of the base that the heads look at; `paths`: the tree's nodes but for the
    root, as ranks, the most valuable first; `accuracy`: by set of prompts, each head's share of right first, three and
    five guesses; `base`: the network's sizes, to tell another model by; `about`: how they were made."""

    kind: str
    weights: dict[str, Tensor]
    ids: Tensor
    taps: tuple[int, ...]
    paths: list[tuple[int, ...]]
    base: dict[str, int]
    accuracy: dict[str, list[list[float]]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def tree(self, size: int) -> Tree:
        """The best tree of at most `size` nodes, the root among them."""
        return Tree(self.paths[: max(0, size - 1)])


class Said(msgspec.Struct, frozen=True):
    """The file's one entry of metadata, as JSON."""

    format: str
    kind: str
    taps: tuple[int, ...]
    paths: list[tuple[int, ...]]
    base: dict[str, int]
    accuracy: dict[str, list[list[float]]]
    about: dict[str, Any]


def save(path: Path, heads: HeadsFile) -> None:
    """Complete or not at all; the same heads give the same bytes."""
    said = Said(FORMAT, heads.kind, heads.taps, heads.paths, heads.base, heads.accuracy, heads.about)
    tensors = {"ids": heads.ids.to(torch.int32), **quantised(heads.weights)}
    part = path.with_suffix(".part")
    part.write_bytes(serialised(tensors, {ENTRY: msgspec.json.encode(said).decode()}))  # with the usual permissions
    part.replace(path)


def load(path: Path, base: dict[str, int] | None = None) -> HeadsFile:
    """Raises ModelFileError if it is no such file, or was trained on another network than `base`."""
    try:
        with safe_open(path, "pt") as file:
            said = msgspec.json.decode((file.metadata() or {}).get(ENTRY, ""), type=Said)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    except (SafetensorError, OSError, msgspec.DecodeError) as error:
        raise ModelFileError(f"{path}: not a file of heads ({error}); train-heads writes one") from None
    if said.format != FORMAT or said.kind not in KINDS:
        raise ModelFileError(f"{path}: not a file of heads that this version knows; train-heads writes one")
    if base is not None and said.base != base:
        raise ModelFileError(f"{path}: these heads were trained on a model of other sizes ({said.base}, not {base})")
    wrong = trouble(said, tensors)
    if wrong is not None:
        raise ModelFileError(f"{path}: not a file of heads, or a damaged one ({wrong}); train-heads writes one")
    ids = tensors.pop("ids").long()
    return HeadsFile(
        kind=said.kind, weights=restored(tensors), ids=ids, taps=said.taps, paths=said.paths, base=said.base,
        accuracy=said.accuracy, about=said.about,
    )  # fmt: skip


def trouble(said: Said, tensors: Mapping[str, Tensor]) -> str | None:
    """What does not fit together."""
    ids = tensors.get("ids", torch.tensor([]))
    if not ids.numel() or ids.ndim != 1 or ids[0] < 0 or ids[-1] >= said.base.get("vocabulary", 0):
        return "no ids of the base's tokens"
    if not bool((ids[1:] > ids[:-1]).all()):
        return "ids that do not ascend"
    if any(len(path) > 1 and path[:-1] not in said.paths[:place] for place, path in enumerate(said.paths)):
        return "a path before its beginning"
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != "ids"}
    depth = sum(name.startswith(("down.", "block.")) and not name.endswith(".scale") for name in found)
    inner = next((shape[-1] for name, shape in found.items() if name.startswith("down.") and len(shape) == 2), 1)
    with torch.device("meta"):  # sizes, and no numbers
        fresh = KINDS[said.kind].fresh(said.base.get("width", 0), max(1, depth), len(said.taps), inner)
        wanted = {name: tuple(tensor.shape) for name, tensor in quantised(fresh).items()}
    return None if found == wanted else "tensors that are missing or of other sizes"


def quantised(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8 rows with a scale each under `name.scale`; the rest in float32."""
    found: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim == 2:
            scale = (weight.float().abs().amax(1) / 127).clamp(min=LEAST_SCALE)
            found[name] = (weight / scale[:, None]).round().to(torch.int8)
            found[f"{name}.scale"] = scale
        else:
            found[name] = weight.float()
    return found


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """float32 weights from int8 rows and their scales."""
    scales = {name.removesuffix(".scale"): scale for name, scale in tensors.items() if name.endswith(".scale")}
    return {
        name: tensor.float() * scales[name][:, None] if name in scales else tensor
        for name, tensor in tensors.items()
        if not name.endswith(".scale")
    }


def sizes(layers: int, width: int, vocabulary: int) -> dict[str, int]:
    """What tells one base network from another."""
    return {"layers": layers, "width": width, "vocabulary": vocabulary}


def shipped(kinds: Sequence[str] = ("hydra",)) -> Path | None:
    """The heads for SmolLM2-135M-Instruct that come with this package."""
    found = [Path(__file__).with_name(f"smollm2-135m-{kind}.safetensors") for kind in kinds]
    return next((path for path in found if path.is_file()), None)
