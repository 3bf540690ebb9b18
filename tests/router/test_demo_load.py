"""The demo's load is what its description says."""

from itertools import pairwise

import pytest

from router import demo_load
from router.demo_load import Conversation, plan

SECONDS = 20.0


@pytest.fixture(scope="module")
def load() -> list[Conversation]:
    return plan(3, SECONDS)


def test_the_same_numbers_give_the_same_plan(load: list[Conversation]) -> None:
    assert plan(3, SECONDS) == load
    assert plan(3, SECONDS, seed=1) != load


def test_a_shorter_plan_is_the_beginning_of_a_longer_one(load: list[Conversation]) -> None:
    short = plan(3, SECONDS / 2)
    assert [talk.turns[0] for talk in short] == [talk.turns[0] for talk in load[: len(short)]]
    assert all(talk.turns == long.turns[: len(talk.turns)] for talk, long in zip(short, load, strict=False))


def test_conversations_begin_in_order_at_about_the_described_rate(load: list[Conversation]) -> None:
    starts = [talk.turns[0].at for talk in load]
    assert starts == sorted(starts)
    assert starts[-1] < SECONDS
    assert 0.8 < len(load) / (SECONDS * 3 * demo_load.CONVERSATIONS_A_WORKER) < 1.2


def test_every_app_is_asked_once_a_round(load: list[Conversation]) -> None:
    apps = 3 * demo_load.APPS_A_WORKER
    assert len({talk.system for talk in load[:apps]}) == apps
    assert {talk.system for talk in load[apps : 2 * apps]} == {talk.system for talk in load[:apps]}
    assert len({talk.system[:64] for talk in load}) == apps  # they differ within the first block


def test_prompts_are_as_long_as_described(load: list[Conversation]) -> None:
    low, high = (tokens * demo_load.CHARACTERS_A_TOKEN for tokens in demo_load.PROMPT_TOKENS)
    assert all(low <= len(talk.system) <= high for talk in load)
    questions = [turn.question for talk in load for turn in talk.turns]
    assert len(set(questions)) == len(questions)
    assert all(
        len(question) <= demo_load.QUESTION_TOKENS[1] * demo_load.CHARACTERS_A_TOKEN + 1 for question in questions
    )


def test_some_conversations_go_on_after_a_pause(load: list[Conversation]) -> None:
    going_on = [talk for talk in load if len(talk.turns) > 1]
    assert 0.1 < len(going_on) / len(load) < 0.4
    pauses = [later.at - turn.at for talk in going_on for turn, later in pairwise(talk.turns)]
    low, high = demo_load.THINKING_SECONDS
    assert all(low <= pause <= high for pause in pauses)


def test_the_system_prompts_fit_into_all_workers_together_but_not_into_one(load: list[Conversation]) -> None:
    room = demo_load.CACHE_BLOCKS * demo_load.BLOCK_TOKENS
    tokens = sum(len(system) for system in {talk.system for talk in load}) / demo_load.CHARACTERS_A_TOKEN
    assert room < tokens / 2
    assert tokens < 3 * room


def test_many_workers_are_not_asked_more_than_one_machine_can_bear() -> None:
    assert len(plan(16, 5.0)) < 5.0 * demo_load.MOST_CONVERSATIONS * 1.3
