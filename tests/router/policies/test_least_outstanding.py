"""The worker with the fewest requests in flight."""

from router.contracts import PolicyTools
from router.policies.least_outstanding import Options, build
from tests.support.fleets import Look, Stage, ask_of, ring_of

POLICY = build(Options(), PolicyTools(ring_of([]), None))


def test_the_fewest_requests_come_first_whatever_the_prompt() -> None:
    looks = [Look("a", in_flight=3), Look("b", in_flight=1, waiting=1e6), Look("c", in_flight=2)]
    for text in (b"", b"x" * 1000):
        assert [each.worker for each in POLICY.order(ask_of(text), looks, 0.0)] == ["b", "c", "a"]


def test_requests_at_once_are_shared_out_evenly() -> None:
    stage = Stage(4, "least_outstanding")
    for at in range(12):
        stage.send(f'{{"messages": [{{"role": "user", "content": "{at}"}}]}}'.encode())
    assert {seat.load.in_flight for seat in stage.fleet.seats.values()} == {3}


def test_a_worker_that_serves_quickly_does_not_get_everything_while_idle() -> None:
    """Ties fall to the one that got less recently."""
    stage = Stage(4, "least_outstanding")
    got = [stage.serve(b'{"messages": [{"role": "user", "content": "hello"}]}').seat.id for _ in range(8)]
    assert sorted(got) == ["w0", "w0", "w1", "w1", "w2", "w2", "w3", "w3"]
