"""Many rows in one pass: every text is the one that its request would get alone, token for token."""

from dataclasses import replace
from functools import cache
from math import ceil
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contract import Chat, Turn
from backends.medusa.batch import Batch, Settings
from backends.medusa.costs import Curve
from backends.medusa.decoding import Request
from backends.medusa.drafting import Drafter
from backends.medusa.model import Llama
from backends.medusa.reach import LARGEST_FLOOR, SMALLEST_FLOOR
from backends.medusa.sampling import Nucleus, Typical, distribution
from backends.medusa.switch import trial
from backends.medusa.tree import Tree
from backends.medusa.vocabulary import Vocabulary
from tests.support.batches import TREE, WHOLE, Clock, batch_of, expected, llama, play, pool, texts
from tests.support.drafters import Seer, untrained
from tests.support.llamas import tiny_llama
from tests.support.plain_decoding import computed, greedy, margin, shortfall

CHAIN = Tree([(0,), (0, 0), (0, 0, 0)])
CLOSE = 1e-4


def drafter_of(kind: str, chance: Random) -> Drafter | Seer | None:
    if kind == "none":
        return None
    if kind.startswith("seer"):
        return Seer(TREE, texts(), float(kind.removeprefix("seer ")), chance)
    return untrained(kind, llama(), TREE, seed=chance.randrange(99))


settings_of_any = st.builds(
    Settings,
    prefill_tokens=st.sampled_from([1, 7, 128]),
    most_nodes=st.sampled_from([0, 1, 5, 64]),
    look=st.booleans(),
    always=st.booleans(),
    whole=st.booleans(),
)


@pytest.mark.parametrize("kind", ["none", "medusa", "hydra", "seer 0.0", "seer 0.7", "seer 1.0"])
@pytest.mark.parametrize("rows", [1, 2, 4, 8, 16])
@given(seed=st.integers(0, 2**32), chosen=settings_of_any)
@settings(max_examples=4)
def test_the_text_is_plain_decodings_whatever_is_guessed_and_whoever_joins_or_leaves(
    kind: str, rows: int, seed: int, chosen: Settings
) -> None:
    chance = Random(seed)
    requests = chance.sample(pool(), min(len(pool()), 2 + rows))
    batch = batch_of(drafter_of(kind, chance), chosen, rows=rows)
    played = play(batch, requests, chance, rows, leaving=0.03)
    for place, request in enumerate(requests):
        text = played.outputs[place]
        if place in played.left:
            assert text == expected(request)[: len(text)]
        else:
            assert text == expected(request)
    assert sorted(batch.slab.take() for _ in range(rows)) == list(range(rows))


@pytest.mark.parametrize("rows", [1, 3])
def test_heads_that_are_always_right_yield_their_depth_and_one_more_token_a_step(rows: int) -> None:
    batch = batch_of(Seer(CHAIN, texts()), replace(WHOLE, look=False))
    requests = [replace(request, most_tokens=26, ends=()) for request in pool()[:rows]]
    for request in requests:
        batch.join(request)
    began = batch.step()
    steps = 0
    while not all(row.finished for row in batch.rows):
        assert {len(progress.tokens) for progress in batch.step()} <= {4, 1}
        steps += 1
    assert [progress.tokens for progress in began] == [expected(request)[:1] for request in requests]
    assert steps == ceil(25 / 4)
    assert [row.output for row in batch.rows] == [expected(request) for request in requests]
    assert (batch.tally.tokens[rows], batch.tally.steps[rows]) == (25 * rows, steps)


def test_after_any_step_the_past_at_a_seat_and_the_states_that_heads_see_are_the_texts_own() -> None:
    batch = batch_of(Seer(TREE, texts(), 0.7), replace(WHOLE, prefill_tokens=16))
    for request in pool()[4:12]:
        batch.join(request)
    for _ in range(12):
        batch.step()
        for row in [row for row in batch.rows if row.length]:
            plain = computed(batch.model, row.ids)
            torch.testing.assert_close(batch.slab.slice(row.seat, 0, row.length), plain.kept, atol=1e-5, rtol=1e-5)
            if row.output and row.finished is None:
                torch.testing.assert_close(row.states, plain.states[-1], atol=CLOSE, rtol=1e-5)
            assert len(row.ids) == row.length


