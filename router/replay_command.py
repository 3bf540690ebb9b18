"""`prefix-router replay`: a trace through the gateway's own decision code and simulated workers, by policies."""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from router.layers import SettingsError

if TYPE_CHECKING:
    from router.replay.rows import Row
    from router.replay_run import Plan

SHARED_PREFIX = "sharedprefix"
MOST = {
    "workers": 1024,
    "blocks": 10**9,
    "replicas": 64,
    "seeds": 1000,
    "limit": 10**9,
    "copies": 1000,
    "table_hashes": 10**9,
}
LEAST_SECONDS = 0.001
GZIP_MAGIC = b"\x1f\x8b"


def add(commands: Any) -> None:
    replay = commands.add_parser(
        "replay", formatter_class=argparse.RawDescriptionHelpFormatter,
        help="compare policies on a trace, with simulated workers in simulated time",
        description="Compare policies: a trace through the gateway's own decision code and simulated workers.\n\n"
        "A trace is JSON lines, plain or .gz: block names (Mooncake's form), full text, or the gateway's own access\n"
        "log (with log.hashes: true). The load is set so that a reference that knows every worker's cache and queue\n"
        "keeps prefill busy for the given share of the time; every policy then gets the same arrivals.",
        epilog="example: prefix-router replay access.log --workers 4 --busy 0.5 --policy prefix_cost --policy random",
    )  # fmt: skip
    replay.add_argument(
        "trace", metavar="TRACE", help=f"a file, - for standard input, or {SHARED_PREFIX}: a made trace"
    )
    replay.add_argument(
        "--policy", action="append", metavar="NAME",
        help="a policy, or NAME:option=value,...; may repeat (reference and the gateway's main ones)",
    )  # fmt: skip
    _add_fleet(replay)
    _add_load(replay)
    _add_output(replay)
    replay.set_defaults(run=_replay)


def _add_fleet(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("--workers", type=int, default=8, metavar="N", help="simulated workers (8)")
    replay.add_argument(
        "--blocks", type=int, default=3000, metavar="N", help="512-token blocks of a worker's cache (3000)"
    )
    replay.add_argument("--speeds", type=_floats, default=(), metavar="F,F,...", help="the workers' speeds (all 1)")
    replay.add_argument("--told", action="store_true", help="configure the speeds as the workers' weights")
    change = replay.add_mutually_exclusive_group()
    change.add_argument("--leave", action="store_true", help="one worker leaves half way")
    change.add_argument("--join", action="store_true", help="one worker joins half way")
    replay.add_argument("--replicas", type=int, default=1, metavar="N", help="router replicas, in turns (1)")
    replay.add_argument(
        "--share", action=argparse.BooleanOptionalAction, default=True, help="replicas tell each other what they sent"
    )
    replay.add_argument("--share-lag", type=float, default=0.03, metavar="SECONDS", help="after so long (0.03)")
    replay.add_argument(
        "--poll", type=float, default=0.1, metavar="SECONDS",
        help="between two looks at the workers' queues with several replicas; 0: never (0.1)",
    )  # fmt: skip
    replay.add_argument(
        "--table-hashes", type=int, default=100_000, metavar="N",
        help="prefix hashes that each replica remembers, as routing.table_hashes (100000)",
    )  # fmt: skip
    replay.add_argument(
        "--usage", action=argparse.BooleanOptionalAction, default=True,
        help="workers report prompt tokens and cached tokens",
    )  # fmt: skip


def _add_load(replay: argparse.ArgumentParser) -> None:
    load = replay.add_mutually_exclusive_group()
    load.add_argument("--busy", type=_floats, default=(0.5,), metavar="F[,F...]", help="load, or several (0.5)")
    load.add_argument(
        "--scale", type=_floats, default=(), metavar="F[,F...]", help="the load as a multiple of the trace's own rate"
    )
    load.add_argument("--capacity", action="store_true", help="find the load that each policy carries, instead")
    replay.add_argument("--seed", type=int, default=0, metavar="N", help="of all dice (0)")
    replay.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="runs with different dice: mean and spread (1)"
    )
    replay.add_argument("--limit", type=int, metavar="N", help="only the first N prompts")
    replay.add_argument(
        "--copies",
        type=int,
        metavar="N",
        help="of each session (4 for 8 workers, 6 for 16, else 1), or of a trace without sessions, all at once (1)",
    )
    replay.add_argument("--shared-head", action="store_true", help="sessions share the blocks of their `head_tokens`")
    replay.add_argument("--exact-tokens", action="store_true", help="tell the router true lengths of full-text prompts")


