"""The mind at work: prompts in, workers out, over time."""

import json
import tracemalloc
from collections import Counter
from typing import Any

import pytest

from router.contracts import Ask, Usage
from router.core.fingerprint import DEPTHS
from router.core.fleet import Seat
from router.core.health import PROBE_OK, REQUEST_FAILED, REQUEST_OK
from router.core.holders import Holders
from router.core.ladder import Ladder
from router.core.load import SILENT
from router.dialects.openai import CHAT
from router.prompt import Prompt
from router.types import Fingerprint, Key, News, Reason
from tests.support.fleets import Stage, caller, chat, down, drain, named, prompt_of, undrain, worker

SYSTEM = "You are a careful assistant of the Orion observatory. " * 40  # a little over 2,000 characters
AFFINE = ["prefix_cost", "prefix_bounded", "prefix_aware"]


def question(at: int) -> str:
    return f"Question number {at}: what is {at} times {at + 1}?"


def story(at: int) -> str:
    """A text of 2,000 characters that shares nothing with another's."""
    return f"{at:05} " * 340


# What a prompt is weighed as.


def test_nothing_to_hash_has_no_key_and_no_holder() -> None:
    ask = Stage().weigh(Prompt(b"", model="m"))
    assert ask.key == Key(0, 0, 0)
    assert ask.held == {}
    assert ask.prefix.tokens == 0


def test_the_seed_is_folded_from_model_tenant_salt_cache_key_and_prefix_id() -> None:
    stage = Stage()
    text = b"x" * 200
    seeds = {
        stage.weigh(Prompt(text), caller()).seed,
        stage.weigh(Prompt(text, model="m"), caller()).seed,
        stage.weigh(Prompt(text, cache_salt="m"), caller()).seed,
        stage.weigh(Prompt(text, cache_key="m"), caller()).seed,
        stage.weigh(Prompt(text), caller(tenant="m")).seed,
        stage.weigh(Prompt(text), caller(prefix_id="m")).seed,
        stage.weigh(Prompt(text, cache_salt=""), caller()).seed,
        stage.weigh(Prompt(text, cache_key=""), caller()).seed,
        stage.weigh(Prompt(text, model=""), caller()).seed,
        stage.weigh(Prompt(text), caller(prefix_id="")).seed,
    }
    assert len(seeds) == 10


def test_the_session_is_no_part_of_the_seed() -> None:
    """It decides under the session policy alone."""
    stage = Stage()
    one, other = (stage.weigh(chat("hi"), caller(session=name)) for name in ("a", "b"))
    assert one.seed == other.seed
    assert (one.session, other.session) == ("a", "b")


def test_two_tenants_share_no_prefix() -> None:
    stage = Stage(1)
    for tenant in ("red", "blue"):
        ask = stage.weigh(chat(question(1), system=SYSTEM), caller(tenant=tenant))
        assert ask.held == {}
        stage.serve(chat(question(1), system=SYSTEM), caller(tenant=tenant))


def test_looking_changes_nothing() -> None:
    stage = Stage()
    for at in range(20):
        stage.serve(chat(question(at), system=SYSTEM))
    body = chat(question(99), system=SYSTEM)
    ladder, holders = len(stage.mind.ladder), len(stage.mind.holders)
    asks = [stage.weigh(body, count=False) for _ in range(30)]
    assert all(ask.key == asks[0].key for ask in asks)
    assert len({stage.look(body) for _ in range(30)}) == 1
    assert (len(stage.mind.ladder), len(stage.mind.holders)) == (ladder, holders)
    assert all(seat.load.in_flight == 0 for seat in stage.fleet.seats.values())


@pytest.mark.parametrize("policy", [*AFFINE, "session", "least_work", "least_outstanding", "round_robin"])
def test_where_it_would_go_is_where_it_goes(policy: str) -> None:
    stage = Stage(5, policy)
    for at in range(40):
        body = chat(question(at), system=SYSTEM if at % 2 else story(at))
        would = stage.look(body)
        assert stage.serve(body).seat.id == would


