"""Many streams at once from the worker with a real model, each compared with what plain greedy decoding says.

First a worker that guesses nothing answers every prompt once; then the worker that is tried (or a gateway, with
`--url`) answers them over and over, as many at a time as are asked for. No heads were trained on these prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import openai

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.bench_decoding.sets import sets
from backends.contract import Chat
from tests.support.processes import Program, running

MODEL = "smollm2-135m"
PLAIN = ("--heads", "none", "--no-lookup")
PATIENCE = 300.0
FAMILIES = ("vllm:spec_decode_num", "prefix_worker_", "vllm:prefix_cache")


@dataclass(kw_only=True)
class Asked:
    """What is asked of both workers."""

    prompts: list[list[dict[str, str]]]
    tokens: int
    streams: int


@dataclass
class Seen:
    """`wrong`: answers that differ from plain greedy decoding's, by the prompt's place."""

    requests: int = 0
    tokens: int = 0
    wrong: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


def turns(chat: Chat) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.text} for turn in chat.turns]


@contextmanager
def worker(*flags: str) -> Iterator[Program]:
    """One that is loaded."""
    with running("backends", "medusa", "--port", "0", *flags) as program:
        while httpx.get(f"{program.url}/health", timeout=PATIENCE).status_code != 200:
            time.sleep(0.2)
        yield program


def resident_mib(program: Program | None) -> float | None:
    """Where there is /proc, of a worker that was started here."""
    status = Path(f"/proc/{program.process.pid}/status") if program else None
    if status is None or not status.is_file():
        return None
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status.read_text())[0]) / 1024


def metrics(url: str) -> dict[str, float]:
    """The worker's counts of its drafting and its cache; a gateway has none."""
    lines = httpx.get(f"{url}/metrics", timeout=PATIENCE).text.splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(FAMILIES))
    return {
        name.replace(f'model_name="{MODEL}"', "").replace("{,", "{").removesuffix("{}"): float(value)
        for name, _, value in found
    }


async def answer(client: openai.AsyncOpenAI, asked: Asked, place: int) -> tuple[str, int]:
    """A streamed chat: its text, and the tokens it took."""
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=asked.prompts[place],  # type: ignore[arg-type]
        max_tokens=asked.tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, tokens = "", 0
    async for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        tokens = chunk.usage.completion_tokens if chunk.usage else tokens
    return text, tokens


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=PATIENCE, max_retries=0)


async def references(url: str, asked: Asked) -> list[str]:
    """Plain greedy decoding's answers."""
    free = asyncio.Semaphore(asked.streams)

    async def one(place: int) -> str:
        async with free:
            return (await answer(client, asked, place))[0]

    async with client_of(url) as client:
        return await asyncio.gather(*(one(place) for place in range(len(asked.prompts))))


async def load(url: str, asked: Asked, right: Sequence[str], seconds: float) -> Seen:
    """As many users as streams take prompt after prompt; what runs at the end is heard out."""
    seen, places, end = Seen(), cycle(range(len(asked.prompts))), time.monotonic() + seconds

    async def user() -> None:
        while time.monotonic() < end:
            place = next(places)
            seen.requests += 1
            try:
                text, tokens = await answer(client, asked, place)
            except openai.OpenAIError as error:
                seen.errors[type(error).__name__] += 1
                continue
            seen.tokens += tokens
            if text != right[place]:
                seen.wrong[place] += 1

    async with client_of(url) as client:
        await asyncio.gather(*(user() for _ in range(asked.streams)))
    return seen


def measured(found: argparse.Namespace) -> dict[str, Any]:
    by_set = sets(("chat", "plan"), found.prompts // 2, None)
    asked = Asked(
        prompts=[turns(chat) for chats in zip(*by_set.values(), strict=True) for chat in chats],
        tokens=found.tokens,
        streams=found.streams,
    )
    with worker(*found.flags, *PLAIN, "--cache-blocks", "0") as plain:
        right = asyncio.run(references(plain.url, asked))
    with ExitStack() as stack:
        tried = None if found.url else stack.enter_context(worker(*found.flags))
        url = found.url or tried.url  # type: ignore[union-attr]
        memory = {"start": resident_mib(tried)}
        warmed = asyncio.run(load(url, asked, right, found.warm_up))
        memory["warmed_up"] = resident_mib(tried)
        before, began = metrics(url), time.monotonic()
        seen = asyncio.run(load(url, asked, right, found.seconds))
        took = time.monotonic() - began
        memory["end"] = resident_mib(tried)
        after = metrics(url)
    seen.wrong += warmed.wrong
    seen.errors += warmed.errors
    return {
        **asdict(seen),
        "wrong": sum(seen.wrong.values()),
        "wrong_prompts": sorted(seen.wrong),
        "errors": dict(seen.errors),
        "seconds": took,
        "tokens_per_second": seen.tokens / took,
        "resident_mib": memory,
        "metrics_before": before,
        "metrics_after": after,
    }


def shown(figures: dict[str, Any]) -> str:
    memory = ", ".join(f"{when} {mib:.0f}" for when, mib in figures["resident_mib"].items() if mib is not None)
    lines = [
        f"{figures['requests']} requests in {figures['seconds']:.0f} s, {figures['tokens_per_second']:.1f} tokens/s",
        f"wrong {figures['wrong']} {figures['wrong_prompts'] or ''}, errors {figures['errors'] or 0}",
        f"resident MiB: {memory or 'not known'}",
    ]
    before, after = figures["metrics_before"], figures["metrics_after"]
    lines += [f"{name:72} {before.get(name, 0):12.4g} -> {value:12.4g}" for name, value in after.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the streams go on")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds of the same before that")
    parser.add_argument("--streams", type=int, default=8, help="so many at a time")
    parser.add_argument("--prompts", type=int, default=24, help="different ones, half of them chats and half plans")
    parser.add_argument("--tokens", type=int, default=96, help="of an answer, at most")
    parser.add_argument("--url", help="a worker or a gateway that runs, instead of a worker of its own")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("flags", nargs="*", help="after --: the workers' own flags")
    found = parser.parse_args()
    figures = measured(found)
    sys.stdout.write((json.dumps(figures) if found.json else shown(figures)) + "\n")
    return 1 if figures["wrong"] or figures["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