@pytest.mark.parametrize("drafted", [False, True])
def test_log_probabilities_are_those_of_a_plain_pass(drafted: bool) -> None:
    batch = batch_of(Seer(TREE, texts(), 0.8) if drafted else None, WHOLE)
    requests = [replace(request, logprobs=3) for request in pool()[8:14]]
    played = play(batch, requests, Random(2), 4)
    for place, request in enumerate(requests):
        text = played.outputs[place]
        told = [each for progress in played.reports[place] for each in progress.logprobs]
        plain = computed(llama(), [*request.prompt, *text]).logits.log_softmax(-1)[len(request.prompt) - 1 : -1]
        assert [each.token for each in told] == text
        assert [each.logprob for each in told] == pytest.approx(
            [float(plain[i, t]) for i, t in enumerate(text)], abs=CLOSE
        )
        for each, row in zip(told, plain, strict=True):
            assert [value for _, value in each.top] == pytest.approx(row.topk(3).values.tolist(), abs=CLOSE)


def test_who_does_not_ask_for_log_probabilities_gets_none() -> None:
    batch = batch_of()
    batch.join(pool()[3])
    assert [progress.logprobs for _ in range(4) for progress in batch.step()] == [[], [], [], []]


def sampled(batch: Batch, requests: list[Request], most_rows: int = 8) -> list[list[int]]:
    outputs = play(batch, requests, Random(1), most_rows).outputs
    return [outputs[place] for place in range(len(requests))]


def test_the_same_seed_gives_the_same_text_with_and_without_drafting_and_company() -> None:
    def requests() -> list[Request]:
        return [replace(request, sampler=Nucleus(3.0, 0.95, seed)) for seed, request in enumerate(pool())]

    alone = sampled(batch_of(None, Settings(look=False)), requests(), most_rows=1)
    known = {tuple(request.prompt): text for request, text in zip(pool(), alone, strict=True)}
    assert alone != [expected(request) for request in pool()]
    for drafter in (Seer(TREE, texts(), 0.5), Seer(TREE, known, 1.0), untrained("hydra", llama(), TREE)):
        assert sampled(batch_of(drafter, WHOLE), requests()) == alone


def pairs(draws: int, sampler: type[Nucleus]) -> tuple[list[tuple[int, int]], dict[tuple[int, int], float]]:
    """Second and third tokens of drafted answers from a vocabulary of six, and how probable each pair is."""
    model, prompt, temperature, top_p = tiny_llama(vocabulary=6, seed=3), [1, 4, 2], 12.0, 0.97
    batch = batch_of(Seer(TREE, {tuple(prompt): greedy(model, prompt, 8)}, 0.9, vocabulary=6), WHOLE, model)
    requests = [
        Request(prompt=prompt, most_tokens=4, sampler=sampler(temperature, top_p, seed)) for seed in range(draws)
    ]
    outputs = sampled(batch, requests, 16)
    assert sum(batch.tally.right.values()) > draws / 10

    def after(*text: int) -> list[float]:
        chances: list[float] = distribution(computed(model, [*prompt, *text]).logits[-1], temperature, top_p).tolist()
        return chances

    first, second = after(), [after(one) for one in range(6)]
    third = {(one, two): after(one, two) for one in range(6) for two in range(6)}
    chances = {
        (two, three): sum(first[one] * second[one][two] * third[one, two][three] for one in range(6))
        for two in range(6)
        for three in range(6)
    }
    return [(text[1], text[2]) for text in outputs], chances


def strangeness(drawn: list[tuple[int, int]], chances: dict[tuple[int, int], float]) -> float:
    """Chi-square in standard deviations from what is to be expected."""
    common = {pair: chance * len(drawn) for pair, chance in chances.items() if chance * len(drawn) >= 5}
    statistic = sum((drawn.count(pair) - times) ** 2 / times for pair, times in common.items())
    degrees = len(common) - 1
    return (statistic - degrees) / (2 * degrees) ** 0.5


def test_sampling_with_guesses_draws_from_the_models_own_distribution() -> None:
    drawn, chances = pairs(1200, Nucleus)
    assert sum(chance > 0.01 for chance in chances.values()) > 10
    assert strangeness(drawn, chances) < 3.5
    assert all(chances[pair] > 0 for pair in set(drawn))


def test_typical_acceptance_does_not_and_has_to_be_asked_for() -> None:
    drawn, chances = pairs(400, Typical)
    assert strangeness(drawn, chances) > 10
    assert Request(prompt=[1], most_tokens=1).sampler is None


