"""The Llama of the transformers library, for comparison: the same weights in its own names and order of rows."""

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from backends.medusa.model import Shape
from backends.medusa.weights import NAMES, WHOLE


def reference_llama(shape: Shape, weights: dict[str, Tensor]) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_width,
        rms_norm_eps=shape.epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
        max_position_embeddings=shape.context,
        tie_word_embeddings="output.weight" not in weights,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng():  # what it draws for its own start is thrown away
        llama = LlamaForCausalLM(config).eval()
    missing = llama.load_state_dict(renamed_back(shape, weights), strict=False).missing_keys
    assert missing in ([], ["lm_head.weight"])  # the second when tied
    return llama


def renamed_back(shape: Shape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    parts, wholes = ({value: key for key, value in names.items()} for names in (NAMES, WHOLE))
    found = {}
    for name, value in weights.items():
        stem = name.removesuffix(".weight")
        if stem in wholes:
            found[f"{wholes[stem]}.weight"] = value
            continue
        _, index, part = stem.split(".")
        if part in ("attn_q", "attn_k"):
            value = half_a_head_apart(value, shape.heads if part == "attn_q" else shape.kv_heads)
        found[f"model.layers.{index}.{parts[part]}.weight"] = value
    return found


def half_a_head_apart(rows: Tensor, heads: int) -> Tensor:
    """[heads*E, D] with a head's rotated pairs side by side -> the same rows, second ones after first ones."""
    return rows.view(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)
