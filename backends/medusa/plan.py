"""Everything that can be chosen about a worker with a real model. Nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backends.face import Access

DTYPES = ("float32", "bfloat16")
DEVICES = ("cpu", "cuda")
NO_HEADS = "none"


class LoadError(Exception):
    """The model cannot be loaded; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to load and how to run it. `model` None: the packaged one; `heads` None: those that come with this package
    if the model is theirs, `NO_HEADS`: none; `cache_blocks` None: as many as half a GiB holds."""

    model: Path | None = None
    heads: str | None = None
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    max_running: int = 16
    max_model_len: int = 2048
    cache_blocks: int | None = None
    block_tokens: int = 16
    prefill_tokens: int = 128
    look: bool = True
    always_draft: bool = False
    typical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    load: Load = field(default_factory=Load)
    models: Sequence[str] = ("smollm2-135m",)
    host: str = "127.0.0.1"
    port: int = 0
    access: Access = field(default_factory=Access)
    kv_events: str | None = None
    kv_events_topic: str = ""
