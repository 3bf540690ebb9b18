"""One replica of the gateway's core in a replay."""

from random import Random

import pytest

from router.replay.item import BLOCK, ROUTER_KIND, Request
from router.replay.routing import Routed
from router.replay.textual import TextLine, text_rows
from router.replay.workers import SimulatedWorker, Timing
from tests.support.replays import policy, request

WORKERS = [SimulatedWorker(f"w{at}", 100 * BLOCK, Timing(), speed) for at, speed in enumerate((1.0, 1.0, 0.5))]


def replica(name: str = "prefix_cost", **more: object) -> Routed:
    made = Routed(policy(name), Random(1), room=100 * BLOCK, **more)  # type: ignore[arg-type]
    made.members(WORKERS, 0.0)
    return made


def serve(router: Routed, sent: Request, hit: int = 0) -> str:
    worker = router.send(sent, 0.0)
    sent.hit = hit
    router.first_token(sent, 0.5)
    router.finished(sent, 1.0)
    return worker


def idle(router: Routed) -> bool:
    return all(seat.load.in_flight == seat.load.charged == 0 for seat in router.fleet.seats.values())


def test_a_prompt_goes_where_its_beginning_went() -> None:
    router = replica()
    first = serve(router, request([1, 2, 3]))
    again = request([1, 2, 3, 4])
    assert serve(router, again) == first
    assert again.reason in ("home", "warm")


def test_a_request_is_charged_until_its_first_token_and_in_flight_until_its_end() -> None:
    router, sent = replica(), request([1])
    seat = router.fleet.seats[router.send(sent, 0.0)]
    assert (seat.load.in_flight, seat.load.charged) == (1, BLOCK)
    router.first_token(sent, 0.5)
    assert (seat.load.in_flight, seat.load.charged) == (1, 0)
    router.finished(sent, 1.0)
    assert idle(router)


def test_what_is_lost_is_given_back_and_may_be_sent_again() -> None:
    router, sent = replica(), request([1])
    router.send(sent, 0.0)
    router.lost(sent, 0.1)
    assert idle(router)
    serve(router, sent)
    assert idle(router)


def test_a_worker_that_leaves_is_asked_no_more_and_one_that_joins_is() -> None:
    router = replica("round_robin")
    router.members(WORKERS[:2], 1.0)
    assert {serve(router, request([at])) for at in range(6)} == {"w0", "w1"}
    router.members(WORKERS, 2.0)
    assert {serve(router, request([at])) for at in range(6)} == {"w0", "w1", "w2"}


def test_a_policy_that_hashes_text_itself_gets_the_beginning() -> None:
    router = replica("prefix_aware")
    assert len({serve(router, request([1, 2, end])) for end in range(3, 20)}) == 1
    assert len({serve(router, request([at])) for at in range(20, 40)}) > 1


def test_what_is_sent_is_told_once_and_heard() -> None:
    teller, hearer = replica(shares=True), replica(shares=True)
    worker = serve(teller, request([1, 2, 3]))
    news = teller.news()
    assert [each.worker for each in news] == [worker]
    assert teller.news() == []
    hearer.hear("teller", news, teller.loads(1.0), 60.0)
    assert serve(hearer, request([1, 2, 3, 4])) == worker


def test_what_waits_is_told_and_counts_for_the_others_until_it_is_over() -> None:
    teller, hearer = replica(shares=True), replica(shares=True)
    sent = request([1, 2])
    worker = teller.send(sent, 0.0)
    assert teller.loads(0.0) == [(worker, 1, 2 * BLOCK)]
    hearer.hear("teller", [], teller.loads(0.0), 60.0)
    assert hearer.fleet.seats[worker].wait(0.0) == 2 * BLOCK
    assert hearer.loads(0.0) == []
    teller.first_token(sent, 0.5)
    hearer.hear("teller", [], teller.loads(0.5), 60.5)
    assert hearer.fleet.seats[worker].wait(0.5) == 0.0
    teller.finished(sent, 1.0)


@pytest.mark.parametrize(
    ("shares", "alone", "trusts"), [(False, True, False), (True, False, False), (False, False, True)]
)
def test_homes_are_trusted_by_those_of_several_that_do_not_share(shares: bool, alone: bool, trusts: bool) -> None:
    router, sent = replica(shares=shares, alone=alone), request([1, 2, 3])
    router.send(sent, 0.0)
    assert (sent.ticket[0].trust > 0) is trusts


def test_the_next_turn_of_a_conversation_is_found_beyond_its_last_rung() -> None:
    router = replica()
    serve(router, request(list(range(20))))
    sent = request(list(range(21)))
    router.send(sent, 0.0)
    (held,) = sent.ticket[0].held.values()
    depths = sent.item.prefix.depths
    assert max(depth for depth in depths if depth <= 20 * 4 * BLOCK) < held <= 20 * 4 * BLOCK


def test_one_that_does_not_share_has_no_news() -> None:
    router = replica()
    serve(router, request([1]))
    assert router.news() == []


def test_a_queue_of_others_counts_as_wait_for_a_while() -> None:
    router = replica()
    worker = SimulatedWorker("w0", 100 * BLOCK, Timing())
    for at in range(5):
        worker.enqueue(request([at]))
    router.look([worker], 1.0, 0.6)
    wait = router.fleet.seats["w0"].wait
    assert wait(1.5) > 0
    assert wait(1.7) == 0


@pytest.mark.parametrize("told", [False, True])
def test_speeds_are_weights_only_where_told(told: bool) -> None:
    seats = replica(told=told).fleet.seats
    assert seats["w2"].weight == (0.5 if told else 1.0)


@pytest.mark.parametrize("usage", [False, True])
def test_the_length_of_a_token_is_learnt_from_usage(usage: bool) -> None:
    router = replica(usage=usage)
    prompt = "x = y[0] + 1; " * 200
    for _ in range(5):
        (row,) = text_rows([TextLine(0, prompt)])
        serve(router, Request(row.item(), 0.0))
    ratio = router.mind.lengths.bytes_a_token(ROUTER_KIND)
    assert (ratio < 2.5) is usage
    last = Request(row.item(), 0.0)
    worker = router.send(last, 2.0)
    charged = router.fleet.seats[worker].load.charged
    assert charged > 0


def test_without_a_worker_there_is_no_choice() -> None:
    router = replica()
    router.members([], 0.0)
    with pytest.raises(LookupError):
        router.send(request([1]), 0.0)


def test_what_another_replica_tells_of_its_load_counts_until_it_tells_otherwise() -> None:
    router = replica(shares=True, alone=False)

    def waits() -> list[float]:
        return [seat.load.wait(1.0) for seat in router.fleet.seats.values()]

    router.hear("replica 7", [], [("w0", 2, 900.0), ("unknown", 1, 5.0)], until=9.0)
    router.hear("replica 8", [], [("w0", 1, 100.0)], until=9.0)
    assert waits() == [1000.0, 0.0, 0.0]
    router.hear("replica 7", [], [("w1", 1, 50.0)], until=9.0)
    assert waits() == [100.0, 50.0, 0.0]
    router.hear("replica 7", [], [], until=9.0)
    assert waits() == [100.0, 0.0, 0.0]


def test_a_small_table_forgets() -> None:
    small, large = replica(table=200), replica(table=100_000)
    for router in (small, large):
        for at in range(20):
            serve(router, request([1000 + 10 * at + block for block in range(10)]))
        serve(router, early := request([1000 + block for block in range(10)]))
        assert (early.reason == "cold") is (router is small)
