"""The shadow policy: asked for every request, obeyed in none."""

import json
import logging
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.events import Chosen, Event, Shadowed
from router.plugins import build_policy, policy_names
from router.types import Reason
from tests.support.client import post
from tests.support.gateway import Stage, ask
from tests.support.stories import Desk


class Last:
    """Always the last of the candidates."""

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        for each in reversed(candidates):
            yield Ranked(each.id, Reason.LOAD, 0.0, 0.0)


class Broken:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        raise RuntimeError("a fault of this policy")
        yield


class Stranger:
    """Names a worker that is not there."""

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        yield Ranked("nobody", Reason.LOAD, 0.0, 0.0)


def chat(words: int = 400, at: int = 0) -> bytes:
    text = f"question {at} " + "text " * words
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


def shadowed(shadow: Any, workers: int = 2) -> Desk:
    desk = Desk(workers)
    desk.house.shadow, desk.house.shadow_name = shadow, "the_other"
    return desk


def kinds(desk: Desk) -> list[type[Event]]:
    return [type(event) for event in desk.events if isinstance(event, Shadowed | Chosen)]


def test_without_a_shadow_nothing_is_told() -> None:
    desk = Desk()
    desk.ask(chat())
    assert desk.told(Shadowed) == []


def test_it_is_told_what_the_other_choice_would_cost_before_the_one_made_is_charged() -> None:
    desk = shadowed(Last())
    desk.seats[1].load.charge(500.0, 0.0, streaming=True)
    desk.ask(chat())
    (told,) = desk.told(Shadowed)
    assert desk.chosen == ["w0"]
    assert (told.policy, told.differs) == ("the_other", True)
    assert told.made == pytest.approx(desk.seats[0].load.charged), "nothing waited there, all is to be computed"
    assert told.cost == pytest.approx(told.made + 500.0)
    assert kinds(desk) == [Shadowed, Chosen]


def test_what_a_worker_holds_need_not_be_computed() -> None:
    desk = shadowed(Last())
    desk.ask(chat())
    desk.sent[0].answers()
    desk.ask(chat())
    first, second = desk.told(Shadowed)
    assert first.cost == first.made
    assert second.made < 0.2 * second.cost, "the worker chosen before holds it, the other's does not"


def test_two_policies_that_agree_do_not_differ() -> None:
    desk = shadowed(build_policy("tests.support.in_order", {}, PolicyTools(None, Random(1))))  # type: ignore[arg-type]
    desk.ask(chat())
    (told,) = desk.told(Shadowed)
    assert not told.differs
    assert told.cost == told.made


def test_a_request_is_asked_about_once_however_many_workers_it_tries() -> None:
    desk = shadowed(Last(), 3)
    desk.ask(chat())
    desk.sent[0].answers(503)
    desk.sent[1].answers(503)
    assert desk.chosen == ["w0", "w1", "w2"]
    assert len(desk.told(Shadowed)) == 1


def test_a_request_with_nothing_to_hash_is_asked_about_too() -> None:
    desk = shadowed(Last())
    desk.ask(b'{"model": "m"}')
    (told,) = desk.told(Shadowed)
    assert (told.cost, told.made) == (0.0, 0.0)


@pytest.mark.parametrize("shadow", [Broken(), Stranger()])
def test_a_shadow_that_fails_fails_no_request(shadow: Any, caplog: pytest.LogCaptureFixture) -> None:
    desk = shadowed(shadow)
    with caplog.at_level(logging.WARNING, "router"):
        _, sink = desk.ask(chat())
    desk.sent[0].answers()
    assert sink.status == 200
    assert desk.told(Shadowed) == []
    assert "routing.shadow: the_other failed" in caplog.text


def test_no_prompt_text_reaches_the_log_with_it(caplog: pytest.LogCaptureFixture) -> None:
    shadowed(Broken()).ask(chat())
    assert "question" not in caplog.text


def places(policy: str, shadow: str | None) -> list[tuple[str, ...]]:
    """Where a fixed row of requests goes, and what the workers were charged."""
    desk = Desk(4, routing={"policy": policy})
    tools = PolicyTools(desk.fleet.ring, Random(7))
    desk.house.mind.policy = build_policy(policy, {}, tools)
    if shadow is not None:
        desk.house.shadow = build_policy(shadow, {}, PolicyTools(desk.fleet.ring, Random(8)))
    for at in range(60):
        desk.now += 0.1
        desk.ask(chat(50 + 40 * (at % 7), at % 5))
        if at % 3:
            desk.sent[-1].answers()
    return [(event.worker, event.reason) for event in desk.told(Chosen)]


@pytest.mark.parametrize("policy", policy_names())
def test_no_shadow_changes_where_requests_go(policy: str) -> None:
    alone = places(policy, None)
    assert all(places(policy, shadow) == alone for shadow in policy_names())


async def test_a_gateway_counts_what_its_shadow_would_have_done(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(*workers, routing={"policy": "tests.support.in_order", "shadow": "round_robin"})
    first = sorted(worker.id for worker in workers)[0]
    for at in range(9):
        assert (await ask(running.port, post(chat(at=at)))).one("x-router-worker") == first
    shown = await running.metrics()
    counts = {
        differs: shown[f'prefix_router_shadow_decisions_total{{differs="{differs}",policy="round_robin"}}']
        for differs in ("true", "false")
    }
    assert counts == {"true": 6, "false": 3}
    for name in ("shadow_cost_tokens_total", "shadow_made_tokens_total"):
        assert shown[f'prefix_router_{name}{{policy="round_robin"}}'] > 0
    assert not any("round_robin" in name for name in shown if "_decisions_total" in name and "shadow" not in name)
