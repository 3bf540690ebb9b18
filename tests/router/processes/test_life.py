"""One process as the parent sees it: it starts, what it ended by is told, and nothing is left of it."""

import asyncio
import socket
from ctypes import c_char
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from typing import Any

import pytest

from router.clock import monotonic
from router.layers import load
from router.processes.hub import Hub, Member
from router.processes.life import Inheritance, Life, cause
from router.processes.listeners import bind
from router.signals.load_table import Row, table_bytes


class Birth:
    """What a process is started with, and the hub it joins."""

    def __init__(self) -> None:
        self.context: SpawnContext = get_context("spawn")
        self.hub = Hub(monotonic)
        self.member = Member(0, self.hub)
        self.table = self.context.RawArray(c_char, table_bytes(2))
        self.stopping = asyncio.Event()
        self.listener = bind("127.0.0.1", 0)

    def given(self, line: socket.socket) -> Inheritance:
        loaded = load([("test", {"log": {"access": "none"}})], {})
        return Inheritance(0, 1, 0, 2, "family", False, *loaded, self.listener, line, self.table)

    def life(self) -> Life:
        return Life(self.member, self.hub, self.context).begin(self.given, self.stopping)


@pytest.mark.parametrize(("code", "words"), [(-9, "SIGKILL"), (1, "exit status 1"), (0, "exit status 0"),
                                             (-200, "exit status -200"), (None, "exit status None")])  # fmt: skip
def test_an_exit_status_is_told_in_words(code: int | None, words: str) -> None:
    assert cause(code) == words


async def test_a_process_that_is_killed_leaves_the_hub_and_its_row_counts_as_nothing() -> None:
    birth = Birth()
    life = birth.life()
    await asyncio.wait_for(birth.member.listens.wait(), 30)
    assert birth.hub.members == {0: birth.member}
    own, other = Row(memoryview(birth.table), 0, 2), Row(memoryview(birth.table), 1, 2)
    own.name(["w"])
    other.name(["w"])
    own.write([3.0, 2.0, 1.0], monotonic(), busy=True)
    life.kill()
    assert await asyncio.wait_for(life.over, 30) == f"pid {birth.member.pid}, SIGKILL"
    assert birth.hub.members == {}
    assert other.read(monotonic()) is None
    life.kill()
    birth.listener.close()


async def test_when_all_are_about_to_stop_none_is_started() -> None:
    birth = Birth()
    birth.stopping.set()
    assert await birth.life().over == ""
    assert birth.hub.members == {}
    birth.listener.close()


async def test_too_few_sockets_are_what_it_ended_by(monkeypatch: pytest.MonkeyPatch) -> None:
    birth = Birth()

    def none_left(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", none_left)
    assert await birth.life().over == "[Errno 24] Too many open files"
    birth.listener.close()
