"""What the real engines are asked, and in which order. Pure: a load is a function of its numbers and a seed.

Two cases, after the two that Amazon published for SageMaker's prefix-aware routing (a 70B model on seven instances,
against random routing: an 8,000-token prefix shared by many requests, and short chats of several turns), scaled down
to two small engines on two cores.

`shared`: six apps, each with a long prefix of its own (700 to 900 tokens: a list of rules), and many short
questions with short answers. What decides such an experiment is kept in proportion, what only costs time is smaller:

* The engines' caches hold about half of the apps each: all do not fit into one, half of them do. That is the published
  situation: random routing hit 25% of the prompt tokens, prefix-aware routing 82%.
* The apps are equally busy: each is asked once a round, in an order drawn anew. With two engines instead of seven, apps
  drawn independently would give random routing every second prefix from the cache (48%, by a simulation of LRU); in
  rounds it is every third (31%), nearer to the published 25%. So the gain shown is that of a cache too small for
  everything, which is the situation in question; with caches for everything there is little to gain in the long run.
* A closed loop: a fixed number of users, two an engine, each sends the next request of one list as soon as the last is
  answered. An open loop near the capacity of random routing could show any gain one likes; here the slower policy is
  simply asked more slowly, and the output tokens a second say what that costs. All policies get the same list; which
  user takes which request, and when, follows from how fast the answers come.
* Every answer has the same number of tokens (the end of the text is ignored), so every policy yields the same work.
* Nothing is left out of the figures, not even the first round, when every cache is empty: with 15 requests a prefix
  that alone is 7% of the prompt tokens.

`chats`: conversations of four turns over a short system text that all share; each turn brings its history along. There
is little to gain but the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

NOUNS = ("order", "invoice", "refund", "parcel", "account", "contract", "address", "discount", "complaint", "deadline")
ACTS = ("Check", "Confirm", "Explain", "Record", "Forward", "Translate", "Postpone", "Compare", "Summarise", "Escalate")
WHEN = ("the customer asks twice", "a date is missing", "more than 30 days have passed", "the amount is above $250",
        "nobody answered on Monday", "two records disagree", "the tone is angry", "it concerns a minor")  # fmt: skip
THEN = ("never guess a number", "quote section {n}.4", "keep it below 40 words", "ask for the e-mail address first",
        "mention the help page", "wait for an approval", "say which rule applies", "offer a call back")  # fmt: skip
APPS = ("travel agency", "book shop", "power company", "dental clinic", "bank", "garden centre", "airport", "library")


@dataclass(frozen=True, slots=True)
class Case:
    """The numbers of one load; texts are in characters, of which there are about 3.7 a token here.

    prefixes: how many system texts; prefix: their lengths, from and to
    talks: how many conversations in all; turns: questions in each
    users: how many ask at the same time
    cache_tokens: what one engine's cache should hold for the case to be what it is meant to be
    """

    prefixes: int
    prefix: tuple[int, int]
    talks: int
    turns: int
    answer_tokens: int
    users: int
    cache_tokens: int


CASES = {
    "shared": Case(prefixes=6, prefix=(2200, 3400), talks=90, turns=1, answer_tokens=24, users=4, cache_tokens=3100),
    "chats": Case(prefixes=1, prefix=(300, 300), talks=24, turns=4, answer_tokens=24, users=4, cache_tokens=4000),
}
SMALL = replace(CASES["shared"], prefixes=4, prefix=(1000, 1300), talks=40, answer_tokens=8, users=4, cache_tokens=850)


@dataclass(frozen=True, slots=True)
class Talk:
    system: str
    questions: tuple[str, ...]


def talks(case: Case, seed: int, mark: str = "") -> list[Talk]:
    """Everything that is asked. `mark` begins every prompt: with another one no cache of an earlier run helps."""
    dice = Random(seed)
    systems = [mark + system_text(at, dice.randint(*case.prefix), dice) for at in range(case.prefixes)]
    rounds = _rounds(systems, dice)
    return [
        Talk(next(rounds), tuple(question(at, turn, dice) for turn in range(case.turns))) for at in range(case.talks)
    ]


def _rounds(systems: list[str], dice: Random) -> Iterator[str]:
    """Every system text once a round, in an order drawn anew, without end."""
    while True:
        yield from dice.sample(systems, len(systems))


def system_text(at: int, length: int, dice: Random) -> str:
    text = f"You are assistant {at + 1} of a {APPS[at % len(APPS)]}. Follow these rules."
    number = 0
    while len(text) < length:
        number += 1
        then = dice.choice(THEN).format(n=number)
        text += f"\n{number}. {dice.choice(ACTS)} the {dice.choice(NOUNS)} when {dice.choice(WHEN)}; {then}."
    return text[:length]


def question(talk: int, turn: int, dice: Random) -> str:
    """Some 15 tokens that nobody else asks."""
    return f"What about the {dice.choice(NOUNS)} of {dice.randint(2, 28)} May (case {talk}-{turn})?"
