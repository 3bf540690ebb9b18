"""What became of the generations."""

import asyncio
from collections.abc import Callable

from backends.ledger import Ledger


class Answer:
    def __init__(self) -> None:
        self.watchers: list[Callable[[bool], None]] = []

    def when_over(self, callback: Callable[[bool], None]) -> None:
        self.watchers.append(callback)

    def over(self, *, complete: bool) -> None:
        for watcher in reversed(self.watchers):
            watcher(complete)


def test_a_generation_counts_once_however_often_it_begins() -> None:
    ledger, answer = Ledger(), Answer()
    ledger.hold(answer)  # type: ignore[arg-type]
    ledger.begin(answer)  # type: ignore[arg-type]
    ledger.begin(answer)  # type: ignore[arg-type]
    assert (ledger.started, ledger.in_progress, ledger.held) == (1, 1, 1)
    answer.over(complete=True)
    assert (ledger.finished, ledger.aborted, ledger.in_progress, ledger.held) == (1, 0, 0, 0)


def test_one_cut_short_is_aborted_and_what_was_held_is_let_go_once() -> None:
    ledger, answer = Ledger(), Answer()
    let_go = ledger.hold(answer)  # type: ignore[arg-type]
    let_go()
    let_go()
    assert ledger.held == 0
    answer.over(complete=False)
    assert (ledger.finished, ledger.aborted, ledger.held, ledger.max_held) == (0, 1, 0, 1)
    assert repr(ledger) == "<Ledger 1 started, 0 finished, 1 aborted>"


async def test_it_is_quiet_once_the_last_answer_has_ended() -> None:
    ledger, answers = Ledger(), [Answer(), Answer()]
    await ledger.quiet()
    for answer in answers:
        ledger.begin(answer)  # type: ignore[arg-type]
    quiet = asyncio.ensure_future(ledger.quiet())
    for answer in answers:
        await asyncio.sleep(0)
        assert not quiet.done()
        answer.over(complete=False)
    await quiet
