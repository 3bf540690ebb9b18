"""The command line of the mock worker."""

import argparse

from backends import serving
from backends.face import Access
from backends.flags import Flags, number, text, whole
from backends.kv_events import MissingExtraError
from backends.mock import faults as rules
from backends.mock import timing
from backends.mock.assembly import MockWorker, Plan
from backends.mock.engine import Shape

HELP = "a mock: real cache and scheduling, invented words, faults on demand"
EXAMPLES = """examples:
  prefix-worker mock --port 9001
  prefix-worker mock --port 9002 --fault status=503,retry_after=1,share=0.2
  prefix-worker mock --port 9003 --fault cut=2.5,times=3 --fault delay=0.5,path=/health
  curl -X POST http://127.0.0.1:9001/faults -d '{"reset": 3, "times": 1}'
"""


def describe(parser: argparse.ArgumentParser, flags: Flags) -> None:
    parser.description = f"{HELP.capitalize()}.\n\nCosts:\n{timing.__doc__}"
    parser.epilog = f"Faults:\n{rules.__doc__}\n{EXAMPLES}"
    add = flags.add
    add("--host", text, "address to listen on", "127.0.0.1")
    add("--port", whole(0, 65535), "port to listen on; 0 picks a free one", 9001)
    add("--model", text, "model to serve (default mock-model); may repeat, caches are apart", action="append")
    add("--prefill-tokens-per-second", number(above=0), "speed of computing uncached prompt tokens", 8000.0)
    add("--decode-tokens-per-second", number(above=0), "speed of one sequence that runs alone", 60.0)
    add("--cache-blocks", whole(0), "blocks of the prefix cache", 4096)
    add("--block-tokens", whole(1), "tokens a block", 16)
    add("--max-running", whole(1), "sequences that run at a time; the others wait", 64)
    add("--time-scale", number(), "factor on all engine times; 0 makes them nothing", 1.0)
    add("--max-model-len", whole(1), "tokens of prompt and answer together", 131_072)
    add("--seed", whole(0), "seed of the answers' words and of the faults' dice", 0)
    add("--api-key", text, "key to ask for on the paths under /v1, as vLLM does")
    flags.switch("--api-key-everywhere", "ask for the key on every path, /health and /metrics too")
    add("--ready-after", number(), "seconds until /health and /ping are 200 and work is taken", 0.0)
    add("--drain-seconds", number(), "how long running answers may go on after SIGTERM", 0.0)
    add("--fault", rules.rule_from_text, "a fault, see below; may repeat", action="append", metavar="RULE")
    add("--control-port", whole(1, 65535), "a second port for /faults and /stats, which no fault touches")
    add("--kv-events", text, "ZMQ endpoint for KV-cache events, such as tcp://127.0.0.1:5557", metavar="ENDPOINT")
    add("--kv-events-topic", text, "topic of these events (without: empty)")


def run(found: argparse.Namespace) -> int:
    return serving.run(lambda: serve(found))


async def serve(found: argparse.Namespace) -> int:
    try:
        worker = MockWorker(plan_of(found))
    except (MissingExtraError, OSError) as error:
        serving.complain(str(error))
        return 1
    try:
        if not await serving.listen(worker.servers):
            return 1
        worker.control.apply()
        serving.announce(f"prefix-worker mock listening on {worker.server.address}")
        await serving.until_told()
        await serving.drain(worker.servers, worker.face, found.drain_seconds)
    finally:
        worker.close()
    return 0


def plan_of(found: argparse.Namespace) -> Plan:
    cost = timing.CostModel(
        prefill_tokens_per_second=found.prefill_tokens_per_second,
        decode_tokens_per_second=found.decode_tokens_per_second,
        time_scale=found.time_scale,
    )
    shape = Shape(
        models=tuple(dict.fromkeys(found.model or ("mock-model",))),
        cost=cost,
        max_running=found.max_running,
        seed=found.seed,
        max_model_len=found.max_model_len,
    )
    return Plan(
        shape=shape,
        host=found.host,
        port=found.port,
        control_port=found.control_port,
        cache_blocks=found.cache_blocks,
        block_tokens=found.block_tokens,
        access=Access(key=found.api_key, everywhere=found.api_key_everywhere),
        ready_after=found.ready_after,
        faults=found.fault or (),
        kv_events=found.kv_events,
        kv_events_topic=found.kv_events_topic or "",
    )
