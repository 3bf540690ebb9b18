"""The command line of the worker with a real model."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backends import serving
from backends.extras import complaint
from backends.face import Access
from backends.flags import Flags, number, text, whole
from backends.kv_events import MissingExtraError
from backends.medusa.assembly import MedusaWorker
from backends.medusa.plan import DEVICES, DTYPES, Load, LoadError, Plan

HELP = "a real small model: continuous batching, a prefix KV cache and parallel decoding"
DEFAULT_MODEL = "smollm2-135m"
ABOUT = """
It listens at once and answers 503 until the model is loaded. With --dtype float32 parallel decoding gives the very
tokens that plain decoding gives. A request without a temperature is decoded greedily.
"""
EXAMPLES = """examples:
  prefix-worker medusa --port 9001
  prefix-worker medusa --port 9002 --heads none --no-lookup
  curl http://127.0.0.1:9001/v1/chat/completions \\
    -d '{"messages": [{"role": "user", "content": "What is a tide?"}], "max_tokens": 60, "stream": true}'
"""


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
        return value

    return parse


def describe(parser: argparse.ArgumentParser, flags: Flags) -> None:
    parser.description = f"{HELP[0].upper()}{HELP[1:]}.\n{ABOUT}"
    parser.epilog = EXAMPLES
    add = flags.add
    add("--host", text, "address to listen on", "127.0.0.1")
    add("--port", whole(0, 65535), "port to listen on; 0 picks a free one", 9001)
    add("--model", text, f"name to serve it under (default {DEFAULT_MODEL}); may repeat", action="append")
    add("--model-path", text, "a GGUF file or a safetensors folder of the Llama family (without: the packaged SmolLM2)")
    add("--heads", text, "file of decoding heads, or none (without: those for the packaged model, if they are there)")
    flags.switch("--no-lookup", "do not look guesses up in the request's own text")
    flags.switch("--always-draft", "run the heads even where that does not pay, to measure it")
    flags.switch("--typical", "sampled requests take typical acceptance: quicker, but NOT lossless, the text is not "
                 "distributed as the model's own")  # fmt: skip
    add("--dtype", one_of(DTYPES), "bfloat16 is quicker, but not token-identical: neither to plain "
        "decoding nor with a warm cache to a cold one", "float32")  # fmt: skip
    add("--device", one_of(DEVICES), "where to compute", "cpu")
    add("--threads", whole(1, 1024), "threads to compute with; one is best beside a busy gateway on few cores", 1)
    add("--max-running", whole(1), "sequences that run at a time; the others wait", 16)
    add("--max-model-len", whole(2), "tokens of prompt and answer together", 2048)
    add("--cache-blocks", whole(0), "blocks of the prefix cache (without: what half a GiB holds)")
    add("--block-tokens", whole(1), "tokens a block", 16)
    add("--prefill-tokens", whole(1), "prompt tokens that one step computes beside decoding", 128)
    add("--api-key", text, "key to ask for on the paths under /v1, as vLLM does")
    flags.switch("--api-key-everywhere", "ask for the key on every path, /health and /metrics too")
    add("--drain-seconds", number(), "how long running answers may go on after SIGTERM", 10.0)
    add("--kv-events", text, "ZMQ endpoint for KV-cache events, such as tcp://127.0.0.1:5557", metavar="ENDPOINT")
    add("--kv-events-topic", text, "topic of these events (without: empty)")


def run(found: argparse.Namespace) -> int:
    missing = complaint("prefix-worker medusa")
    if missing is not None:
        serving.complain(missing)
        return 1
    return serving.run(lambda: serve(found))


async def serve(found: argparse.Namespace) -> int:
    try:
        worker = MedusaWorker(plan_of(found))
    except (MissingExtraError, OSError) as error:
        serving.complain(str(error))
        return 1
    try:
        if not await serving.listen([worker.server]):
            return 1
        serving.announce(f"prefix-worker medusa listening on {worker.server.address}")
        await serving.until_told(worker.load(progress))
        await serving.drain([worker.server], worker.face, found.drain_seconds)
    except LoadError as error:
        serving.complain(str(error))
        return 1
    finally:
        worker.close()
    return 0


def progress(line: str) -> None:
    sys.stderr.write(f"prefix-worker medusa: {line}\n")


def plan_of(found: argparse.Namespace) -> Plan:
    load = Load(
        model=Path(found.model_path) if found.model_path else None,
        heads=found.heads,
        dtype=found.dtype,
        device=found.device,
        threads=found.threads,
        max_running=found.max_running,
        max_model_len=found.max_model_len,
        cache_blocks=found.cache_blocks,
        block_tokens=found.block_tokens,
        prefill_tokens=found.prefill_tokens,
        look=not found.no_lookup,
        always_draft=found.always_draft,
        typical=found.typical,
    )
    return Plan(
        load=load,
        models=tuple(dict.fromkeys(found.model or (DEFAULT_MODEL,))),
        host=found.host,
        port=found.port,
        access=Access(key=found.api_key, everywhere=found.api_key_everywhere),
        kv_events=found.kv_events,
        kv_events_topic=found.kv_events_topic or "",
    )
