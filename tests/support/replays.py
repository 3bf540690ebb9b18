"""Small traces and runs of them, for tests of the replay."""

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from router.contracts import PolicyTools
from router.plugins import build_policy
from router.replay.blocks import BlockLine, block_rows
from router.replay.item import BLOCK, Item, Request
from router.replay.routing import MakePolicy, Routed
from router.replay.rows import Row
from router.replay.simulate import Dice, Setup, Simulation
from router.replay.words import BlockWords

LABELS = [f"block {number}" for number in range(10_000)]


def dice(seed: int = 0) -> Dice:
    return lambda name: Random(f"{seed}:{name}")


def item(names: Sequence[int], tokens: int | None = None, output: int = 10) -> Item:
    """A prompt of these blocks."""
    tokens = BLOCK * len(names) if tokens is None else tokens
    ends = range(BLOCK, BLOCK * (len(names) + 1), BLOCK)
    return Item(names, ends, tokens, output, BlockWords(names, LABELS, tokens))


def request(names: Sequence[int], due: float = 0.0, **more: Any) -> Request:
    return Request(item(names, **more), due)


def line(at: float, ids: Sequence[int | str], output: int = 10, **more: Any) -> BlockLine:
    """One line of a block trace, `at` seconds from its beginning."""
    return BlockLine(at * 1000, BLOCK * len(ids), output, list(ids), **more)


def rows(*lines: BlockLine) -> list[Row]:
    return block_rows(lines)


def written(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def conversations(count: int = 12, turns: int = 4, apart: float = 0.4) -> list[dict[str, Any]]:
    """Conversations that take turns: each turn holds the one before; they share nothing with each other."""
    found = []
    for turn in range(turns):
        for each in range(count):
            ids = [each * 100 + block for block in range(3 + turn)]
            at = (turn * count + each) * apart
            found.append(
                {"timestamp": at * 1000, "input_length": BLOCK * len(ids), "output_length": 20, "hash_ids": ids}
            )
    return found


def policy(name: str, **options: Any) -> MakePolicy:
    def make(tools: PolicyTools) -> Any:
        return build_policy(name, options, tools)

    return make


def routed(requests: Sequence[Request], setup: Setup | None = None, name: str = "prefix_cost") -> Simulation:
    """One finished run of the gateway's core."""
    setup = setup or Setup(workers=2, room=20 * BLOCK)
    make, shares = policy(name), setup.share and setup.replicas > 1
    run = Simulation(requests, setup, lambda own: Routed(make, own, room=setup.room, shares=shares), dice())
    return run.run()


# A prompt is a path in a tree: a block names the whole prefix that ends in it.
paths = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(
    lambda steps: [sum((step + 1) * 4**at for at, step in enumerate(steps[: end + 1])) for end in range(len(steps))]
)
