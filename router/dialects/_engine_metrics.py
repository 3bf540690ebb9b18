"""What engines say of themselves in their Prometheus text: how many requests wait, and how much their cache holds.

The names are those of vLLM, SGLang, llama.cpp's server and TGI. The text of an engine not known here says nothing.
"""

from __future__ import annotations

import re

import msgspec

# Requests that have not been scheduled yet.
WAITING = (
    b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"llamacpp:requests_deferred", b"tgi_queue_size",
)  # fmt: skip
CACHE_TOKENS = b"sglang:max_total_num_tokens"
CACHE_CONFIG = b"vllm:cache_config_info"
_SAMPLE = re.compile(
    rb"^(" + b"|".join((*WAITING, CACHE_TOKENS)) + rb")(?:\{[^}\n]*\})?[ \t]+([0-9][0-9.eE+]*)[ \t]*\r?$", re.MULTILINE
)
_CONFIG = re.compile(rb"^" + CACHE_CONFIG + rb"\{([^}\n]*)\}", re.MULTILINE)
_BLOCKS, _SIZE = (re.compile(rb'(?:^|,)\s*%s="(\d+)"' % name) for name in (b"num_gpu_blocks", b"block_size"))
MOST = 1e12  # a larger number is none to believe


class EngineReport(msgspec.Struct, frozen=True):
    """waiting: requests not scheduled yet; room: tokens that the prefix cache holds. None: it does not say."""

    waiting: int | None
    room: float | None


def engine_report(text: bytes) -> EngineReport:
    """Read a scrape. Series of one name, such as those of several models, are added up. Takes any bytes."""
    waiting: float | None = None
    room: float | None = None
    for name, digits in _SAMPLE.findall(text):
        value = _number(digits)
        if value is None:
            continue
        if name == CACHE_TOKENS:
            room = (room or 0.0) + value
        else:
            waiting = (waiting or 0.0) + value
    for labels in _CONFIG.findall(text):
        blocks, size = _BLOCKS.search(labels), _SIZE.search(labels)
        tokens = float(blocks[1]) * float(size[1]) if blocks and size else 0.0
        if 0.0 < tokens <= MOST:  # not a NaN, as of infinitely many blocks of no size
            room = (room or 0.0) + tokens
    return EngineReport(None if waiting is None else int(waiting), room or None)


def _number(digits: bytes) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if value <= MOST else None