def test_every_decoding_row_gets_a_token_while_a_long_prompt_is_computed_in_parts() -> None:
    batch = batch_of(None, Settings(prefill_tokens=4))
    quick = batch.join(Request(prompt=[1, 2], most_tokens=20))
    batch.step()
    slow = batch.join(Request(prompt=list(range(30)), most_tokens=2))
    for part in range(8):
        progress = batch.step()
        assert [each.row for each in progress] == [quick, slow][: 1 + (part == 7)]
        assert slow.length == min(30, 4 * (part + 1))
    assert progress[1].began


def test_prompts_are_computed_first_come_first_served() -> None:
    batch = batch_of(None, Settings(prefill_tokens=10))
    rows = [batch.join(Request(prompt=[1] * 8, most_tokens=2)) for _ in range(3)]
    lengths = []
    for _ in range(3):
        batch.step()
        lengths.append([min(row.length, 8) for row in rows])
    assert lengths == [[8, 2, 0], [8, 8, 4], [8, 8, 8]]


def test_a_step_without_rows_or_with_finished_ones_only_does_nothing() -> None:
    batch = batch_of()
    assert batch.step() == []
    row = batch.join(Request(prompt=[1, 2], most_tokens=1))
    assert [progress.tokens for progress in batch.step()] == [row.output]
    assert batch.step() == []
    assert (row.length, row.finished) == (2, "length")


@pytest.mark.parametrize("steps", [0, 1, 3, 5, 40], ids=["new", "prefilling", "begun", "decoding", "finished"])
def test_a_row_that_leaves_gives_its_seat_back_whatever_it_was_doing(steps: int) -> None:
    batch = batch_of(Seer(TREE, texts()), Settings(prefill_tokens=24), rows=1)
    request = max(pool(), key=lambda request: (len(request.prompt), request.most_tokens))
    row = batch.join(request)
    for _ in range(steps):
        batch.step()
    assert batch.slab.seats == 0
    with pytest.raises(IndexError):
        batch.join(request)
    batch.leave(row)
    with pytest.raises(ValueError, match="not in list"):
        batch.leave(row)
    assert (batch.slab.seats, batch.rows) == (1, [])
    assert play(batch, [request], Random(0), 1).outputs[0] == expected(request)


@pytest.mark.parametrize(
    ("prompt", "most_tokens", "computed_tokens", "says"),
    [
        (80, 17, 0, "longer than 96 tokens"),
        (0, 5, 0, "at least one token"),
        (5, 0, 0, "at least one token"),
        (5, 5, 5, "at least one token"),
    ],
)
def test_what_does_not_fit_is_refused_and_no_seat_is_taken(
    prompt: int, most_tokens: int, computed_tokens: int, says: str
) -> None:
    batch = batch_of()
    with pytest.raises(ValueError, match=says):
        batch.join(Request(prompt=[1] * prompt, most_tokens=most_tokens), computed_tokens)
    assert (batch.slab.seats, batch.rows) == (16, [])


def test_the_models_context_is_a_limit_too() -> None:
    batch = batch_of(length=500)
    with pytest.raises(ValueError, match="longer than 256 tokens"):
        batch.join(Request(prompt=[1] * 200, most_tokens=57))
    batch.join(Request(prompt=[1] * 200, most_tokens=56))


def test_the_longest_text_fits_its_seat_with_all_its_nodes_and_leaves_the_neighbours_alone() -> None:
    batch = batch_of(Seer(TREE, {}, 0.0), replace(WHOLE, most_nodes=11), rows=2, length=60)
    long = Request(prompt=list(range(20)), most_tokens=29)
    batch.drafter = Seer(TREE, {tuple(long.prompt): greedy(llama(), long.prompt, 29)}, 0.8)  # type: ignore[assignment]
    batch.drafter.rows = lambda: [row for row in batch.rows if not row.prefilling and row.finished is None]
    outputs = play(batch, [long, long], Random(0), 2).outputs
    assert outputs[0] == outputs[1] == greedy(llama(), long.prompt, 29)


def test_a_beginning_that_is_computed_already_is_not_computed_again() -> None:
    batch = batch_of(Seer(TREE, texts(), 0.8), WHOLE)
    request = max(pool(), key=lambda request: len(request.prompt))
    first = batch.join(request)
    batch.step()
    seat = batch.slab.take()
    batch.slab.slice(seat, 0, 40).copy_(batch.slab.slice(first.seat, 0, 40))
    second = batch.join(request, 40, seat)
    assert second.prefill(100).tokens == request.prompt[40:]
    while not (first.finished and second.finished):
        batch.step()
    assert first.output == second.output == expected(request)


