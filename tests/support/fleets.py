"""Fleets, candidates and a mind to play with, by hand and without a network."""

import json
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from router.address import Address
from router.contracts import Ask, PolicyTools
from router.core.choose import Choice
from router.core.fingerprint import fingerprint
from router.core.fleet import Fleet, Seat
from router.core.health import Signal, Thresholds
from router.core.holders import Holders
from router.core.ladder import Ladder
from router.core.load import Lease
from router.core.mind import Caller, Mind
from router.core.ring import Ring
from router.dialects.openai import CHAT, OpenAI
from router.events import WorkerChanged
from router.plugins import build_policy
from router.prompt import Prompt
from router.types import Key, Worker


def named(count: int) -> list[str]:
    return [f"w{at}" for at in range(count)]


def worker(name: str, **fields: Any) -> Worker:
    return Worker(id=name, address=Address("http", name, 8000, ""), **fields)


def ready(fleet: Fleet, *seats: Seat, now: float = 0.0) -> None:
    """One good probe for these seats, or for all."""
    for seat in seats or tuple(fleet.seats.values()):
        fleet.feed(seat, Signal.PROBE_OK, now)


def down(fleet: Fleet, seat: Seat, now: float = 0.0) -> None:
    """As many failed probes as it takes."""
    for _ in range(fleet.limits.unhealthy_after):
        fleet.feed(seat, Signal.PROBE_FAILED, now)


def drain(fleet: Fleet, seat: Seat, now: float = 0.0) -> WorkerChanged | None:
    return fleet.feed(seat, Signal.DRAIN, now)


def undrain(fleet: Fleet, seat: Seat, now: float = 0.0) -> WorkerChanged | None:
    return fleet.feed(seat, Signal.UNDRAIN, now)


def fleet_of(workers: Iterable[str | Worker] | int, limits: Thresholds | None = None) -> Fleet:
    """A fleet whose workers are all ready."""
    if isinstance(workers, int):
        workers = named(workers)
    fleet = Fleet(limits)
    fleet.reconcile([worker(each) if isinstance(each, str) else each for each in workers])
    ready(fleet)
    return fleet


class Burden:
    def __init__(self, in_flight: int, traffic: float, elsewhere: int = 0, pace: float | None = None) -> None:
        self.in_flight = in_flight
        self.traffic = traffic
        self.elsewhere = elsewhere
        self.pace = pace


class Look:
    """A candidate that is nothing but its numbers. It is as fast as its weight says, unless told otherwise."""

    def __init__(
        self,
        name: str,
        *,
        weight: float = 1.0,
        speed: float | None = None,
        in_flight: int = 0,
        elsewhere: int = 0,
        traffic: float = 0.0,
        waiting: float = 0.0,
        pace: float | None = None,
    ) -> None:
        self.id = name
        self.weight = weight
        self.speed = weight if speed is None else speed
        self.load = Burden(in_flight, traffic, elsewhere, pace)
        self.waiting = waiting

    def __repr__(self) -> str:
        return f"<Look {self.id} waits {self.waiting}, {self.load.in_flight} in flight>"

    def wait(self, now: float, /) -> float:
        return self.waiting


def ring_of(names: Iterable[str] | Mapping[str, float]) -> Ring:
    ring = Ring()
    ring.place(names if isinstance(names, Mapping) else dict.fromkeys(names, 1.0))
    return ring


def ask_of(
    text: bytes, seed: int = 0, *, held: Mapping[str, int] | None = None, hot_depth: int = 0, **more: Any
) -> Ask:
    """What a policy is asked for this canonical text; its key is the first rung that is not hot."""
    prefix = fingerprint(text, seed)
    if not text:
        key = Key(0, 0, 0)
    elif not prefix.hashes:
        key = Key(prefix.whole, 0, 0)
    else:
        cool = (at for at, depth in enumerate(prefix.depths) if depth > hot_depth)
        at = next(cool, len(prefix.depths) - 1)
        key = Key(prefix.hashes[at], prefix.depths[at], hot_depth)
    return Ask(prefix, key, held or {}, seed, text, **more)


def chat(*turns: str, system: str | None = None, **fields: Any) -> bytes:
    """An OpenAI chat: user and assistant take turns."""
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages += [{"role": ("user", "assistant")[at % 2], "content": turn} for at, turn in enumerate(turns)]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def caller(tenant: str | None = None, session: str | None = None, prefix_id: str | None = None) -> Caller:
    made = Caller()
    made.tenant, made.session, made.prefix_id = tenant, session, prefix_id
    return made


def prompt_of(body: bytes, path: str = CHAT) -> Prompt:
    return OpenAI().read(path, body)


class Stage:
    """A mind over a fleet of ready workers, with a clock that is set by hand."""

    def __init__(
        self,
        workers: Iterable[str | Worker] | int = 8,
        policy: str = "prefix_cost",
        *,
        options: Mapping[str, Any] | None = None,
        ladder: Ladder | None = None,
        holders: Holders | None = None,
        alone: bool = True,
    ) -> None:
        self.now = 0.0
        self.fleet = fleet_of(workers)
        built = build_policy(policy, options or {}, PolicyTools(self.fleet.ring, Random(7)))
        self.mind = Mind(self.fleet, built, ladder, holders, alone=alone)

    def weigh(self, what: bytes | Prompt, who: Caller | None = None, *, count: bool = True) -> Ask:
        prompt = what if isinstance(what, Prompt) else prompt_of(what)
        return self.mind.weigh(prompt, who or Caller(), count=count)

    def look(self, what: bytes | Prompt, who: Caller | None = None) -> str | None:
        """Where it would go, without sending it."""
        choice = self.mind.choose(self.weigh(what, who, count=False), None, (), self.now)
        return choice.seat.id if choice else None

    def send(self, what: bytes | Prompt, who: Caller | None = None) -> tuple[Choice, Lease]:
        """Route it and leave it running."""
        ask = self.weigh(what, who)
        choice = self.mind.choose(ask, None, (), self.now)
        assert choice is not None
        return choice, self.mind.commit(ask, choice, self.now, streaming=True)

    def serve(self, what: bytes | Prompt, who: Caller | None = None, seconds: float = 1.0) -> Choice:
        """Route it and wait until it is over."""
        choice, lease = self.send(what, who)
        self.now += seconds
        lease.first_token(self.now)
        lease.release()
        return choice
