"""The demo's load: who asks what and when. Pure: a plan is a function of its numbers and a seed.

A company runs two dozen *apps* (a help desk, a code reviewer, ...), each with a long system prompt of its own, and
many people talk to each of them. What that has in common with real traffic, and what decides the outcome:

* `APPS_A_WORKER` apps a worker, 24 for three. System prompts are 1,600 to 2,400 tokens long, 4 characters a token.
* Conversations begin at random moments (a Poisson process), `CONVERSATIONS_A_WORKER` a second and worker, each with a
  question of 15 to 80 tokens that nobody else asks. The apps are equally busy: of every 24 conversations each app gets
  one, in an order drawn anew. One conversation in four goes on for one to three turns, each 1 to 3 seconds after the
  last, and brings its history along. Answers have 16 to 48 tokens.
* All moments are fixed beforehand (open loop): a slow answer does not slow the askers down, unless it is so late that
  their own next turn has to wait for it.

The workers are mocks with a real LRU prefix cache of `CACHE_BLOCKS` blocks, 17,408 tokens. All system prompts together
(48,000 tokens for three workers) do not fit into one worker; a third of them, 16,000, just does. A worker prefills
`PREFILL` uncached tokens a second and decodes `DECODE` tokens a second for one sequence: of the order of an 8B model on
a current GPU. So `random`, which sends every app everywhere, keeps the workers' prefill busy two thirds to three
quarters of the time: loaded, not collapsing.

How apps take turns matters. In rounds, the LRU of a worker that sees all apps has often just dropped what comes next.
With apps drawn independently `random` hits somewhat more, and the cached share is two to three times as much with
`prefix_cost` (the number of workers is then the limit) instead of three to four times; first tokens gain the same.

Both policies get the same plan, and a shorter plan is the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

APPS_A_WORKER = 8
CONVERSATIONS_A_WORKER = 7.5
MOST_CONVERSATIONS = 40.0  # a second: more workers than this keeps busy would measure the machine, not the policies
CACHE_BLOCKS, BLOCK_TOKENS = 1088, 16
PREFILL, DECODE = 24_000, 100
CHARACTERS_A_TOKEN = 4
PROMPT_TOKENS = (1600, 2400)
QUESTION_TOKENS = (15, 80)
ANSWER_TOKENS = (16, 48)
GOES_ON, MOST_FOLLOW_UPS = 0.25, 3
THINKING_SECONDS = (1.0, 3.0)

APPS = ("Help Desk", "Code Reviewer", "Travel Planner", "Contract Reader", "Recipe Guide", "Data Analyst", "Tutor")
WORDS = """
answer ask before begin brief careful case check clear close compare customer date detail each early either
every example explain field figure follow form given help invoice keep known language later list long matter
mention model name never note number offer often only order other partner payment person place plain policy
polite price private product question quote reader reason refer reply report request result return review rule
safe second send service short show since source state step support table team tell term title today together
tone total unless until urgent use user value verify version when whether while without word work
""".split()  # noqa: SIM905 - a list of words reads better as text


@dataclass(frozen=True, slots=True)
class Turn:
    """One question, `at` seconds after the load began."""

    at: float
    question: str
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """One person's talk with one app."""

    system: str
    turns: tuple[Turn, ...]


def plan(workers: int, seconds: float, seed: int = 0) -> list[Conversation]:
    """Everything asked within `seconds`, in the order of the first questions."""
    dice = Random(seed)  # noqa: S311 - a load, no secret
    systems = [_system_prompt(at, dice) for at in range(APPS_A_WORKER * workers)]
    rate = min(CONVERSATIONS_A_WORKER * workers, MOST_CONVERSATIONS)
    conversations = []
    now = dice.expovariate(rate)
    for system in _rounds(systems, dice):
        if now >= seconds:
            break
        turns = tuple(_turns(now, dice))
        conversations.append(Conversation(system, tuple(turn for turn in turns if turn.at < seconds)))
        now += dice.expovariate(rate)
    return conversations


def _rounds(systems: Sequence[str], dice: Random) -> Iterator[str]:
    """Every app once a round, in an order drawn anew, without end."""
    while True:
        yield from dice.sample(systems, len(systems))


def _turns(at: float, dice: Random) -> Iterator[Turn]:
    more = dice.randint(1, MOST_FOLLOW_UPS) if dice.random() < GOES_ON else 0
    for _ in range(1 + more):
        yield Turn(at, f"{_text(dice.randint(*QUESTION_TOKENS), dice)}?", dice.randint(*ANSWER_TOKENS))
        at += dice.uniform(*THINKING_SECONDS)


def _system_prompt(at: int, dice: Random) -> str:
    opening = f"You are {APPS[at % len(APPS)]} {at // len(APPS) + 1}, an assistant of this company. Your rules: "
    return opening + _text(dice.randint(*PROMPT_TOKENS), dice)[len(opening) :]


def _text(tokens: int, dice: Random) -> str:
    """Words of about so many tokens."""
    length = tokens * CHARACTERS_A_TOKEN
    words = dice.choices(WORDS, k=length // 5)  # the words are longer than this with their space
    return " ".join(words)[:length]
