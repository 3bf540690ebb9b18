"""What engines say of themselves in their metrics: the texts are as these engines write them, cut short."""

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects._engine_metrics import MOST, WAITING, EngineReport, engine_report

VLLM = b"""\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 9862.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 16.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.0
# HELP vllm:num_requests_waiting_by_reason Number of waiting requests, by reason.
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.8712
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",calculate_kv_scales="False",cpu_offload_gb="0",\
enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.9",num_cpu_blocks="None",num_gpu_blocks="27841",\
num_gpu_blocks_override="None",prefix_caching_hash_algo="sha256",sliding_window="None",swap_space="4"} 1.0
"""
SGLANG = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 12.0
# HELP sglang:max_total_num_tokens Maximum total number of tokens in the KV cache pool.
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 455088.0
# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.28
"""
LLAMA_CPP = b"""\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1472
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""
TGI = b"""\
# TYPE tgi_request_count counter
tgi_request_count 84

# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 6

# TYPE tgi_queue_size gauge
tgi_queue_size 3

# TYPE tgi_request_duration histogram
tgi_request_duration_bucket{le="0.0001"} 0
"""


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (VLLM, EngineReport(7, 27841 * 16)),
        (SGLANG, EngineReport(12, 455_088)),
        (LLAMA_CPP, EngineReport(2, None)),
        (TGI, EngineReport(3, None)),
        (b"", EngineReport(None, None)),
        (b"<html><body>It works!</body></html>", EngineReport(None, None)),
    ],
    ids=["vllm", "sglang", "llama.cpp", "tgi", "nothing", "a page"],
)
def test_each_engine_says_how_many_wait_and_what_its_cache_holds(text: bytes, report: EngineReport) -> None:
    assert engine_report(text) == report
    assert engine_report(text.replace(b"\n", b"\r\n")) == report


def test_an_idle_engine_says_none_waits_which_is_not_silence() -> None:
    assert engine_report(b"vllm:num_requests_waiting 0.0\n").waiting == 0
    assert engine_report(b"vllm:num_requests_running 3.0\n").waiting is None


def test_series_of_several_models_and_ranks_are_added_up() -> None:
    text = b"".join(
        b'vllm:num_requests_waiting{engine="%d"} %d.0\n'
        b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="100"} 1.0\n' % (rank, rank + 1, rank)
        for rank in range(4)
    )
    assert engine_report(text) == EngineReport(10, 6400)


def test_the_labels_of_the_cache_may_come_in_any_order_and_are_told_from_those_like_them() -> None:
    text = b'vllm:cache_config_info{num_gpu_blocks_override="9",num_gpu_blocks="5", my_block_size="7",block_size="8"} 1'
    assert engine_report(text).room == 40


@pytest.mark.parametrize(
    "line",
    [
        b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0',
        b'vllm:cache_config_info{block_size="16"} 1.0',
        b'vllm:cache_config_info{block_size="0",num_gpu_blocks="100"} 1.0',
        b"vllm:cache_config_info 1.0",
        b"sglang:max_total_num_tokens 0.0",
        b"sglang:max_total_num_tokens NaN",
        b"sglang:max_total_num_tokens +Inf",
    ],
)
def test_a_cache_without_a_size_is_one_of_which_nothing_is_known(line: bytes) -> None:
    assert engine_report(line + b"\n") == EngineReport(None, None)


@pytest.mark.parametrize("digits", [b"NaN", b"+Inf", b"-1", b"1e400", b"1e13", b"1.2.3", b"1e", b"", b"x", b"1 2 3"])
@pytest.mark.parametrize("name", WAITING)
def test_a_number_that_is_none_to_believe_is_passed_over(name: bytes, digits: bytes) -> None:
    assert engine_report(b"%s %s\n" % (name, digits)).waiting is None


@pytest.mark.parametrize("digits", [b"9" * 400, b"9" * 20, b"1" + b"0" * 30])
@pytest.mark.parametrize("size", [b"0", b"16", b"9" * 400])
def test_a_cache_of_absurd_size_is_no_number_that_spoils_a_sum(digits: bytes, size: bytes) -> None:
    line = b'vllm:cache_config_info{block_size="%s",num_gpu_blocks="%s"} 1.0\n' % (size, digits)
    room = engine_report(line).room
    assert room is None or 0 < room <= MOST


def test_comments_and_names_within_other_names_count_for_nothing() -> None:
    text = b"# vllm:num_requests_waiting 5\nmy_vllm:num_requests_waiting 5\ntgi_queue_size_total 5\n tgi_queue_size 5\n"
    assert engine_report(text) == EngineReport(None, None)


PIECES = st.sampled_from(
    [*WAITING, b"vllm:cache_config_info", b"sglang:max_total_num_tokens", b"{", b"}", b'"', b",", b"=", b" ", b"\n",
     b'num_gpu_blocks="', b'block_size="', b"9", b"1e5", b"e", b".", b"+", b"-", b"NaN", b"\r", b"\x00", b"\xff"]
)  # fmt: skip


@given(
    st.one_of(st.binary(max_size=300), st.lists(st.one_of(PIECES, st.binary(max_size=3)), max_size=60).map(b"".join))
)
def test_any_bytes_are_taken_and_no_number_comes_of_them_that_cannot_be(text: bytes) -> None:
    report = engine_report(text)
    assert report.waiting is None or report.waiting >= 0
    assert report.room is None or (isfinite(report.room) and report.room > 0)


def test_a_long_text_of_nearly_right_lines_is_read_in_no_time() -> None:
    for piece in (b"vllm:num_requests_waiting{", b"9", b'num_gpu_blocks="', b"vllm:cache_config_info{a", b"\t"):
        engine_report(piece * (1_000_000 // len(piece)))
        engine_report(b"vllm:num_requests_waiting " + piece * (1_000_000 // len(piece)))
        engine_report(b"vllm:cache_config_info{" + piece * (1_000_000 // len(piece)) + b"} 1")
