"""Stickiness by session."""

from collections import Counter
from random import Random

from router.contracts import PolicyTools, Ranked
from router.core.fingerprint import seed_of
from router.policies.session import Options, build
from router.types import Reason
from tests.support import plain_rule
from tests.support.churn import Churn
from tests.support.fleets import Stage, ask_of, caller, chat, drain, undrain


def test_a_session_stays_where_it_is_whatever_it_asks_and_whatever_the_load() -> None:
    stage = Stage(8, "session")
    home = stage.serve(chat("first"), caller(session="s")).seat
    home.load.charge(1e9, 0.0, streaming=True)
    choices = [stage.serve(chat(f"{at}" * 900), caller(session="s")) for at in range(20)]
    assert {choice.seat for choice in choices} == {home}
    assert {choice.reason for choice in choices} == {Reason.SESSION}


def test_sessions_are_spread() -> None:
    stage = Stage(8, "session")
    workers = Counter(stage.serve(chat("hi"), caller(session=f"s{at}")).seat.id for at in range(800))
    assert len(workers) == 8
    assert max(workers.values()) <= 160


def test_a_request_without_a_session_goes_by_load() -> None:
    stage = Stage(4, "session")
    sent = [stage.send(chat("hi" * 50))[0] for _ in range(8)]
    assert set(Counter(choice.seat.id for choice in sent).values()) == {2}
    assert {choice.reason for choice in sent} == {Reason.LOAD}


def test_a_session_moves_to_its_second_worker_and_back() -> None:
    stage = Stage(8, "session")
    home = stage.serve(chat("hi"), caller(session="s")).seat
    drain(stage.fleet, home)
    away = {stage.serve(chat("hi"), caller(session="s")).seat.id for _ in range(5)}
    assert len(away) == 1
    undrain(stage.fleet, home)
    assert stage.serve(chat("hi"), caller(session="s")).seat is home


def test_a_session_s_id_is_not_its_prompt_s_model() -> None:
    """The model and the tenant do not move a session."""
    stage = Stage(8, "session")
    homes = {stage.serve(chat("hi", model=model), caller(session="s")).seat.id for model in "abcdef"}
    assert len(homes) == 1


def test_a_session_s_order_is_the_ring_s_over_all_that_may_be_used() -> None:
    churn = Churn(Random(4), 20, even=True)
    policy = build(Options(), PolicyTools(churn.fleet.ring, None))
    for _ in range(200):
        churn.step()
        candidates = churn.fleet.candidates(None)
        ask = ask_of(b"hi", session="s")
        walk = plain_rule.in_ring_order(candidates, churn.fleet.ring, seed_of("s"))
        expected = [Ranked(c.id, Reason.SESSION, 0.0, c.wait(churn.now)) for c in walk]
        assert list(policy.order(ask, candidates, churn.now)) == expected