@pytest.mark.parametrize("policy", [*AFFINE, "session", "least_work", "least_outstanding", "round_robin", "random"])
def test_with_no_usable_worker_the_order_is_empty(policy: str) -> None:
    """`explain` asks for the order at any time, also when every worker has yet to start."""
    stage = Stage(3, policy)
    for seat in stage.fleet.seats.values():
        drain(stage.fleet, seat)
    ask = stage.weigh(chat("hi", system=SYSTEM))
    assert stage.mind.rank(ask, None, 0.0) == []
    assert stage.mind.choose(ask, None, (), 0.0) is None


def test_the_rank_begins_with_the_choice_and_names_everyone() -> None:
    stage = Stage()
    for at in range(10):
        ask = stage.weigh(chat(question(at), system=SYSTEM))
        ranked = stage.mind.rank(ask, None, 0.0)
        choice = stage.mind.choose(ask, None, (), 0.0)
        assert choice is not None
        assert ranked[0].worker == choice.seat.id
        assert sorted(each.worker for each in ranked) == named(8)
        stage.serve(chat(question(at), system=SYSTEM))


# What is charged.


def test_a_commit_charges_what_is_not_cached_and_notes_the_holder() -> None:
    stage = Stage()
    body = chat(question(1), system=SYSTEM)
    tokens = stage.weigh(body, count=False).prefix.tokens
    choice, lease = stage.send(body)
    assert choice.seat.load.charged == tokens
    assert choice.seat.load.traffic == tokens
    lease.release()
    ask = stage.weigh(body)
    assert list(ask.held) == [choice.seat.id]
    again, lease = stage.send(body)
    assert again.seat is choice.seat
    assert again.seat.load.charged == tokens - again.expected
    assert again.expected > 0.8 * tokens
    lease.release()


def test_a_request_charges_at_least_something() -> None:
    stage = Stage(1)
    _, lease = stage.send(Prompt(b""))
    assert stage.fleet.seats["w0"].load.charged > 0
    lease.release()


def test_traffic_decays_in_every_worker_at_once() -> None:
    stage = Stage(2, "round_robin")
    for _ in range(4):
        stage.serve(chat("x" * 4000), seconds=0.0)
    before = {name: seat.load.traffic for name, seat in stage.fleet.seats.items()}
    stage.now += 3 * 41.6 + 0.1
    stage.serve(Prompt(b"x"))
    for name, seat in stage.fleet.seats.items():
        assert seat.load.traffic == pytest.approx(before[name] / 8, abs=1.0)


def test_a_worker_that_lost_its_cache_is_expected_to_hold_nothing() -> None:
    stage = Stage()
    body = chat(question(1), system=SYSTEM)
    seat = stage.serve(body).seat
    stage.mind.lost(seat)
    assert stage.weigh(body).held == {}


def test_a_worker_that_left_is_expected_to_hold_nothing() -> None:
    stage = Stage()
    body = chat(question(1), system=SYSTEM)
    seat = stage.serve(body).seat
    stage.fleet.reconcile([other.worker for other in stage.fleet.seats.values() if other is not seat])
    stage.mind.left(seat)
    assert stage.weigh(body).held == {}
    assert stage.serve(body).seat is not seat


# Affinity.


def test_fifty_questions_with_one_system_text_go_to_one_worker() -> None:
    stage = Stage()
    choices = [stage.serve(chat(question(at), system=SYSTEM)) for at in range(50)]
    assert len({choice.seat.id for choice in choices}) == 1
    assert choices[0].reason == Reason.COLD
    assert {choice.reason for choice in choices[1:]} <= {Reason.HOME, Reason.WARM}


@pytest.mark.parametrize("policy", AFFINE)
def test_affinity_holds_from_the_beginning_of_the_prompt(policy: str) -> None:
    stage = Stage(8, policy)
    asked = [chat(question(at), system=story(7) * 3) for at in range(30)]
    assert len({stage.serve(body).seat.id for body in asked}) == 1


