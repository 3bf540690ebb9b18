"""The worker with a real model behind the gateway: real processes, a real model, two real caches.

With the package's own decoding heads where they are there, and with none where they are not: the texts are the same.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from backends.medusa import heads_file
from backends.medusa.heads import KINDS
from tests.support.engines import MEASURED
from tests.support.medusa_fleet import PATHS, Fleet, Front, Heard, behind_a_gateway, chat, loaded, messages
from tests.support.processes import until

SYSTEMS = {
    "ships": "Museum of ships, where you are the guide. Answer visitors in one sentence and say which hall to go to. ",
    "tools": "Garden tools are what you sell. Answer customers in one sentence, be exact, and name a price. ",
    "tides": "Tides, currents and waves are your field. Answer pupils in one sentence with one number in it. ",
}
QUESTIONS = ("What is a tide?", "Name two animals.", "What costs a spade?")
SIZE = {"layers": 30, "width": 576, "vocabulary": 49152}  # SmolLM2-135M
TREE = [(0,), (1,), (0, 0), (2,), (0, 1), (1, 0), (0, 0, 0)]

pytestmark = [pytest.mark.xdist_group("medusa-fleet"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with loaded((), ()) as workers, behind_a_gateway(*workers) as fleet:
        yield fleet


@pytest.fixture
def front(fleet: Fleet) -> Iterator[Front]:
    """The gateway; afterwards nothing may be left of what was asked."""
    yield fleet.front
    until(fleet.is_at_rest)


def system(topic: str) -> str:
    """300 to 400 tokens."""
    return SYSTEMS[topic] * 15


def said(answer: Any) -> Any:
    """All of an answer that must be the same each time: how much of the prompt came from a cache is not."""
    usage = {name: value for name, value in answer["usage"].items() if "cache" not in name and "details" not in name}
    if "input_tokens" in usage:  # a message's are those that came from no cache
        usage["input_tokens"] += answer["usage"].get("cache_read_input_tokens") or 0
    return {name: value for name, value in answer.items() if name not in ("id", "created")} | {"usage": usage}


def test_questions_behind_one_system_text_meet_the_worker_that_is_warm_for_them(fleet: Fleet, front: Front) -> None:
    counted = "prefix_router_cached_tokens_total"
    before, hits = front.metric(counted), fleet.of_workers("vllm:prefix_cache_hits_total")
    talks = {topic: [front.heard(chat(question, system(topic))) for question in QUESTIONS] for topic in SYSTEMS}
    for cold, *warm in talks.values():
        assert {heard.worker for heard in warm} == {cold.worker}
        assert cold.cached_tokens == 0
        assert cold.usage["prompt_tokens"] > 300
        assert all(heard.cached_tokens > heard.usage["prompt_tokens"] - 48 for heard in warm)
    reported = sum(heard.cached_tokens for talk in talks.values() for heard in talk)
    until(lambda: front.metric(counted) - before == reported)
    assert fleet.of_workers("vllm:prefix_cache_hits_total") - hits == reported
    record(list(talks.values()))


def record(talks: list[list[Heard]]) -> None:
    """Seconds to the first token, cold and warm, to .cache/measured. A timing on a shared machine is no assertion."""
    cold, warm = ([heard.first for talk in talks for heard in talk[part]] for part in (slice(1), slice(1, None)))
    MEASURED.mkdir(parents=True, exist_ok=True)
    figures = {"first_token_seconds": {"cold": fmean(cold), "warm": fmean(warm)}}
    (MEASURED / "medusa.json").write_text(json.dumps(figures, indent=2))


ALIKE = {
    "chat": ("chat", chat("What is a tide?", most=32)),
    "ends by itself": ("chat", chat("Say only the word yes.", most=60)),
    "stop string": ("chat", chat("Count from one to twenty in figures.", most=60, stop=["7", "seven"])),
    "two answers": ("chat", chat("Tell me a story.", most=24, n=2, temperature=0.9, seed=5)),
    "completions": ("completions", {"prompt": "The tide is", "max_tokens": 24}),
    "messages": ("messages", messages("What is a tide?", most=32)),
    "messages with a stop": ("messages", messages("Count from one to twenty.", most=60, stop_sequences=["7", "seven"])),
}


@pytest.mark.parametrize(("path", "body"), ALIKE.values(), ids=ALIKE)
def test_an_answer_through_the_gateway_is_the_workers_own_and_a_stream_says_the_same(
    fleet: Fleet, front: Front, path: str, body: dict[str, Any]
) -> None:
    answer = front.whole(body, PATHS[path])
    direct = fleet.workers[answer.headers["x-router-worker"]]
    assert said(answer.json()) == said(direct.whole(body, PATHS[path]).json())
    if body.get("n", 1) == 1:
        heard = front.heard(body, PATHS[path])
        assert (heard.text, heard.finish) == text_of(answer.json())


def text_of(answer: Any) -> tuple[str, str]:
    """The text and why it ended, of any of the three forms."""
    if "content" in answer:
        return answer["content"][0]["text"], answer["stop_reason"]
    (choice,) = answer["choices"]
    return choice["text"] if "text" in choice else choice["message"]["content"], choice["finish_reason"]


def test_a_stop_string_is_not_in_the_text_and_two_sampled_answers_differ(front: Front) -> None:
    stopped = front.whole(ALIKE["stop string"][1]).json()["choices"][0]
    assert stopped["finish_reason"] == "stop"
    assert "7" not in stopped["message"]["content"]
    first, second = front.whole(ALIKE["two answers"][1]).json()["choices"]
    assert first["message"]["content"] != second["message"]["content"]


def test_many_streams_at_once_say_what_each_says_alone(front: Front) -> None:
    bodies = [chat(question, system(topic), 20) for question in QUESTIONS for topic in SYSTEMS]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(front.heard, bodies))
    alone = [front.whole(body).json() for body in bodies]
    assert [(heard.text, heard.finish) for heard in together] == [text_of(answer) for answer in alone]


@pytest.mark.parametrize(("path", "make"), [("chat", chat), ("messages", messages)])
def test_a_client_that_goes_frees_its_seat_behind_the_gateway(fleet: Fleet, front: Front, path: str, make: Any) -> None:
    before = aborted(fleet)
    for heard in front.hearing(make("Tell me a long story.", most=700, ignore_eos=True), PATHS[path]):
        if heard.text:
            assert fleet.of_workers("vllm:num_requests_running") == 1
            break
    until(fleet.is_at_rest)
    assert aborted(fleet) == before + 1


def aborted(fleet: Fleet) -> int:
    stats = [worker.http.get("/stats").json() for worker in fleet.workers.values()]
    return sum(each["engine"]["finished"].get("abort", 0) for each in stats)


def test_the_heads_of_this_package_are_loaded_where_they_are_there(fleet: Fleet) -> None:
    for worker in fleet.processes.values():
        assert ("no heads" in worker.err[-1]) == (heads_file.shipped() is None)


def wrong_heads(path: Path) -> Path:
    """Heads that know nothing: random numbers instead of training."""
    dice = torch.Generator().manual_seed(0)
    fresh = KINDS["hydra"].fresh(SIZE["width"], 3, 1, 64)
    weights = {name: torch.randn(weight.shape, generator=dice) * 0.2 for name, weight in fresh.items()}
    heads_file.save(
        path,
        heads_file.HeadsFile(
            kind="hydra", weights=weights, ids=torch.arange(0, 4096), taps=(15,), paths=TREE, base=SIZE
        ),
    )
    return path


def test_heads_that_are_always_wrong_change_no_text(fleet: Fleet, front: Front, tmp_path: Path) -> None:
    heads = str(wrong_heads(tmp_path / "wrong.safetensors"))
    with loaded(("--heads", heads, "--no-lookup", "--always-draft")) as (worker,):
        wrong = Front(worker.http)
        for path, body in ALIKE.values():
            expected = fleet.workers[min(fleet.workers)].whole(body, PATHS[path]).json()
            assert said(wrong.whole(body, PATHS[path]).json()) == said(expected)
        tried, right = (wrong.metric(f"prefix_worker_guesses_{what}_total") for what in ("tried", "right"))
    assert tried > 100
    assert right < tried / 2


def test_when_a_worker_is_killed_the_other_goes_on_with_its_stream(fleet: Fleet) -> None:
    survivor = fleet.processes[min(fleet.processes)]
    with loaded(()) as (victim,), behind_a_gateway(victim, survivor, **{"routing.resume": True}) as both:
        (doomed,) = set(both.workers) - set(fleet.workers)
        body = next(body for body in questions() if worker_for(both.front, body) == doomed)
        heard_before = ""
        for heard in both.front.hearing({**body, "max_tokens": 150}):
            if heard.text and not heard_before:
                heard_before = heard.text
                victim.popen.send_signal(signal.SIGKILL)
        assert heard.comments == [f": resumed at {min(fleet.processes)}"]
        assert heard.text.startswith(heard_before)
        assert heard.finish == "length"
        again = both.front.whole(body)
        assert again.headers["x-router-worker"] == min(fleet.processes)
        assert said(again.json()) == said(fleet.workers[min(fleet.processes)].whole(body).json())
    until(fleet.is_at_rest)


def questions() -> Iterator[dict[str, Any]]:
    for number in count():
        yield chat("Tell me a long story.", f"Expert number {number} is who you are. " * 12, ignore_eos=True)


def worker_for(front: Front, body: dict[str, Any]) -> str:
    return str(front.whole({**body, "max_tokens": 1}).headers["x-router-worker"])
