"""A fleet to which everything happens that can happen to one, drawn at random, and asks to choose for."""

from collections.abc import Mapping
from random import Random
from typing import Any

from router.contracts import Ask, PolicyTools
from router.core.fleet import Fleet
from router.core.health import Signal
from router.core.load import Lease
from router.core.mind import Mind
from router.core.slo import Slo
from router.plugins import build_policy
from router.types import Worker
from tests.support.fleets import ask_of, fleet_of, worker

WORDS = b"\xffTuser\xfe" + b"tell me of it. " * 400
DEPTHS = (64, 256, 512, 1024, 2048, 3840)


class Churn:
    """All tokens are whole quarters, so that sums are the same in any order. `even`: weights and paces are alike."""

    def __init__(self, dice: Random, workers: int, *, even: bool) -> None:
        self.dice, self.even, self.now = dice, even, 0.0
        self.workers = [self._worker(f"w{at:03}") for at in range(workers)]
        self.fleet: Fleet = fleet_of(self.workers)
        self.mind = Mind(self.fleet, build_policy("prefix_cost", {}, PolicyTools(self.fleet.ring, dice, Slo())))
        self.leases: list[Lease] = []

    def _worker(self, name: str) -> Worker:
        dice = self.dice
        weight = 1.0 if self.even else dice.choice([0.5, 1.0, 1.0, 2.0])
        return worker(name, weight=weight, max_in_flight=dice.choice([None, None, 4]))

    def ask(self) -> Ask:
        """For a prompt that some hold, or none, of any length, hot or not."""
        dice = self.dice
        text = WORDS[: dice.choice([0, 20, 300, 1000, 4088, 6000])] + b"%d" % dice.randrange(9) * dice.choice([0, 1])
        depths = [depth for depth in DEPTHS if depth <= len(text)]
        held: Mapping[str, int] = {}
        if depths and dice.random() < 0.7:
            names = dice.sample([*self.fleet.seats, "gone"], min(dice.choice([1, 1, 2, 5, 30]), len(self.fleet.seats)))
            held = {name: dice.choice(depths) for name in names}
        hot = dice.choice([0, 0, *depths])
        trust = dice.choice([0.0, 0.0, 0.0, 0.3, 1.0])
        return ask_of(
            text, dice.randrange(1000), held=held, hot_depth=hot, trust=trust, session=dice.choice([None, "s"])
        )

    def step(self) -> None:
        """One thing happens."""
        dice = self.dice
        happen: list[Any] = [self._send] * 8 + [self._hear_first_token, self._release] * 4
        happen += [self._pass_time] * 3 + [self._hear_others, self._learn_pace, self._penalise]
        happen += [self._signal, self._reconcile] if dice.random() < 0.2 else []
        dice.choice(happen)()

    def _send(self) -> None:
        ask = self.ask()
        choice = self.mind.choose(ask, None, (), self.now)
        if choice is not None:
            self.leases.append(self.mind.commit(ask, choice, self.now, streaming=self.dice.random() < 0.8))

    def _hear_first_token(self) -> None:
        if self.leases:
            self.dice.choice(self.leases).first_token(self.now)

    def _release(self) -> None:
        if self.leases:
            self.leases.pop(self.dice.randrange(len(self.leases))).release()

    def _pass_time(self) -> None:
        self.now += self.dice.choice([0.0, 0.01, 0.1, 0.5, 3.0, 50.0])

    def _hear_others(self) -> None:
        dice, load = self.dice, self.dice.choice(list(self.fleet.seats.values())).load
        waiting, tokens = dice.randrange(4), dice.randrange(4000) / 4
        kind = dice.randrange(4)
        if kind == 0:
            load.hear_siblings(waiting + 1, waiting, tokens if waiting else 0.0)
        elif kind == 1:
            load.hear_replica(dice.choice("ab"), waiting, tokens, self.now + 1.0)
        elif kind == 2:
            load.hear_queue(waiting, 500.0, self.now, 0.6)
        else:
            load.carry(tokens)

    def _learn_pace(self) -> None:
        load = self.dice.choice(list(self.fleet.seats.values())).load
        load.learn_pace(1024.0 if self.even else self.dice.choice([256.0, 1024.0, 4096.0]), 0.0625)
        self.fleet.set_speeds()

    def _penalise(self) -> None:
        self.dice.choice(list(self.fleet.seats.values())).load.penalise(100.0, self.now)

    def _signal(self) -> None:
        seat = self.dice.choice(list(self.fleet.seats.values()))
        self.fleet.feed(seat, self.dice.choice([Signal.PROBE_OK, Signal.PROBE_FAILED, Signal.STALLED]), self.now)

    def _reconcile(self) -> None:
        at = self.dice.randrange(len(self.workers))
        self.workers[at] = self._worker(self.workers[at].id)
        self.fleet.reconcile(self.workers)
