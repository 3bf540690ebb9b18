"""The main job with nothing else installed: mock workers, a gateway, the same chats with two policies, a comparison.

Fresh workers and a gateway with `random` get the load of `demo_load.py`; then fresh workers with empty caches and a
gateway with the default policy get the same load; then that gateway keeps serving. TTFT is what the client sees, from
before it connects to the first event with content; cached tokens are the workers' own count of cache hits.

With a limit the whole thing ends within it: the load is as long as starting and ending leave room for, at most
`LOAD_SECONDS` a policy. How long a start takes is measured on the first one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from router.clock import monotonic
from router.demo_client import Answer, chat
from router.demo_fleet import Fleet, FleetError
from router.demo_load import Conversation, plan
from router.demo_table import Outcome, Screen, as_json, in_words, print_json, summarise
from router.settings import Settings

BASELINE = "random"
LOAD_SECONDS = 12.0
LEAST_LOAD = 2.0  # about 40 requests: less would show chance
LEAST_SECONDS = 15.0
RUN_OUT_SECONDS = 2.0  # from the last question to the last answer
CLOSING_SECONDS = 3.0  # for what ran before the clock was read, and for ending the children
REFRESH_SECONDS = 0.25
MOST_WORKERS = 64

T = TypeVar("T")


@dataclass(slots=True)
class Order:
    """What was asked for, and what has come of it so far."""

    workers: int
    port: int
    seconds: float | None
    as_json: bool
    began: float = field(default_factory=monotonic)
    policies: tuple[str, ...] = (BASELINE, Settings().routing.policy)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        return len(self.outcomes) == len(self.policies)

    @property
    def left(self) -> float | None:
        """Seconds until everything must begin to end."""
        return None if self.seconds is None else self.began + self.seconds - CLOSING_SECONDS - monotonic()


def demo(workers: int, port: int, seconds: float | None, *, as_json: bool) -> int:
    """Run the demo; the exit status."""
    faults = _faults(workers, port, seconds)
    for fault in faults:
        sys.stderr.write(f"prefix-router: {fault}\n")
    if faults:
        return 2
    try:
        return asyncio.run(_run(Order(workers, port, seconds, as_json)))
    except FleetError as wrong:
        sys.stderr.write(f"{wrong}\n" if str(wrong).startswith("prefix-") else f"prefix-router: {wrong}\n")
        return 1


def _faults(workers: int, port: int, seconds: float | None) -> list[str]:
    faults = []
    if not 1 <= workers <= MOST_WORKERS:
        faults.append(f"--workers: expected a number from 1 to {MOST_WORKERS}, got {workers}")
    if not 0 <= port <= 65_535:
        faults.append(f"--port: expected a number from 0 to 65535, got {port}")
    if seconds is not None and not seconds >= LEAST_SECONDS:
        faults.append(
            f"--seconds: expected at least {LEAST_SECONDS:g}, the time to start and measure twice, got {seconds:g}"
        )
    return faults


async def _run(order: Order) -> int:
    """The demo until it is told to end, or its time is up."""
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, _note, told, number)
    work = asyncio.create_task(_work(order, Screen(quiet_output=order.as_json)))
    waits: set[asyncio.Future[Any]] = {work, told}
    await asyncio.wait(waits, timeout=order.left, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    elif not work.cancelled():
        await work
    if order.measured:
        return 0  # it was only serving
    if told.done():
        return 130 if told.result() == signal.SIGINT else 0
    raise FleetError(f"--seconds {order.seconds:g} was too little to measure on this machine now")


def _note(told: asyncio.Future[int], number: int) -> None:
    if not told.done():
        told.set_result(number)


async def _work(order: Order, screen: Screen) -> None:
    fleet = Fleet(order.workers, order.port)
    load: Sequence[Conversation] = ()
    try:
        for policy in order.policies:
            await fleet.stop()
            screen.say(f"Starting {order.workers} mock workers and a gateway with policy {policy} ...")
            await fleet.start(policy)
            if not load:
                load = plan(order.workers, _load_seconds(order.left, monotonic() - order.began))
                screen.say(f"Watch it live: {fleet.url}/", style="bold")
            answers = await _unless_one_ends(fleet, _measure(load, fleet.url, policy, screen))
            order.outcomes[policy] = _outcome(answers, fleet, policy)
        _report(order, fleet.url, screen)
        await _unless_one_ends(fleet, asyncio.Event().wait())
    finally:
        await fleet.stop()


async def _unless_one_ends(fleet: Fleet, work: Coroutine[Any, Any, T]) -> T:
    """The work's result. Raises FleetError as soon as a worker or the gateway is gone."""
    working, watching = asyncio.create_task(work), asyncio.create_task(fleet.ended())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise FleetError(watching.result())
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


def _load_seconds(left: float | None, start: float) -> float:
    """How long each of the two loads may be, when one start took so long and another is to come."""
    if left is None:
        return LOAD_SECONDS
    return max(LEAST_LOAD, min(LOAD_SECONDS, (left - 1.5 * start - 2 * RUN_OUT_SECONDS) / 2))


async def _measure(load: Sequence[Conversation], url: str, policy: str, screen: Screen) -> list[Answer]:
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    answers: list[Answer] = []
    began = monotonic()
    total = sum(len(conversation.turns) for conversation in load)
    with screen.running(policy, total) as running:
        tasks = {asyncio.create_task(_talk(each, host, port, began, answers)) for each in load}
        try:
            while tasks:
                done, tasks = await asyncio.wait(tasks, timeout=REFRESH_SECONDS)
                for task in done:
                    task.result()
                running.update(answers)
        finally:
            for task in tasks:
                task.cancel()
    return answers


async def _talk(talk: Conversation, host: str, port: int, began: float, answers: list[Answer]) -> None:
    """One conversation: every turn at its time, with all that was said before."""
    messages = [{"role": "system", "content": talk.system}]
    for turn in talk.turns:
        await asyncio.sleep(began + turn.at - monotonic())
        messages.append({"role": "user", "content": turn.question})
        answer = await chat(host, port, messages, turn.answer_tokens)
        answers.append(answer)
        messages.append({"role": "assistant", "content": answer.text})


def _outcome(answers: Sequence[Answer], fleet: Fleet, policy: str) -> Outcome:
    """Raises FleetError when there is nothing to compare."""
    outcome = summarise(answers, fleet.ids)
    if outcome.ttft_p50 is None:
        reason = next((answer.error for answer in answers if answer.error), "none was asked")
        raise FleetError(f"no request was answered with {policy}: {reason}")
    return outcome


def _report(order: Order, url: str, screen: Screen) -> None:
    base, new = order.policies
    if order.as_json:
        print_json(as_json(url, order.outcomes))
    else:
        screen.table(order.outcomes)
    if order.workers > 1:
        screen.say(in_words(new, order.outcomes[new], base, order.outcomes[base]), style="bold green")
    else:
        screen.say("With one worker there is nothing to choose: both policies do the same.")
    until = "until Ctrl-C" if order.seconds is None else f"for {max(0.0, order.left or 0.0):.0f} more seconds"
    screen.say(f"Serving on, {until}. The live page: {url}/")
