"""The worker with the fewest prefill tokens waiting."""

from router.contracts import PolicyTools
from router.policies.least_work import Options, build
from tests.support.fleets import Look, Stage, ask_of, chat, ring_of

POLICY = build(Options(), PolicyTools(ring_of([]), None))


def test_the_fewest_waiting_tokens_come_first_whatever_the_prompt() -> None:
    looks = [Look("a", waiting=3), Look("b", waiting=1, in_flight=50), Look("c", waiting=2)]
    for text in (b"", b"x" * 1000):
        assert [each.worker for each in POLICY.order(ask_of(text), looks, 0.0)] == ["b", "c", "a"]


def test_one_long_prompt_weighs_as_much_as_many_short_ones() -> None:
    stage = Stage(2, "least_work")
    stage.send(chat("x" * 8000))
    got = [stage.send(chat(f"{at}" + "y" * 700))[0].seat.id for at in range(8)]
    assert set(got) == {"w1"}
