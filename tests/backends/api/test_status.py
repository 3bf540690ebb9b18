"""Health, metrics and counts."""

from typing import Any


async def test_health_is_an_empty_200_once_ready(mock: Any) -> None:
    worker = await mock()
    for path in ("/health", "/ping"):
        answer = await worker.http.get(path)
        assert answer.status_code == 200
        assert answer.content == b""
        assert (await worker.http.head(path)).status_code == 200


async def test_until_ready_health_and_work_are_503_and_the_rest_answers(mock: Any) -> None:
    worker = await mock("--ready-after", "1000")
    for answer in (await worker.http.get("/health"), await worker.http.get("/ping"), await worker.chat()):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
    assert (await worker.http.get("/v1/models")).status_code == 200
    assert (await worker.http.get("/metrics")).status_code == 200


async def test_metrics_have_vllms_names_and_count_what_ran(mock: Any) -> None:
    worker = await mock("--model", 'odd"name')
    for _ in range(2):
        await worker.ask("/v1/completions", {"prompt": "abcd" * 20, "max_tokens": 3})
    lines = (await worker.http.get("/metrics")).text.splitlines()
    label = 'model_name="odd\\"name"'
    assert f"vllm:num_requests_running{{{label}}} 0" in lines
    assert f"vllm:num_requests_waiting{{{label}}} 0" in lines
    assert f"vllm:kv_cache_usage_perc{{{label}}} 0.0" in lines
    assert f"vllm:prefix_cache_queries_total{{{label}}} 40" in lines
    assert f"vllm:prefix_cache_hits_total{{{label}}} 16" in lines
    assert f"vllm:generation_tokens_total{{{label}}} 6" in lines


async def test_running_and_waiting_are_told_apart(mock: Any, post: Any, eventually: Any) -> None:
    worker = await mock("--max-running", "2", "--decode-tokens-per-second", "0.01")
    clients = [await worker.connect() for _ in range(5)]
    for _, writer in clients:
        writer.write(post("/v1/completions", {"prompt": "a"}))
    await eventually(lambda: worker.engine.stats().waiting == 3)
    stats = await worker.stats()
    assert (stats["running"], stats["max_running"], stats["in_progress"]) == (2, 2, 5)
    text = (await worker.http.get("/metrics")).text
    assert 'vllm:num_requests_running{model_name="mock-model"} 2' in text
    assert 'vllm:num_requests_waiting{model_name="mock-model"} 3' in text
    for _, writer in clients:
        writer.close()
    await eventually(lambda: worker.ledger.aborted == 5)
    stats = await worker.stats()
    assert (stats["started"], stats["finished"], stats["aborted"], stats["running"]) == (5, 0, 5, 0)
