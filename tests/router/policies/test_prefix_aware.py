"""Amazon SageMaker's prefix-aware routing, by its two knobs."""

import pytest

from router.contracts import Ask, Policy, PolicyTools, Ranked
from router.policies.prefix_aware import Options, build
from router.types import Reason
from tests.support.fleets import Look, ask_of, chat, named, prompt_of, ring_of

RING = ring_of(named(8))


def policy(**options: int) -> Policy:
    return build(Options(**options), PolicyTools(RING, None))


def order(ask: Ask, looks: list[Look] | None = None, **options: int) -> list[Ranked]:
    return list(policy(**options).order(ask, looks or [Look(name) for name in named(8)], 0.0))


def asked(text: str) -> Ask:
    return ask_of(prompt_of(chat(text)).text)


def home(ask: Ask, **options: int) -> str:
    return order(ask, **options)[0].worker


def test_prompts_that_share_the_first_characters_share_a_worker() -> None:
    head = "h" * 2000
    assert len({home(asked(head + f"{at}" * 50), prefix_length=1024) for at in range(20)}) == 1
    assert len({home(asked(head + f"{at}" * 50), prefix_length=4096) for at in range(20)}) > 1


def test_the_length_counts_characters_and_not_bytes() -> None:
    head = "é" * 1500
    assert len({home(asked(head + f"{at}" * 50), prefix_length=1024) for at in range(20)}) == 1
    assert len({home(asked("é" * 900 + f"{at:03}" * 50), prefix_length=1024) for at in range(20)}) > 1


def test_short_prompts_are_told_apart_to_their_last_character() -> None:
    """Shorter than the prefix length, all of a prompt decides."""
    assert len({home(asked(f"What is the answer to question {letter}")) for letter in "abcdefghijklmnop"}) > 3


def test_of_a_long_conversation_the_last_turn_still_counts() -> None:
    said = [f"turn {at}" for at in range(20)]
    homes = {home(ask_of(prompt_of(chat(*said, f"{at:02}")).text)) for at in range(30)}
    assert len(homes) > 3


def test_a_native_call_is_keyed_by_the_bytes_of_its_body() -> None:
    def native(body: bytes) -> Ask:
        return ask_of(b"", native=True, body=body)

    head = b'{"inputs": "' + b"x" * 1500
    assert len({home(native(head + bytes([65 + at]) * 9), prefix_length=1024) for at in range(20)}) == 1
    assert len({home(native(bytes([65 + at]) * 500)) for at in range(20)}) > 3


def test_a_full_home_spills_to_the_least_loaded() -> None:
    ask = asked("hello" * 300)
    first = home(ask)
    looks = [Look(name, in_flight=64 if name == first else 9) for name in named(8)]
    idle = next(look for look in looks if look.id != first)
    idle.load.in_flight = 2
    ranked = order(ask, looks)
    assert (ranked[0].worker, ranked[0].reason) == (idle.id, Reason.SPILL)
    assert ranked[-1].worker == first


def test_one_below_the_threshold_is_not_full() -> None:
    ask = asked("hello" * 300)
    first = home(ask)
    looks = [Look(name, in_flight=63 if name == first else 0) for name in named(8)]
    ranked = order(ask, looks)[0]
    assert (ranked.worker, ranked.reason, ranked.expected, ranked.cost) == (first, Reason.HOME, 0.0, 63.0)
    assert order(ask, looks, concurrency_threshold=63)[0].worker != first


def test_after_the_home_the_least_loaded_follows() -> None:
    ask = asked("hello" * 300)
    looks = [Look(name, in_flight=8 - at) for at, name in enumerate(named(8))]
    rest = [each.worker for each in order(ask, looks)[1:]]
    assert rest == [name for name in reversed(named(8)) if name != home(ask)]


@pytest.mark.parametrize("seed", range(3))
def test_another_model_or_tenant_is_another_key(seed: int) -> None:
    text = prompt_of(chat("hello" * 300)).text
    homes = {home(ask_of(text, seed * 100 + at)) for at in range(20)}
    assert len(homes) > 3
