"""Self-distillation's first half: the model answers the prompts greedily, many at a time, and what it saw is kept.

For every token of an answer the hidden state that predicted it is kept, and the tapped layers' states there, in
bfloat16. Heads trained on them learn to say what this very model says. Medusa-1 with
self-distillation: Cai et al. 2024.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.model import Llama, Shape


@dataclass(slots=True)
class Asked:
    """A prompt in ids, with what the shards say of it."""

    kind: str
    seen: bool
    ids: list[int]


@dataclass(slots=True)
class Answer:
    asked: Asked
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)  # [1+taps, D] each, of the position that predicted the token


class Seats:
    """Keys and values of B sequences side by side, each at a seat of S positions. bfloat16 or float32, CPU."""

    def __init__(self, shape: Shape, seats: int, length: int, dtype: torch.dtype) -> None:
        self._shape, self.length = shape, length
        width = 2 * shape.kv_heads * shape.head_width
        self._kept = torch.zeros(shape.layers, seats, length, width, dtype=dtype)
        self._seats = torch.arange(seats)
        self._where = (self._seats, self._seats)  # seats and positions to write
        self._mask: Tensor | None = None
        self._until = 0

    def decode(self, lengths: Tensor) -> None:
        """The next pass adds one token to every seat, at lengths [B]."""
        self._where = (self._seats, lengths)
        self._until = int(lengths.max()) + 1
        seen = torch.arange(self._until) <= lengths[:, None]  # [B, until]
        self._mask = torch.zeros(seen.shape, dtype=self._kept.dtype).masked_fill_(~seen, float("-inf"))[:, None, None]

    def prefill(self, seat: int, count: int) -> None:
        """The next pass computes a new sequence's first `count` tokens at this seat."""
        self._where = (torch.full((count,), seat), torch.arange(count))
        self._mask = None

    def attend(self, layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
        s, count = self._shape, queries.shape[0]
        kept = self._kept[layer]
        kept[self._where] = fresh
        if self._mask is None:
            keys, values = fresh.view(1, count, 2, s.kv_heads, s.head_width).transpose(1, 3).unbind(2)  # [1, K, n, E]
            asked = queries.view(1, count, s.heads, s.head_width).transpose(1, 2)  # [1, H, n, E]
            found = F.scaled_dot_product_attention(asked, keys, values, is_causal=True, enable_gqa=True)
            return found.transpose(1, 2).reshape(count, -1)
        keys, values = kept[:, : self._until].unflatten(-1, (2, s.kv_heads, s.head_width)).transpose(1, 3).unbind(2)
        asked = queries.view(count, s.kv_heads, -1, s.head_width)  # [B, K, H/K, E]: a group's queries share its keys
        return F.scaled_dot_product_attention(asked, keys, values, attn_mask=self._mask).reshape(count, -1)


class Answering:
    """Greedy answers from B seats. A seat whose answer is complete goes to the next prompt at once."""

    def __init__(self, model: Llama, seats: int, longest_prompt: int, most_tokens: int, end: int) -> None:
        self._model, self._end, self._most = model, end, most_tokens
        self._keeper = Seats(model.shape, seats, longest_prompt + most_tokens, model.dtype)
        self._at: list[Answer | None] = [None] * seats
        self._lengths = torch.zeros(seats, dtype=torch.int64)
        self._states = torch.zeros(seats, 1 + len(model.taps), model.shape.width, dtype=model.dtype)

    def run(self, prompts: Sequence[Asked]) -> Iterator[Answer]:
        waiting = iter(prompts)
        while True:
            for seat, answer in enumerate(self._at):
                if answer is None and (asked := next(waiting, None)) is not None:
                    self._seat(seat, asked)
            if not any(self._at):
                return
            yield from self._step()

    def _seat(self, seat: int, asked: Asked) -> None:
        count = len(asked.ids)
        self._keeper.prefill(seat, count)
        hidden, taps = self._model.forward(torch.tensor(asked.ids), torch.arange(count), self._keeper)
        self._states[seat] = torch.stack([state[-1] for state in (hidden, *taps)])
        self._lengths[seat] = count
        self._at[seat] = Answer(asked)

    def _step(self) -> Iterator[Answer]:
        tokens = self._model.logits(self._states[:, 0]).argmax(-1)  # [B]
        states, said = self._states.clone(), tokens.tolist()
        for seat, answer in enumerate(self._at):
            if answer is None:
                continue
            answer.tokens.append(said[seat])
            answer.states.append(states[seat])
            if said[seat] == self._end or len(answer.tokens) == self._most:
                self._at[seat] = None
                self._lengths[seat] = 0
                yield answer
        self._keeper.decode(self._lengths)
        hidden, taps = self._model.forward(tokens, self._lengths, self._keeper)
        self._states = torch.stack([hidden, *taps], 1)
        self._lengths += torch.tensor([answer is not None for answer in self._at])


def write_shard(path: Path, answers: Sequence[Answer]) -> None:
    """One file of whole answers, complete or not there at all.

    Tensors: tokens [N] int32, states [N, 1+taps, D] bfloat16, starts [answers+1] int64; metadata: kinds and seen, JSON.
    """
    lengths = [len(answer.tokens) for answer in answers]
    tensors = {
        "tokens": torch.tensor([token for answer in answers for token in answer.tokens], dtype=torch.int32),
        "states": torch.stack([state for answer in answers for state in answer.states]).bfloat16(),
        "starts": torch.tensor([0, *lengths]).cumsum(0),
    }
    said = {
        "kinds": json.dumps([answer.asked.kind for answer in answers]),
        "seen": json.dumps([answer.asked.seen for answer in answers]),
    }
    part = path.with_suffix(".part")
    save_file(tensors, part, said)
    part.replace(path)


def write_shards(
    answering: Answering, shards: Mapping[Path, Sequence[Asked]], told: Callable[[int, int], None]
) -> None:
    """Answers all prompts. Shards that are there already are left as they are. `told`, after every answer: prompts and
    tokens so far."""
    done = tokens = 0
    for path, prompts in shards.items():
        if path.exists():
            done += len(prompts)
            told(done, tokens)
            continue
        found = []
        for answer in answering.run(prompts):
            found.append(answer)
            done, tokens = done + 1, tokens + len(answer.tokens)
            told(done, tokens)
        write_shard(path, found)
