"""Simulated time: everything ends once, in order, and nothing is kept."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.replay.arrivals import Arrivals
from router.replay.item import BLOCK, Request
from router.replay.reference import Reference
from router.replay.routing import Routed
from router.replay.simulate import BELIEVED, Setup, Simulation
from router.replay.workers import Timing
from tests.support.replays import dice, line, paths, policy, request, routed, rows

PAIR = Setup(workers=2, room=20 * BLOCK)


def requests(prompts: list[list[int]], apart: float = 0.02, sessions: int = 0) -> list[Request]:
    lines = [
        line(at * apart, names, session=f"s{at % sessions}" if sessions else None) for at, names in enumerate(prompts)
    ]
    return Arrivals(rows(*lines), dice()("arrivals"), 2 if sessions else 1).at(1.0)


def left_over(run: Simulation) -> list[float]:
    """What replicas still charge their workers with."""
    return [
        value
        for router in run.routers
        if isinstance(router, Routed)
        for seat in router.fleet.seats.values()
        for value in (seat.load.in_flight, seat.load.waiting, seat.load.charged)
    ]


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(paths, min_size=1, max_size=30),
    sessions=st.sampled_from([0, 0, 3]),
    replicas=st.integers(1, 3),
    change=st.sampled_from(["", "leave", "join"]),
    share=st.booleans(),
    name=st.sampled_from(["prefix_cost", "prefix_bounded", "random", "least_work"]),
)
def test_every_request_ends_exactly_once_and_nothing_stays_charged(
    prompts: list[list[int]], sessions: int, replicas: int, change: str, share: bool, name: str
) -> None:
    sent = requests(prompts, sessions=sessions)
    setup = Setup(workers=3, room=8 * BLOCK, replicas=replicas, change=change, share=share)
    run = routed(sent, setup, name)
    assert run.finished == len(sent)
    assert sum(worker.served for worker in run.workers) == len(sent)
    assert not any(left_over(run))
    assert all(worker.decodes == worker.waiting == 0 for worker in run.workers)
    for each in sent:
        assert each.at is not None
        assert each.due <= each.at < each.first < each.done
        assert 0 <= each.hit < each.item.tokens
        assert each.following is None or each.following.at is None or each.following.at >= each.done


def test_a_request_alone_takes_its_prefill_and_its_decode() -> None:
    sent = request([1, 2], due=3.0, output=100)
    routed([sent], PAIR)
    assert sent.ttft == pytest.approx(Timing().alone(2 * BLOCK))
    assert sent.done - sent.first == pytest.approx(100 * 0.0124)


def test_one_worker_serves_in_order() -> None:
    sent = [request([at], due=0.0) for at in range(5)]
    run = routed(sent, Setup(workers=1, room=20 * BLOCK))
    ends = [each.first for each in sent]
    assert ends == sorted(ends)
    assert run.workers[0].busy == pytest.approx(ends[-1])


def test_a_session_waits_for_its_turn_before() -> None:
    sent = Arrivals(rows(line(0, [1], session="a"), line(0.1, [1, 2], session="a")), dice()("arrivals")).at(1.0)
    routed(sent, Setup(workers=1, room=20 * BLOCK, timing=Timing(rate=100.0)))
    one, two = sent
    assert two.at == pytest.approx(one.done)
    assert two.hit == BLOCK


def test_replicas_get_requests_in_turns() -> None:
    sent = requests([[at] for at in range(9)])
    routed(sent, Setup(workers=2, replicas=3))
    assert Counter(each.router for each in sent) == {0: 3, 1: 3, 2: 3}


def spread_of(**more: object) -> set[str | None]:
    """Where four replicas send one conversation, turn by turn."""
    sent = [request([5] * 0 + list(range(1, 3 + at)), due=at * 1.0) for at in range(8)]
    routed(sent, Setup(workers=4, room=50 * BLOCK, replicas=4, **more), "prefix_cost")  # type: ignore[arg-type]
    return {each.worker for each in sent}


def test_replicas_that_share_agree_on_a_conversation() -> None:
    assert len(spread_of()) == 1


def test_what_is_told_too_late_is_not_known() -> None:
    hits = []
    for lag in (0.05, 1000.0):
        sent = [request([1, 2, 3], due=at * 1.0) for at in range(8)]
        run = Simulation(
            sent, Setup(workers=4, replicas=4, lag=lag),
            lambda own: Routed(policy("prefix_cost"), own, room=50 * BLOCK, shares=True), dice(),
        ).run()  # fmt: skip
        heard = [len(router.mind.holders) for router in run.routers if isinstance(router, Routed)]
        hits.append((sum(each.hit > 0 for each in sent), len(heard)))
    assert hits[0][0] >= hits[1][0]


def test_what_happens_within_half_the_lag_is_told_in_one_batch_and_heard_half_of_it_later() -> None:
    heard: list[tuple[str, int, int]] = []

    class Listening(Routed):
        def hear(self, teller: str, news: object, loads: object, until: float) -> None:
            heard.append((teller, len(news), round((until - BELIEVED) * 1000)))  # type: ignore[arg-type]
            super().hear(teller, news, loads, until)  # type: ignore[arg-type]

    sent = [request([at, 100 + at], due=at * 0.001) for at in range(8)]
    setup = Setup(workers=2, replicas=2, lag=0.1, poll=0.0)
    make = policy("prefix_cost")
    Simulation(sent, setup, lambda own: Listening(make, own, room=setup.room, shares=True), dice()).run()
    assert heard[:2] == [("replica 0", 4, 100), ("replica 1", 4, 101)]
    assert sum(count for _, count, _ in heard) == len(sent)


def test_replicas_that_share_send_fewer_requests_where_others_already_wait() -> None:
    """A burst of prompts of their own, each replica with half of them."""
    spread = {}
    for share in (True, False):
        sent = [request([at], due=at * 0.02) for at in range(40)]
        run = routed(sent, Setup(workers=4, replicas=2, share=share, lag=0.001, poll=0.0))
        spread[share] = max(worker.served for worker in run.workers)
    assert spread[True] <= spread[False]


def test_queues_are_polled_only_where_there_are_several_replicas() -> None:
    looks: list[float] = []

    class Looking(Reference):
        def look(self, workers: object, now: float, lasting: float) -> None:
            looks.append(now)
            assert lasting == pytest.approx(0.6)

    for replicas, poll in ((1, 0.2), (2, 0.0), (2, 0.2)):
        looks.clear()
        sent = [request([at], due=at * 1.0) for at in range(4)]
        setup = Setup(workers=2, replicas=replicas, poll=poll)
        Simulation(sent, setup, lambda _: Looking(), dice(), foresight=True).run()
        assert bool(looks) is (replicas == 2 and poll > 0)
    assert 25 < len(looks) < 45


def test_a_worker_that_leaves_sends_its_queue_elsewhere() -> None:
    sent = [request([at], due=0.0001 * at, tokens=BLOCK) for at in range(40)]
    run = routed(sent, Setup(workers=4, change="leave"))
    assert [worker.alive for worker in run.workers] == [True, True, True, False]
    assert all(each.worker != "w3" for each in sent[20:])
    assert run.finished == 40


def test_one_of_two_may_leave() -> None:
    run = routed([request([at], due=at * 1.0) for at in range(6)], Setup(workers=2, change="leave"))
    assert [worker.alive for worker in run.workers] == [True, False]


def test_a_worker_that_joins_is_used() -> None:
    sent = [request([at], due=0.001 * at) for at in range(60)]
    run = routed(sent, Setup(workers=2, change="join"), "least_work")
    assert run.workers[2].served > 0


def test_a_slow_worker_is_slow() -> None:
    sent = [request([at], due=at * 1.0) for at in range(8)]
    run = routed(sent, Setup(workers=2, speeds=(1.0, 0.1)), "round_robin")
    fast, slow = run.workers
    assert slow.busy == pytest.approx(10 * fast.busy)


def test_the_same_dice_give_the_same_run() -> None:
    ends = []
    for _ in range(2):
        sent = requests([[at % 3, 10 + at] for at in range(40)])
        routed(sent, Setup(workers=3, replicas=2), "random")
        ends.append([each.done for each in sent])
    assert ends[0] == ends[1]


def test_progress_is_told_now_and_then() -> None:
    told: list[int] = []
    sent = [request([at], due=at * 0.1) for at in range(600)]
    Simulation(sent, PAIR, lambda _: Reference(), dice(), foresight=True).run(told.append)
    assert told == [250, 250]


def test_nothing_to_do_is_done_at_once() -> None:
    assert routed([], Setup(workers=1, change="join")).finished == 0
