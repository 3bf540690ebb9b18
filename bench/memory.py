"""Megabytes that the table of holders takes, however many prompts come: it is bounded by `routing.table_hashes`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.decision import mind_of
from router.core.holders import Holders
from router.core.mind import Caller
from router.prompt import Prompt
from router.settings import Settings

PROMPTS, BYTES = 200_000, 8192
KIB_A_MIB = 1 << 10 if sys.platform != "darwin" else 1 << 20  # ru_maxrss is in KiB on Linux, in bytes on macOS


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_A_MIB


def main() -> None:
    mind, caller = mind_of(8), Caller()
    mind.holders = Holders(Settings().routing.table_hashes)
    filler = b"some words of a prompt, " * (BYTES // 24)
    before, seen = megabytes(), []
    for at in range(PROMPTS):
        ask = mind.weigh(Prompt(b"%08d" % at + filler), caller)
        choice = mind.choose(ask, None, (), at * 0.001)
        assert choice is not None
        mind.commit(ask, choice, at * 0.001, streaming=True).release()
        if (at + 1) % (PROMPTS // 4) == 0:
            seen.append((at + 1, len(mind.holders), round(megabytes() - before, 1)))
    if "--json" in sys.argv:
        print(json.dumps([{"prompts": n, "hashes": held, "megabytes": grown} for n, held, grown in seen]))
        return
    for prompts, held, grown in seen:
        print(f"{prompts:9,} prompts of {BYTES // 1024} KB: {held:9,} hashes held, {grown:6.1f} MB more than at first")


if __name__ == "__main__":
    main()
