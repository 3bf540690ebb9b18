"""The metrics text."""

from backends.contract import Stats
from backends.metrics import metrics_text


def test_every_family_is_declared_once_before_its_samples() -> None:
    text = metrics_text("m", Stats(finished={"stop": 1, "length": 2}))
    assert text.count("# TYPE vllm:request_success_total counter") == 1
    assert 'vllm:request_success_total{model_name="m",finished_reason="length"} 2' in text
    assert text.endswith("\n")


def test_the_cache_is_described() -> None:
    text = metrics_text("m", Stats(blocks=7, block_tokens=16, kv_usage=0.5))
    assert 'vllm:cache_config_info{model_name="m",block_size="16",num_gpu_blocks="7"' in text
    assert 'vllm:kv_cache_usage_perc{model_name="m"} 0.5' in text


def test_a_models_name_cannot_break_a_line() -> None:
    assert 'model_name="a\\"b\\\\c\\nd"' in metrics_text('a"b\\c\nd', Stats())