@pytest.mark.parametrize("policy", AFFINE)
def test_different_system_texts_are_spread(policy: str) -> None:
    stage = Stage(8, policy)
    workers = Counter(stage.serve(chat("hi", system=story(at))).seat.id for at in range(200))
    assert len(workers) == 8
    assert max(workers.values()) <= 60


def test_twenty_chats_in_part_form_are_told_apart() -> None:
    stage = Stage()
    asks = [
        stage.weigh(
            json.dumps(
                {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": f"Topic {at}"}]}]}
            ).encode()
        )
        for at in range(20)
    ]
    assert len({ask.key.value for ask in asks}) == 20


def test_each_conversation_keeps_its_worker_from_turn_to_turn() -> None:
    """Two users share a system text; their turns come interleaved."""
    stage = Stage()
    turns: dict[str, list[str]] = {"ann": [], "bob": []}
    workers: dict[str, set[str]] = {"ann": set(), "bob": set()}
    for at in range(1, 7):
        for user, said in turns.items():
            said.append(f"{user} asks for the {at}. time about {user}'s garden and its many plants.")
            workers[user].add(stage.serve(chat(*said, system=SYSTEM)).seat.id)
            said.append(f"Answer {at} to {user}: " + "plants need light and water. " * 10)
    assert all(len(used) == 1 for used in workers.values())


def test_many_conversations_keep_their_workers_while_all_of_them_run() -> None:
    stage = Stage(4)
    stories = {at: [story(at)] for at in range(40)}
    homes: dict[int, set[str]] = {at: set() for at in stories}
    for turn in range(6):
        for at, said in stories.items():
            homes[at].add(stage.serve(chat(*said)).seat.id)
            said += [f"Answer {turn} " * 30, f"And then, for the {turn}. time?"]
    assert sum(len(used) == 1 for used in homes.values()) >= 38
    counts = Counter(next(iter(used)) for used in homes.values())
    assert max(counts.values()) <= 15


def test_a_hot_system_text_does_not_keep_conversations_together() -> None:
    """Every chat begins with the same long text; each conversation has a key of its own all the same."""
    stage = Stage(4)
    for at in range(100):
        stage.serve(chat(story(at), system=SYSTEM * 2))
    keys = {stage.weigh(chat(story(at), system=SYSTEM * 2), count=False).key.value for at in range(50)}
    assert len(keys) > 40


def test_a_token_id_prompt_has_affinity_too() -> None:
    stage = Stage()
    head = list(range(1000, 1500))
    path = "/v1/completions"
    prompts = [prompt_of(json.dumps({"model": "m", "prompt": [*head, at, at + 1]}).encode(), path) for at in range(30)]
    assert len({stage.serve(prompt).seat.id for prompt in prompts}) == 1


# Several minds.


@pytest.mark.parametrize("policy", AFFINE)
def test_two_minds_that_learned_their_workers_in_different_orders_choose_alike(policy: str) -> None:
    one, other = Stage(named(8), policy), Stage(named(8)[::-1], policy)
    for at in range(100):
        body = chat(question(at), system=story(at % 30))
        first, second = one.serve(body), other.serve(body)
        assert (first.seat.id, first.reason) == (second.seat.id, second.reason)


def test_removing_one_of_eight_moves_nothing_that_the_others_hold() -> None:
    stage = Stage()
    bodies = [chat(question(at), system=story(at)) for at in range(100)]
    homes = [stage.serve(body).seat for body in bodies]
    gone = stage.fleet.seats["w3"]
    stage.fleet.reconcile([seat.worker for seat in stage.fleet.seats.values() if seat is not gone])
    stage.mind.left(gone)
    for body, home in zip(bodies, homes, strict=True):
        seat = stage.serve(body).seat
        assert seat is home or home is gone
        assert seat is not gone


@pytest.mark.parametrize("policy", ["prefix_bounded", "prefix_aware", "session"])
def test_without_load_removing_one_of_eight_moves_only_its_prompts(policy: str) -> None:
    stage = Stage(8, policy)
    asked = [(chat(question(at), system=story(at)), caller(session=str(at))) for at in range(200)]
    before = [stage.look(body, who) for body, who in asked]
    drain(stage.fleet, stage.fleet.seats["w3"])
    after = [stage.look(body, who) for body, who in asked]
    assert all(now == then or then == "w3" for then, now in zip(before, after, strict=True))
    assert "w3" not in after
    undrain(stage.fleet, stage.fleet.seats["w3"])
    assert [stage.look(body, who) for body, who in asked] == before


def test_a_worker_that_joins_takes_nothing_that_others_hold() -> None:
    stage = Stage(named(7))
    bodies = [chat(question(at), system=story(at)) for at in range(100)]
    homes = [stage.serve(body).seat for body in bodies]
    stage.fleet.reconcile([worker(name) for name in named(8)])
    stage.fleet.feed(stage.fleet.seats["w7"], PROBE_OK, stage.now)
    assert [stage.serve(body).seat for body in bodies] == homes


# Load.


def test_new_prefixes_respect_load() -> None:
    """One worker is stuck with slow requests; the idle ones get what is new, however much they have computed."""
    stage = Stage(2)
    stuck = stage.fleet.seats["w0"]
    held = [stuck.load.charge(5000.0, 0.0, streaming=True) for _ in range(8)]
    for at in range(20):
        assert stage.serve(chat("hi", system=story(at))).seat is not stuck
    for lease in held:
        lease.release()


@pytest.mark.parametrize("hot", [False, True])
def test_overflow_goes_to_a_small_set_and_returns_home_afterwards(hot: bool) -> None:
    """A hot prefix has its home among others then: those that overflow made its holders keep their part."""
    stage = Stage(ladder=Ladder(least=8 if hot else 1000))
    bodies = [chat(question(at), system=SYSTEM) for at in range(90)]
    home = stage.serve(bodies[0]).seat
    assert all(stage.serve(body).seat is home for body in bodies[1:10])
    stuck = [home.load.charge(100_000.0, stage.now, streaming=True) for _ in range(4)]
    overflow = Counter(stage.serve(body).seat.id for body in bodies[10:60])
    assert home.id not in overflow
    assert len(overflow) <= 3
    for lease in stuck:
        lease.release()
    returned = Counter(stage.serve(body).seat.id for body in bodies[60:90])
    if hot:
        assert set(returned) <= {home.id, *overflow}
        assert returned[home.id] >= 30 // (1 + len(overflow))
    else:
        assert set(returned) == {home.id}


def test_twenty_requests_of_one_prefix_at_once_do_not_all_pile_on_its_home() -> None:
    stage = Stage(200)
    stage.serve(chat(question(0), system=SYSTEM))
    sent = [stage.send(chat(question(at), system=SYSTEM)) for at in range(1, 21)]
    workers = Counter(choice.seat.id for choice, _ in sent)
    assert len(workers) > 1
    assert max(workers.values()) < 20
    for _, lease in sent:
        lease.release()
    assert all(seat.load.in_flight == 0 for seat in stage.fleet.seats.values())


def test_twelve_distinct_prompts_at_once_are_shared_out_evenly() -> None:
    """The charge is made at the choice, so slow prefill never draws everything to one worker."""
    stage = Stage(4)
    sent = [stage.send(chat("hi", system=story(at))) for at in range(12)]
    workers = Counter(choice.seat.id for choice, _ in sent)
    assert set(workers.values()) == {3}


def test_a_worker_whose_requests_fail_fast_gets_a_handful() -> None:
    """Its probes are all well; each request fails at once. Eighty requests, two workers."""
    stage = Stage(2)
    broken = stage.fleet.seats["w1"]
    got = 0
    for at in range(80):
        choice, lease = stage.send(chat("hi", system=story(at)))
        stage.now += 0.05
        failed = choice.seat is broken
        got += failed
        stage.fleet.feed(choice.seat, REQUEST_FAILED if failed else REQUEST_OK, stage.now)
        stage.fleet.feed(broken, PROBE_OK, stage.now)
        lease.release()
    assert got <= 8


def test_a_worker_of_twice_the_weight_gets_twice_the_new_prompts() -> None:
    stage = Stage([worker("big", weight=2.0), worker("one"), worker("two")])
    workers = Counter(stage.serve(chat("hi", system=story(at))).seat.id for at in range(200))
    assert workers["big"] == pytest.approx(100, abs=20)


# Retries.


def test_a_retry_is_the_same_order_without_those_tried() -> None:
    stage = Stage()
    ask = stage.weigh(chat(question(1), system=SYSTEM))
    ranked = [each.worker for each in stage.mind.rank(ask, None, 0.0)]
    tried: list[str] = []
    for expected in ranked:
        choice = stage.mind.choose(ask, None, tuple(tried), 0.0)
        assert choice is not None
        assert choice.seat.id == expected
        assert choice.reason == (Reason.RETRY if tried else Reason.COLD)
        tried.append(expected)
    assert stage.mind.choose(ask, None, tuple(tried), 0.0) is None


def test_a_failed_home_is_skipped_and_gets_its_prompts_back() -> None:
    stage = Stage()
    bodies = [chat(question(at), system=SYSTEM) for at in range(20)]
    home = stage.serve(bodies[0]).seat
    down(stage.fleet, home)
    away = {stage.serve(body).seat.id for body in bodies[1:10]}
    assert home.id not in away
    assert len(away) == 1


def test_a_request_that_failed_makes_its_worker_look_busy_for_a_while() -> None:
    stage = Stage(2)
    ask = stage.weigh(chat(question(1), system=SYSTEM))
    seat = stage.fleet.seats["w0"]
    stage.mind.failed(ask, seat, 0.0)
    assert seat.wait(0.0) > ask.prefix.tokens
    assert seat.wait(60.0) < 1.0
    assert seat.load.charged == 0.0


# Learning from answers.

REPORTS = [None, -3, 0, 5, 1500, 10**9]


@pytest.mark.parametrize("cached", REPORTS)
@pytest.mark.parametrize("prompt", REPORTS)
@pytest.mark.parametrize("alone", [True, False])
def test_whatever_a_worker_reports_or_leaves_out_is_borne(alone: bool, prompt: int | None, cached: int | None) -> None:
    stage = Stage(2, alone=alone)
    for what in (chat(question(1), system=SYSTEM), Prompt(b""), Prompt(b"hi"), chat(question(1), system=SYSTEM)):
        ask = stage.weigh(what)
        choice = stage.mind.choose(ask, None, (), stage.now)
        assert choice is not None
        lease = stage.mind.commit(ask, choice, stage.now, streaming=True)
        stage.now += 0.5
        lease.first_token(stage.now)
        lease.release()
        stage.mind.learn(ask, choice, Usage(prompt, None, cached), stage.now)
    assert all(seat.load.charged == 0.0 for seat in stage.fleet.seats.values())
    assert 0.0 <= stage.weigh(chat(question(2)), count=False).trust <= 1.0


def learnt(stage: Stage, what: bytes, seconds: float, prompt: int | None, cached: int | None) -> Seat:
    ask = stage.weigh(what)
    choice = stage.mind.choose(ask, None, (), stage.now)
    assert choice is not None
    lease = stage.mind.commit(ask, choice, stage.now, streaming=True)
    stage.now += seconds
    lease.first_token(stage.now)
    lease.release()
    stage.mind.learn(ask, choice, Usage(prompt, None, cached), stage.now)
    return choice.seat


def test_the_pace_is_what_was_truly_computed_in_the_time_it_took() -> None:
    assert learnt(Stage(1), chat(story(1)), 0.5, 1000, 0).load.pace == 2000.0
    assert learnt(Stage(1), chat(story(1)), 0.5, 1000, 400).load.pace == 1200.0
    stage = Stage(1)
    tokens = stage.weigh(chat(story(1)), count=False).prefix.tokens
    assert learnt(stage, chat(story(1)), 0.5, None, None).load.pace == tokens / 0.5


def test_a_prompt_that_was_mostly_cached_teaches_no_pace() -> None:
    assert learnt(Stage(1), chat(story(1)), 0.5, 1000, 501).load.pace is None


def test_workers_speeds_follow_their_paces() -> None:
    stage = Stage(4)
    for at in range(160):
        ask = stage.weigh(chat(story(at)))
        choice = stage.mind.choose(ask, None, (), stage.now)
        assert choice is not None
        lease = stage.mind.commit(ask, choice, stage.now, streaming=True)
        stage.now += 1.0 if choice.seat.id == "w2" else 0.5
        lease.first_token(stage.now)
        lease.release()
        stage.mind.learn(ask, choice, Usage(None, None, None), stage.now)
    assert {name: round(seat.speed, 1) for name, seat in stage.fleet.seats.items()} == {
        "w0": 1.0, "w1": 1.0, "w2": 0.5, "w3": 1.0,
    }  # fmt: skip


def test_the_length_of_a_token_is_learnt_from_what_is_reported() -> None:
    stage = Stage(1)
    for at in range(10):
        learnt(stage, chat(story(at)), 0.5, 1000, 0)
    length = stage.weigh(chat(story(3)), count=False).length
    assert stage.weigh(chat(story(3)), count=False).prefix.tokens == pytest.approx(1000, rel=0.05)
    assert length / 1000 == pytest.approx(2.05, abs=0.05)


# Several minds that tell each other.


def telling(stage: Stage, what: bytes, *hearers: Stage) -> str:
    stage.mind.outbox = []
    seat = stage.serve(what).seat
    for news in stage.mind.outbox:
        for hearer in hearers:
            hearer.mind.hear(news)
    return seat.id


def test_two_minds_that_hear_each_other_hold_the_same() -> None:
    one, other = Stage(8), Stage(8)
    for at in range(60):
        teller, hearer = (one, other) if at % 3 else (other, one)
        telling(teller, chat(question(at), system=story(at % 7) * 3), hearer)
    for at in range(60):
        body = chat(question(at), system=story(at % 7) * 3)
        asks = [stage.weigh(body, count=False) for stage in (one, other)]
        assert asks[0].held == asks[1].held != {}
        assert asks[0].ages == pytest.approx(asks[1].ages)
        assert asks[0].hashes == asks[1].hashes
    assert [seat.load.traffic for seat in one.fleet.seats.values()] == pytest.approx(
        [seat.load.traffic for seat in other.fleet.seats.values()]
    )


def test_what_is_heard_charges_nobody() -> None:
    one, other = Stage(2), Stage(2)
    telling(one, chat(story(1)), other)
    assert all(seat.load.in_flight == seat.load.charged == 0 for seat in other.fleet.seats.values())
    assert other.mind.outbox is None


def test_news_of_a_worker_that_is_not_known_is_nothing() -> None:
    stage = Stage(2)
    stage.mind.hear(News("stranger", 1000.0, 1000.0, [1, 2, 3]))
    assert len(stage.mind.holders) == 0
    assert all(seat.load.traffic == 0.0 for seat in stage.fleet.seats.values())
    stage.mind.hear_loads("r1", [("stranger", 3, 1000.0)], 60.0)
    assert all(seat.wait(0.0) == 0.0 for seat in stage.fleet.seats.values())


def test_loads_are_told_of_workers_where_something_waits_and_replace_those_told_before() -> None:
    one, other = Stage(2), Stage(2)
    assert one.mind.loads(0.0) == []
    choice, lease = one.send(chat(story(1)))
    name, waiting = choice.seat.id, choice.seat.load.charged
    assert one.mind.loads(0.0) == [(name, 1, pytest.approx(waiting, abs=0.1))]
    other.mind.hear_loads("r1", one.mind.loads(0.0), 60.0)
    assert other.fleet.seats[name].wait(0.0) == pytest.approx(waiting, abs=0.1)
    assert other.fleet.seats[name].wait(60.0) == 0.0
    assert other.mind.loads(0.0) == []
    lease.first_token(1.0)
    other.mind.hear_loads("r1", one.mind.loads(1.0), 61.0)
    assert other.fleet.seats[name].wait(1.0) == 0.0
    lease.release()


class Watched(dict[str, Seat]):
    """Seats; which of them were looked up, and whether all were gone through."""

    def __init__(self, seats: dict[str, Seat]) -> None:
        super().__init__(seats)
        self.looked: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        self.looked.append(name)
        return super().get(name, default)

    def values(self) -> Any:
        self.looked.extend(self)
        return super().values()


def test_of_a_replica_s_loads_only_workers_that_it_names_or_named_are_looked_at() -> None:
    stage = Stage(4)
    seats = stage.fleet.seats = Watched(stage.fleet.seats)
    for loads, expected in (
        ([("w1", 2, 10.0), ("w2", 1, 5.0)], ["w1", "w2"]),
        ([("w2", 3, 7.0)], ["w1", "w2"]),
        ([("w2", 3, 8.0)], ["w2"]),
        ([], ["w2"]),
        ([], []),
    ):
        seats.looked.clear()
        stage.mind.hear_loads("r1", loads, 60.0)
        assert sorted(seats.looked) == expected
        waits = {name: seat.wait(0.0) for name, seat in seats.items() if seat.wait(0.0)}
        assert waits == {name: charged for name, _, charged in loads}


def test_a_replica_that_fell_silent_is_remembered_no_longer_than_its_loads() -> None:
    stage = Stage(2)
    stage.mind.hear_loads("ended", [("w0", 1, 10.0)], 1.0)
    stage.mind.hear_loads("r1", [("w0", 1, 10.0)], 2.0)
    assert set(stage.mind._tellers) == {"ended", "r1"}
    stage.mind.hear_loads("r1", [("w1", 1, 10.0)], 1.5 + SILENT)
    assert set(stage.mind._tellers) == {"r1"}


def test_a_stranger_s_request_waits_for_as_much_as_requests_do_here() -> None:
    stage = Stage(1)
    for at in range(300):
        stage.serve(chat(story(at)))
    seat = stage.fleet.seats["w0"]
    stage.mind.hear_queue(seat, 2, stage.now, 0.6)
    tokens = stage.weigh(chat(story(999)), count=False).prefix.tokens
    assert seat.wait(stage.now) == pytest.approx(2 * tokens, rel=0.05)


# One of several that do not share.


def test_a_mind_that_is_not_alone_trusts_the_home_with_what_it_never_sent() -> None:
    stage = Stage(alone=False)
    for at in range(30):
        body = chat("hi", system=story(at))
        ask = stage.weigh(body, count=False)
        choice = stage.mind.choose(ask, None, (), stage.now)
        assert choice is not None
        assert choice.seat.id == stage.fleet.ring.home(ask.key.value)
        assert choice.reason == Reason.HOME
        assert choice.expected == pytest.approx(ask.trust * ask.prefix.tokens)
        stage.serve(body)


@pytest.mark.parametrize(("share", "grows"), [(0.9, True), (0.0, False)])
def test_trust_follows_what_homes_deliver(share: float, grows: bool) -> None:
    stage = Stage(alone=False)
    before = stage.weigh(chat("hi"), count=False).trust
    for at in range(100):
        learnt(stage, chat("hi", system=story(at)), 0.5, 1000, round(1000 * share))
    after = stage.weigh(chat("hi"), count=False).trust
    assert (after > 0.7) if grows else (0.0 < after < before / 3)


def test_a_mind_that_is_alone_trusts_nobody() -> None:
    stage = Stage()
    for at in range(20):
        learnt(stage, chat("hi", system=story(at)), 0.5, 1000, 900)
    assert stage.weigh(chat("hi", system=story(99))).trust == 0.0


# What an engine says of its cache.


class Told:
    """Knows better than the table of one worker; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def overrule(self, prefix: Fingerprint, held: dict[str, int]) -> None:
        held.clear()
        held["w1"] = prefix.depths[0]

    def sent(self, ask: Ask, worker: Any, now: float) -> None:
        self.told.append(f"sent {worker.id}")

    def heard(self, news: News) -> None:
        self.told.append(f"heard {news.worker}")

    def lost(self, worker: str) -> None:
        self.told.append(f"lost {worker}")


def test_the_truth_overrules_the_table_and_is_told_what_the_table_is() -> None:
    stage = Stage(2)
    stage.mind.truth = truth = Told()
    body = chat(question(1), system=SYSTEM)
    assert stage.weigh(body, count=False).held == {"w1": 64}
    seat = stage.serve(body).seat
    stage.mind.hear(News("w0", 10.0, 10.0, [1]))
    stage.mind.hear(News("stranger", 10.0, 10.0, [1]))
    stage.mind.lost(seat)
    assert truth.told == [f"sent {seat.id}", "heard w0", f"lost {seat.id}"]


def test_a_next_turn_is_found_to_a_step_and_not_only_to_a_rung() -> None:
    """Sixty turns on, rungs lie kilobytes apart."""
    stage = Stage()
    said = ["Tell me about light. " * 40, "Light is a wave and a particle. " * 1600]
    home = stage.serve(chat(*said, "Go on.")).seat
    ask = stage.weigh(chat(*said, "Go on.", "It bends. " * 30, "And then?"), count=False)
    shared = len(stage.weigh(chat(*said, "Go on."), count=False).text)
    rung = max(depth for depth in DEPTHS if depth <= shared)
    assert rung < ask.held[home.id] <= shared
    assert shared - ask.held[home.id] < (DEPTHS[DEPTHS.index(rung) + 1] - rung) / 8 + 256


# Memory.


def test_the_tables_stay_within_their_bounds_whatever_comes() -> None:
    """Twenty thousand prompts with one beginning and random ends, then every worker leaves."""
    stage = Stage(4, ladder=Ladder(window=200), holders=Holders(1000))
    head = SYSTEM.encode()[:900]
    sizes = []
    for at in range(20_000):
        stage.serve(Prompt(head + f"{at * 7919 % 1_000_003:07}".encode() * 40, model="m", cache_key=str(at % 9000)))
        if at % 2000 == 1999:
            sizes.append((len(stage.mind.holders), len(stage.mind.ladder)))
    assert all(holders <= 1000 + 2 * 64 and ladder <= 600 for holders, ladder in sizes)
    seeds = [value for value in vars(stage.mind).values() if isinstance(value, dict)]
    assert all(len(table) <= 4096 for table in seeds)
    seats = list(stage.fleet.seats.values())
    stage.fleet.reconcile([])
    for seat in seats:
        stage.mind.left(seat)
    assert stage.weigh(Prompt(head * 2, model="m")).held == {}


def test_huge_cache_keys_and_salts_do_not_fill_the_memory() -> None:
    """They are the client's to choose, up to the limit on bodies."""
    stage = Stage(2)
    tracemalloc.start()
    try:
        for at in range(100):
            stage.weigh(Prompt(b"x" * 100, cache_key=f"{at:06}" * 20_000))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 2_000_000


def test_a_prompt_of_a_megabyte_over_64_workers_is_weighed_in_bounded_work() -> None:
    stage = Stage(64)
    body = chat("x" * 1_000_000)
    ask = stage.weigh(prompt_of(body, CHAT))
    assert len(ask.prefix.hashes) <= 64
    stage.serve(body)
    assert len(stage.mind.holders) <= 64
