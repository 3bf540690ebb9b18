"""What a step costs on this machine, measured before the first request: a few passes of each size.

The clock is the caller's. With one thread on a CPU the thread's own CPU time is the better one: a pass that another
process interrupts is not slower for that. With several threads, or on a GPU, only elapsed time sees all of the work.
"""

import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import median

import torch

from backends.medusa.costs import Costs, Curve
from backends.medusa.kv import Pass, Slab, Span
from backends.medusa.model import Llama

SIZES = (1, 2, 4, 8, 16, 32, 64)
REPEATS = 3  # the first one of a size also sets its kernels up: the median leaves it out
ROWS, WIDTH = 8, 16  # rows and tokens at which the parts of a row and of attention are told from the rest
CONTEXT = 1024


def clock_for(device: str, threads: int) -> Callable[[], float]:
    """The clock by which steps are measured, in the thread that does them."""
    return time.thread_time if device == "cpu" and threads == 1 else time.perf_counter


@torch.no_grad()
def calibrate(model: Llama, slab: Slab, clock: Callable[[], float]) -> Costs:
    """Takes seats while it measures, and gives them back; what lay in free ones is gone."""
    context = min(CONTEXT, slab.length - WIDTH, model.shape.context - WIDTH)
    seats = [slab.take() for _ in range(min(ROWS, slab.seats))]

    def seconds(spans: Sequence[Span]) -> float:
        return median(one_pass(model, slab, spans, clock) for _ in range(REPEATS))

    try:
        slab.slice(seats[0], 0, context).zero_()  # whatever lies there must not be slow to compute with
        sizes = [size for size in SIZES if size <= slab.length]
        alone = {size: seconds([Span(seats[0], 0, size)]) for size in sizes}
        far = seconds([Span(seats[0], context, WIDTH)])
        apart = seconds([Span(seat, 0, 1) for seat in seats])
    finally:
        for seat in seats:
            slab.give(seat)
    per_seen = max(0.0, far - alone[WIDTH]) / (WIDTH * context)
    curve = Curve(sizes, list(accumulate(alone.values(), max)))
    per_row = max(0.0, apart - curve.at(len(seats))) / max(1, len(seats) - 1)
    return Costs(curve, per_row, per_seen)


def one_pass(model: Llama, slab: Slab, spans: Sequence[Span], clock: Callable[[], float]) -> float:
    """Seconds from tokens to choices."""
    began = clock()
    tokens = torch.tensor([0 for span in spans for _ in range(span.count)], device=model.device)
    places = [span.length + place for span in spans for place in range(span.count)]
    hidden, _ = model.forward(tokens, torch.tensor(places, device=model.device), Pass(slab, spans))
    model.logits(hidden).argmax(-1).tolist()
    return clock() - began
