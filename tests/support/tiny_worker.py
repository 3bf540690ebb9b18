"""A whole worker around a tiny network of random numbers: real parts, and a step of a millisecond.

Its vocabulary is the 256 bytes and the three control tokens of ChatML.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import tokenizers
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from backends.block_pool import Listener
from backends.medusa.assembly import MedusaWorker
from backends.medusa.batch import Batch, Settings
from backends.medusa.costs import Costs, Curve
from backends.medusa.decoding import Request
from backends.medusa.engine import MedusaEngine
from backends.medusa.jobs import Limits
from backends.medusa.kv import Slab
from backends.medusa.model import Llama
from backends.medusa.plan import Load, Plan
from backends.medusa.prefix import PrefixStore
from backends.medusa.running import News, Run, Running
from backends.medusa.text import Detokenizer
from backends.medusa.vocabulary import BYTES, Vocabulary
from backends.medusa.weights import NAMES
from tests.support.llamas import random_weights, tiny_llama, tiny_shape

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS = 256 + len(CONTROL)
PATIENCE = 60.0


@cache
def bytewise() -> Vocabulary:
    """Token n is the byte n; the control tokens follow."""
    letters = sorted(BYTES, key=lambda letter: BYTES[letter])
    core = tokenizers.Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(CONTROL))
    return Vocabulary(core)


@cache
def network(seed: int = 0) -> Llama:
    return tiny_llama(vocabulary=TOKENS, seed=seed)


def running_of(
    *,
    llama: Llama | None = None,
    rows: int = 4,
    blocks: int = 64,
    block_tokens: int = 4,
    length: int = 192,
    prefill: int = 16,
    clock: Callable[[], float] = time.perf_counter,
) -> Running:
    """`length`: of a row, the room for guesses included."""
    llama = llama or network()
    slab = Slab(llama.shape, rows, length, llama.dtype, llama.device)
    costs = Costs(Curve([1, 64], [1.0, 1.5]))
    batch = Batch(llama, slab, costs, clock, settings=Settings(prefill_tokens=prefill, most_nodes=16))
    return Running(batch, PrefixStore(slab, blocks, block_tokens))


def run_of(prompt: Sequence[int], most: int = 8, root: int = 1, **more: Any) -> Run:
    request = Request(prompt=tuple(prompt), most_tokens=most, **more)
    return Run(request, root, Detokenizer(bytewise().token_bytes, bytewise().control))


def told(running: Running, *runs: Run, turns: int = 1000) -> list[News]:
    """Submits these, and turns until nothing is left to do or so many turns are over."""
    for run in runs:
        running.submit(run)
    news: list[News] = []
    while running.busy and turns:
        turn = running.turn()
        assert turn.error is None
        news += turn.news
        turns -= 1
    return news


def tokens_of(running: Running, run: Run) -> list[int]:
    """Everything that the run says when it is the only one."""
    told(running, run)
    assert run.row is not None
    return run.row.output


def holds_nothing(running: Running) -> bool:
    stats = running.stats()
    free = running.batch.slab.seats == running.batch.slab.rows
    return free and (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0) and not running.busy


def tiny_engine(
    listener: Listener | None = None, soon: Callable[..., Any] | None = None, most: int = 160, **running: Any
) -> MedusaEngine:
    """To be closed. It serves `tiny` and `other`, `most` tokens at most, and reports to this loop, or to `soon`."""
    limits = Limits(max_model_len=most, vocabulary=TOKENS, end=bytewise().end)
    soon = soon or asyncio.get_running_loop().call_soon_threadsafe
    return MedusaEngine(running_of(**running), bytewise(), limits, ("tiny", "other"), soon, lambda: 1, listener)


def saved(path: Path) -> Path:
    """The tiny network as a safetensors folder."""
    shape = tiny_shape(vocabulary=TOKENS)
    names = {ours: theirs for theirs, ours in NAMES.items()}
    tensors: dict[str, Tensor] = {}
    for name, tensor in random_weights(shape).items():
        block, _, rest = name.removesuffix(".weight").partition(".")
        if block != "blk":
            whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[block]
            tensors[f"{whole}.weight"] = tensor
            continue
        index, _, part = rest.partition(".")
        if part in ("attn_q", "attn_k"):
            heads = shape.heads if part == "attn_q" else shape.kv_heads
            tensor = tensor.view(heads, -1, 2, shape.width).transpose(1, 2).reshape(tensor.shape)
        tensors[f"model.layers.{index}.{names[part]}.weight"] = tensor.contiguous()
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    config = {
        "model_type": "llama", "num_hidden_layers": shape.layers, "hidden_size": shape.width,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_width,
        "intermediate_size": shape.inner, "vocab_size": shape.vocabulary, "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_base, "max_position_embeddings": shape.context, "tie_word_embeddings": True,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    bytewise().core.save(str(path / "tokenizer.json"))
    return path


class Served:
    """A worker that listens, and a client of it."""

    def __init__(self, worker: MedusaWorker) -> None:
        self.worker = worker
        self.http = httpx.AsyncClient(base_url=worker.server.address, timeout=PATIENCE, trust_env=False)

    async def complete(self, prompt: Any = "Hello", **fields: Any) -> Any:
        answer = await self.http.post("/v1/completions", json={"prompt": prompt, **fields})
        return answer.json()

    async def stats(self) -> Any:
        return (await self.http.get("/stats")).json()


@asynccontextmanager
async def served(plan: Plan, *, loaded: bool = True) -> AsyncIterator[Served]:
    worker = MedusaWorker(plan)
    await worker.server.listen()
    one = Served(worker)
    try:
        if loaded:
            await worker.load(lambda _: None)
        yield one
    finally:
        await one.http.aclose()
        worker.close()
        await asyncio.sleep(0)  # transports close in the next turn


def plan_of(path: Path, **load: Any) -> Plan:
    usual = {"max_model_len": 160, "cache_blocks": 64, "block_tokens": 4, "prefill_tokens": 16, "max_running": 4}
    return Plan(load=Load(model=path, **(usual | load)), models=("tiny",))
