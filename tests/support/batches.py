"""A batch to play with: a pool of requests with their plain answers, and rows that join and leave as they please."""

from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import torch

from backends.medusa.batch import Batch, Progress, Settings
from backends.medusa.costs import Costs, Curve
from backends.medusa.decoding import Decoding, Request
from backends.medusa.drafting import Drafter
from backends.medusa.kv import Slab
from backends.medusa.model import Llama
from backends.medusa.tree import Tree
from tests.support.drafters import Seer
from tests.support.llamas import tiny_llama
from tests.support.plain_decoding import greedy

TREE = Tree([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 0, 0, 0)])
WHOLE = Settings(always=True, whole=True)
FLAT = Curve((1, 64), (1.0, 1.0))  # every node is worth its time


class Clock:
    """Every look at it takes a moment."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


@cache
def llama() -> Llama:
    return tiny_llama((0,))


@cache
def pool() -> list[Request]:
    """Prompts of 1 to 60 tokens, some of which repeat themselves, and answers of 1 to 24."""
    chance, found = Random(5), []
    for index in range(20):
        part = [chance.randrange(97) for _ in range(chance.choice([1, 3, 8, 20]))]
        found.append(Request(prompt=part * chance.choice([1, 2, 3]), most_tokens=1 + index))
    return [ended(request, chance) if index % 3 == 1 else request for index, request in enumerate(found)]


def ended(request: Request, chance: Random) -> Request:
    """With an end somewhere in its text."""
    return replace(request, ends={chance.choice(answer(tuple(request.prompt))[: request.most_tokens])})


@cache
def answer(prompt: tuple[int, ...], most: int = 28) -> list[int]:
    return greedy(llama(), prompt, most)


def expected(request: Request) -> list[int]:
    text = answer(tuple(request.prompt))[: request.most_tokens]
    ends = [place for place, token in enumerate(text, 1) if token in request.ends]
    return text[: ends[0]] if ends else text


def texts() -> dict[tuple[int, ...], list[int]]:
    return {tuple(request.prompt): answer(tuple(request.prompt)) for request in pool()}


def batch_of(
    drafter: Drafter | Seer | None = None,
    settings: Settings | None = None,
    model: Llama | None = None,
    rows: int = 16,
    curve: Curve = FLAT,
    clock: Clock | None = None,
    length: int = 160,
) -> Batch:
    model = model or llama()
    slab = Slab(model.shape, rows, length, torch.float32, torch.device("cpu"))
    batch = Batch(model, slab, Costs(curve), clock or Clock(), drafter, settings)  # type: ignore[arg-type]
    if isinstance(drafter, Seer):
        drafter.rows = lambda: [row for row in batch.rows if not row.prefilling and row.finished is None]
    return batch


@dataclass
class Played:
    outputs: dict[int, list[int]] = field(default_factory=dict)  # by the request's place
    reports: dict[int, list[Progress]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)  # before their end


def play(batch: Batch, requests: list[Request], chance: Random, most_rows: int, leaving: float = 0.0) -> Played:
    """Rows join at random steps, and some leave at random ones; who is finished leaves at once or a little later."""
    waiting, played = list(enumerate(requests)), Played()
    places: dict[Decoding, int] = {}
    while waiting or batch.rows:
        while waiting and len(batch.rows) < most_rows and chance.random() < 0.6:
            place, request = waiting.pop(0)
            places[batch.join(request)] = place
        for progress in batch.step():
            played.reports.setdefault(places[progress.row], []).append(progress)
        for row in list(batch.rows):
            if row.finished is None and chance.random() < leaving:
                played.left.add(places[row])
            elif row.finished is None or chance.random() < 0.3:
                continue
            batch.leave(row)
    for row, place in places.items():
        played.outputs[place] = row.output
        reported = [token for progress in played.reports.get(place, []) for token in progress.tokens]
        assert reported == row.output
    return played