def test_drafting_that_does_not_pay_is_switched_off_after_a_trial() -> None:
    clock = Clock()

    def works() -> None:
        clock.now += 1.0

    for always, drafts in ((False, trial(1)), (True, 60)):
        seer = Seer(CHAIN, {(1, 2): [0] * 99}, 0.0, works=works)
        batch = batch_of(seer, Settings(look=False, always=always), clock=clock)
        batch.join(Request(prompt=[1, 2], most_tokens=90))
        for _ in range(61):
            batch.step()
        assert batch.tally.drafts[1] == len(seer.floors) == drafts


def test_drafting_that_pays_stays_on_and_is_counted() -> None:
    seer = Seer(CHAIN, texts())
    batch = batch_of(seer, Settings(look=False))
    request = replace(pool()[4], most_tokens=26, ends=())
    batch.join(request)
    while batch.rows[0].finished is None:
        batch.step()
    assert batch.switch.gain(1) > 2
    assert batch.tally.right == batch.tally.tried
    assert batch.tally.drafts[1] == len(seer.floors) == batch.tally.steps[1]


def test_the_next_draft_stops_where_this_ones_nodes_were_no_longer_worth_their_time() -> None:
    floors = {}
    for name, seconds in (("free", 1.0), ("dear", 64.0)):
        seer = Seer(CHAIN, texts())
        batch = batch_of(seer, Settings(look=False, always=True), curve=Curve((1, 64), (1.0, seconds)))
        batch.join(replace(pool()[4], most_tokens=26, ends=()))
        for _ in range(4):
            batch.step()
        floors[name] = seer.floors
    assert floors["free"][0] == floors["dear"][0] == SMALLEST_FLOOR
    assert 0.2 < floors["free"][1] < 0.3  # half of 0.8 ** 3
    assert floors["dear"][1] == LARGEST_FLOOR


# The real model.

TOPICS = ["the sea", "a cache", "rain", "bread", "prime numbers", "a library", "iron", "tea", "maps", "bees", "time",
          "ladders", "salt", "queues", "the moon", "glass"]  # fmt: skip


@cache
def asked(vocabulary: Vocabulary, count: int) -> list[Request]:
    prompts = [vocabulary.chat(Chat([Turn("user", f"Tell me about {topic}.")])) for topic in TOPICS[:count]]
    return [Request(prompt=prompt, most_tokens=24, ends={vocabulary.end}) for prompt in prompts]


@pytest.fixture(scope="module")
def plain(model: Llama, vocabulary: Vocabulary) -> dict[tuple[int, ...], list[int]]:
    """What the model says to each prompt, one token a step."""
    batch = batch_of(None, Settings(look=False), model)
    requests = asked(vocabulary, 16)
    with torch.no_grad():
        outputs = play(batch, requests, Random(0), 8).outputs
    return {tuple(request.prompt): outputs[place] for place, request in enumerate(requests)}


def test_smollm2s_plain_texts_are_its_likeliest_tokens(
    model: Llama, vocabulary: Vocabulary, plain: dict[tuple[int, ...], list[int]]
) -> None:
    for request in asked(vocabulary, 16)[:4]:
        assert shortfall(model, request.prompt, plain[tuple(request.prompt)]) < CLOSE


@pytest.mark.parametrize(("rows", "requests"), [(1, 3), (4, 8), (16, 16)])
def test_smollm2s_texts_are_the_same_with_guesses_and_company(
    model: Llama, vocabulary: Vocabulary, plain: dict[tuple[int, ...], list[int]], rows: int, requests: int
) -> None:
    """But for a tie: where a text parts from the plain one, two logits are all but equal."""
    seer = Seer(TREE, plain, 0.7)
    batch = batch_of(seer, replace(WHOLE, prefill_tokens=64), model)
    wanted = asked(vocabulary, 16)[:requests]
    outputs = play(batch, wanted, Random(rows), rows).outputs
    for place, request in enumerate(wanted):
        text = plain[tuple(request.prompt)]
        assert margin(model, request.prompt, text, outputs[place]) < CLOSE
    assert sum(batch.tally.right.values()) > len(wanted)