def _add_output(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("--json", action="store_true", help="print one JSON object")
    replay.add_argument("--plot", type=Path, metavar="FILE.png", help="draw a picture (needs the extra `plot`)")
    replay.add_argument("--progress", action="store_true", help="show progress even where there is no terminal")


def _floats(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between, found {text!r}") from None


def _replay(options: argparse.Namespace) -> int:
    from router.replay_plot import check, draw
    from router.replay_policies import USUAL, entrants
    from router.replay_run import Runner
    from router.replay_table import Watch, print_json, show

    faults = _faults(options)
    if faults:
        raise SettingsError(faults)
    chosen = entrants(options.policy or list(USUAL))
    if options.plot is not None:
        check(options.plot)
    rows = _rows(options)
    plan = _plan(options, rows)
    with Watch(asked=options.progress) as watch:
        runner = Runner(rows, plan, watch)
        loads = [runner.capacities(chosen)] if options.capacity else runner.loads(chosen)
    if options.json:
        print_json(plan, len(rows), loads)
    else:
        show(plan, len(rows), loads)
    if options.plot is not None:
        draw(options.plot, plan, loads[0])
    return 0


def _faults(options: argparse.Namespace) -> list[str]:
    """What is wrong with the flags' values, all of it."""
    faults = [
        f"--{name.replace('_', '-')}: expected a whole number from 1 to {most:,}, found {value}"
        for name, most in MOST.items()
        if (value := getattr(options, name)) is not None and not 1 <= value <= most
    ]
    faults += [f"--busy: expected shares between 0 and 1, found {each:g}" for each in options.busy if not 0 < each < 1]
    faults += [f"--scale: expected numbers above 0, found {each:g}" for each in options.scale if not 0 < each < 1e6]
    faults += [f"--speeds: expected numbers above 0, found {each:g}" for each in options.speeds if not 0 < each < 1e6]
    if len(options.speeds) > options.workers:
        faults.append(f"--speeds: there are {options.workers} workers and {len(options.speeds)} speeds")
    for name in ("share_lag", "poll"):
        value = getattr(options, name)
        if not (value == 0 or LEAST_SECONDS <= value < 1e6):
            faults.append(f"--{name.replace('_', '-')}: expected 0, or seconds from {LEAST_SECONDS:g}, found {value:g}")
    if options.leave and options.workers < 2:
        faults.append("--leave: one of at least two workers can leave")
    return faults


def _plan(options: argparse.Namespace, rows: list[Row]) -> Plan:
    from router.replay.arrivals import COPIES, has_sessions
    from router.replay.item import BLOCK
    from router.replay.simulate import Setup
    from router.replay_run import Plan

    setup = Setup(
        workers=options.workers, replicas=options.replicas, room=options.blocks * BLOCK, speeds=options.speeds,
        share=options.share, lag=options.share_lag, poll=options.poll,
        change="leave" if options.leave else "join" if options.join else "",
    )  # fmt: skip
    return Plan(
        trace=Path(options.trace).name, setup=setup, busy=options.busy, scales=options.scale, seed=options.seed,
        seeds=options.seeds, copies=options.copies or (COPIES.get(options.workers, 1) if has_sessions(rows) else 1),
        told=options.told, usage=options.usage, table=options.table_hashes,
    )  # fmt: skip


def _rows(options: argparse.Namespace) -> list[Row]:
    from router.replay.blocks import block_rows
    from router.replay.rows import TraceError
    from router.replay.synthetic import shared_prefixes
    from router.replay.trace import read
    from router.replay_run import dice_of

    if options.trace == SHARED_PREFIX:
        return block_rows(shared_prefixes(dice_of(options.seed)("trace")))[: options.limit]
    try:
        with _opened(options.trace) as lines:
            rows = read(lines, shared_head=options.shared_head, exact=options.exact_tokens, limit=options.limit)
    except OSError as wrong:
        raise SettingsError([f"{options.trace}: {wrong.strerror or wrong}"]) from None
    except (EOFError, zlib.error) as wrong:
        raise SettingsError([f"{options.trace}: damaged gzip ({wrong})"]) from None
    except TraceError as wrong:
        raise SettingsError([f"{options.trace}: {wrong}"]) from None
    if not rows:
        raise SettingsError([f"{options.trace}: no request in it"])
    return rows


@contextmanager
def _opened(trace: str) -> Iterator[BinaryIO]:
    """Lines of the file, unpacked where it is gzip, whatever it is called."""
    if trace == "-":
        yield sys.stdin.buffer
        return
    with Path(trace).open("rb") as file:
        packed = file.peek(2)[:2] == GZIP_MAGIC  # a pipe cannot be read twice
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
