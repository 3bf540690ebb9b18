"""The whole worker around a tiny network, asked over real sockets."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.face import Access
from backends.medusa import loading
from backends.medusa.plan import LoadError, Plan
from tests.support.tiny_worker import plan_of, saved, served

CHAT = {"messages": [{"role": "user", "content": "Hello 🌊"}], "max_tokens": 30}
Eventually = Callable[[Callable[[], Any]], Awaitable[None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "tiny")


async def test_while_it_loads_it_says_503_and_then_it_answers(folder: Path) -> None:
    async with served(plan_of(folder), loaded=False) as one:
        for path in ("/health", "/v1/models"):
            assert (await one.http.get(path)).status_code == 503
        assert (await one.http.post("/v1/chat/completions", json=CHAT)).headers["retry-after"] == "1"
        assert "vllm:num_requests_running" in (await one.http.get("/metrics")).text
        await one.worker.load(lambda _: None)
        assert (await one.http.get("/health")).status_code == 200
        assert (await one.http.get("/v1/models")).json()["data"][0] | {"id": "tiny", "max_model_len": 160} == (
            await one.http.get("/v1/models")
        ).json()["data"][0]


async def test_a_chat_says_the_same_whole_and_streamed(folder: Path, events_of: Any) -> None:
    async with served(plan_of(folder)) as one:
        whole = (await one.http.post("/v1/chat/completions", json=CHAT)).json()
        streamed = await one.http.post(
            "/v1/chat/completions", json={**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        )
    events = events_of(streamed.text)
    text = "".join(each["choices"][0]["delta"].get("content", "") for each in events[:-1] if each["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert events[-1] == "[DONE]"
    assert events[-2]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 30


async def test_what_was_computed_before_is_in_the_usage(folder: Path) -> None:
    async with served(plan_of(folder)) as one:
        first, second = [await one.complete(list(range(41)), max_tokens=2) for _ in range(2)]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 40


async def test_streams_side_by_side_say_what_each_says_alone(folder: Path) -> None:
    async with served(plan_of(folder)) as one:
        prompts = [[place, *range(30)] for place in range(10)]
        together = await asyncio.gather(*(one.complete(prompt, max_tokens=20) for prompt in prompts))
        alone = [await one.complete(prompt, max_tokens=20) for prompt in prompts]
    assert [each["choices"][0]["text"] for each in together] == [each["choices"][0]["text"] for each in alone]


async def test_a_client_that_goes_frees_its_seat(folder: Path, eventually: Eventually, post: Any) -> None:
    async with served(plan_of(folder, max_running=1)) as one:
        _, writer = await asyncio.open_connection("127.0.0.1", one.worker.server.port)
        writer.write(post("/v1/completions", {"prompt": "a", "max_tokens": 150, "ignore_eos": True, "stream": True}))
        await eventually(lambda: one.worker.face.engine.stats().running == 1)
        writer.close()
        await eventually(lambda: one.worker.face.engine.stats().running == 0)
        assert one.worker.face.engine.stats().kv_usage == 0
        assert (await one.complete("b", max_tokens=1))["usage"]["completion_tokens"] == 1


async def test_a_stop_string_ends_an_answer_and_frees_its_seat(folder: Path, eventually: Eventually) -> None:
    async with served(plan_of(folder)) as one:
        said = (await one.complete(list(range(30)), max_tokens=60, ignore_eos=True))["choices"][0]["text"]
        stop = said[5:8]
        cut = (await one.complete(list(range(30)), max_tokens=60, ignore_eos=True, stop=stop))["choices"][0]
        assert cut["text"] == said[: said.index(stop)]
        assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
        await eventually(lambda: one.worker.face.engine.stats().running == 0)


async def test_several_answers_to_one_prompt_compute_it_once(folder: Path) -> None:
    async with served(plan_of(folder)) as one:
        answer = await one.complete(list(range(41)), max_tokens=10, n=3, temperature=1.5, seed=1)
        assert len({choice["text"] for choice in answer["choices"]}) > 1
        assert one.worker.face.engine.stats().hit_tokens == 80


async def test_a_step_that_fails_is_an_error_and_the_next_request_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(plan_of(folder)) as one:
        batch = one.worker._engine._running.batch
        with monkeypatch.context() as broken:
            broken.setattr(batch, "step", lambda: 1 / 0)
            answer = await one.http.post("/v1/chat/completions", json=CHAT)
            assert answer.status_code == 500
        assert (await one.http.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_a_stream_whose_step_fails_is_cut_and_not_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(plan_of(folder)) as one:
        batch = one.worker._engine._running.batch
        step, left = batch.step, [1, 1]
        monkeypatch.setattr(batch, "step", lambda: step() if left and left.pop() else 1 / 0)
        with pytest.raises(httpx.RemoteProtocolError):
            await one.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 99, "stream": True})
        assert (await one.stats())["aborted"] == 1


async def test_what_it_cannot_do_is_a_400(folder: Path) -> None:
    async with served(plan_of(folder)) as one:
        assert (await one.http.post("/v1/embeddings", json={"input": "a"})).status_code == 400
        assert (await one.complete([1, 5000]))["error"]["code"] == 400


async def test_tokens_and_metrics_are_there(folder: Path) -> None:
    async with served(plan_of(folder)) as one:
        await one.complete([1, 2, 3] * 8, max_tokens=30)
        lonely = json.dumps({"prompt": "\ud800é"}).encode()
        counted = (await one.http.post("/tokenize", content=lonely)).json()
        assert counted["tokens"] == [*"\ufffdé".encode()]
        back = (await one.http.post("/detokenize", json={"tokens": [*"é".encode(), 2**60]})).json()
        assert back == {"prompt": "é"}
        page = (await one.http.get("/metrics")).text
        assert 'prefix_worker_steps_total{model_name="tiny",rows="1"}' in page
        assert "vllm:generation_tokens_total" in page


async def test_a_key_guards_it(folder: Path) -> None:
    plan = Plan(load=plan_of(folder).load, models=("tiny",), access=Access(key="k"))
    async with served(plan) as one:
        assert (await one.http.post("/v1/chat/completions", json=CHAT)).status_code == 401
        ok = await one.http.post("/v1/chat/completions", json=CHAT, headers={"authorization": "Bearer k"})
        assert ok.status_code == 200


async def test_kv_events_tell_a_router_what_it_holds(folder: Path) -> None:
    zmq = pytest.importorskip("zmq")
    zmq_asyncio = pytest.importorskip("zmq.asyncio")
    context = zmq_asyncio.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.subscribe("")
    port = subscriber.bind_to_random_port("tcp://127.0.0.1")
    try:
        plan = Plan(load=plan_of(folder).load, models=("tiny",), kv_events=f"tcp://127.0.0.1:{port}")
        async with served(plan) as one:
            payload = b""
            while not payload:  # a publisher that has just connected may lose its first messages
                await one.complete([*json.dumps(one.worker.face.ledger.started).encode(), *range(40)], max_tokens=1)
                if await subscriber.poll(100):
                    _, _, payload = await subscriber.recv_multipart()
        assert b"BlockStored" in payload
    finally:
        subscriber.close(0)
        context.term()


async def test_closing_while_it_loads_stops_it_at_its_next_stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the process would stay until a large model is loaded for nobody."""
    stages: list[str] = []
    closed = threading.Event()

    def slow(_: Any, said: Callable[[str], None]) -> Any:
        said("one")
        closed.wait(60)
        said("two")

    monkeypatch.setattr(loading, "load", slow)
    async with served(plan_of(folder), loaded=False) as one:
        task = asyncio.ensure_future(one.worker.load(stages.append))
        while not stages:
            await asyncio.sleep(0)
        one.worker.close()
        closed.set()
        with pytest.raises(LoadError):
            await task
    assert stages == ["one"]


@pytest.mark.parametrize(
    "error", [RuntimeError("no memory\nand a long story"), MemoryError("no memory"), OSError("no memory")]
)
async def test_what_goes_wrong_while_loading_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(loading, "load", broken)
    async with served(plan_of(folder), loaded=False) as one:
        with pytest.raises(LoadError, match="no memory") as caught:
            await one.worker.load(lambda _: None)
        assert "\n" not in str(caught.value)
        assert (await one.http.get("/health")).status_code == 503
