"""The metrics of a vLLM server that routers and dashboards read, in Prometheus' text form, written by hand."""

from backends.contract import Stats
from backends.http import Headers

METRICS_TYPE: Headers = [("content-type", "text/plain; version=0.0.4; charset=utf-8")]


def metrics_text(model: str, stats: Stats) -> str:
    """All samples carry `model_name`, the first served name, as vLLM's do."""
    label = f'model_name="{escape(model)}"'
    lines: list[str] = []

    def sample(kind: str, name: str, help_text: str, value: float, more: str = "") -> None:
        family = [f"# HELP vllm:{name} {help_text}", f"# TYPE vllm:{name} {kind}"]
        if family[1] not in lines:
            lines.extend(family)
        lines.append(f"vllm:{name}{{{label}{more}}} {value}")

    sample("gauge", "num_requests_running", "Number of requests in model execution batches.", stats.running)
    sample("gauge", "num_requests_waiting", "Number of requests waiting to be processed.", stats.waiting)
    sample("gauge", "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", stats.kv_usage)
    sample("counter", "prefix_cache_queries_total", "Prefix cache queries, in tokens.", stats.queried_tokens)
    sample("counter", "prefix_cache_hits_total", "Prefix cache hits, in cached tokens.", stats.hit_tokens)
    sample("counter", "prompt_tokens_total", "Number of prefill tokens processed.", stats.prompt_tokens)
    sample("counter", "generation_tokens_total", "Number of generation tokens processed.", stats.generated_tokens)
    for reason, count in stats.finished.items():
        more = f',finished_reason="{escape(reason)}"'
        sample("counter", "request_success_total", "Count of processed requests.", count, more)
    config = f',block_size="{stats.block_tokens}",num_gpu_blocks="{stats.blocks}",enable_prefix_caching="True"'
    sample("gauge", "cache_config_info", "Information of the LLMEngine CacheConfig.", 1, config)
    return "\n".join(lines) + "\n"


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
