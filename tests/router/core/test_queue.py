"""The waiting room: first come, first served, bounded, and each leaves once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.queue import Ticket, WaitingRoom, too_long
from router.errors import Overloaded


class Guest:
    """One that waits, and writes down what it is told."""

    def __init__(self, room: WaitingRoom, told: list[str], name: str, now: float = 0.0) -> None:
        self.finds_worker = True
        self.name = name
        self._told = told
        self.ticket = room.enter(self._wake, self._expired, now)

    def _wake(self) -> bool:
        if self.finds_worker:
            self._told.append(f"{self.name} goes")
        return self.finds_worker

    def _expired(self) -> None:
        self._told.append(f"{self.name} expires")


def test_those_that_wait_go_in_the_order_they_came() -> None:
    room, told = WaitingRoom(10, 30.0), []
    for name in "abc":
        Guest(room, told, name)
    room.pump()
    assert told == ["a goes", "b goes", "c goes"]
    assert len(room) == 0


def test_one_that_finds_no_worker_keeps_its_place_and_holds_up_nobody() -> None:
    room, told = WaitingRoom(10, 30.0), []
    first, _, _ = (Guest(room, told, name) for name in "abc")
    first.finds_worker = False
    room.pump()
    assert told == ["b goes", "c goes"]
    Guest(room, told, "d")
    first.finds_worker = True
    room.pump()
    assert told[2:] == ["a goes", "d goes"]


def test_a_full_room_refuses_at_once_and_says_when_to_come_back() -> None:
    room, told = WaitingRoom(2, 30.0), []
    Guest(room, told, "a")
    Guest(room, told, "b")
    with pytest.raises(Overloaded) as refused:
        Guest(room, told, "c")
    assert refused.value.status == 429
    assert refused.value.retry_after
    assert len(room) == 2


def test_a_room_for_nobody_refuses_everybody() -> None:
    with pytest.raises(Overloaded):
        Guest(WaitingRoom(0, 30.0), [], "a")


def test_a_place_is_given_back_once() -> None:
    room = WaitingRoom(1, 30.0)
    guest = Guest(room, [], "a")
    assert room.leave(guest.ticket) is True
    assert room.leave(guest.ticket) is False
    assert len(room) == 0


def test_four_clients_that_went_away_leave_room_for_a_fifth() -> None:
    room, told = WaitingRoom(4, 30.0), []
    for guest in [Guest(room, told, name) for name in "abcd"]:
        room.leave(guest.ticket)
    Guest(room, told, "e")
    room.pump()
    assert told == ["e goes"]


def test_one_whose_time_is_up_is_told_once_and_its_place_is_free() -> None:
    room, told = WaitingRoom(10, 30.0), []
    Guest(room, told, "a", now=0.0)
    Guest(room, told, "b", now=10.0)
    room.expire(29.9)
    assert told == []
    room.expire(30.0)
    assert told == ["a expires"]
    room.expire(35.0)
    room.expire(40.0)
    room.expire(50.0)
    assert told == ["a expires", "b expires"]
    assert len(room) == 0


def test_one_that_left_does_not_expire() -> None:
    room, told = WaitingRoom(10, 30.0), []
    room.leave(Guest(room, told, "a").ticket)
    room.expire(1000.0)
    assert told == []


def test_one_that_leaves_while_it_is_woken_is_gone_once() -> None:
    room = WaitingRoom(10, 30.0)
    tickets: list[Ticket] = []

    def wake() -> bool:
        room.leave(tickets[0])
        return True

    tickets.append(room.enter(wake, lambda: None, 0.0))
    room.pump()
    assert len(room) == 0


def test_one_that_is_sent_away_by_another_s_turn_is_not_woken() -> None:
    room, told = WaitingRoom(10, 30.0), []
    guests: list[Guest] = []

    def wake() -> bool:
        room.leave(guests[0].ticket)
        return True

    room.enter(wake, lambda: None, 0.0)
    guests.append(Guest(room, told, "b"))
    room.pump()
    assert told == []


def test_the_refusal_of_one_whose_time_was_up_is_429_with_retry_after() -> None:
    assert (too_long().status, too_long().code) == (429, "overloaded")
    assert too_long().retry_after


def test_a_room_says_how_full_it_is() -> None:
    assert repr(WaitingRoom(3, 1.0)) == "<WaitingRoom 0 of 3>"


@given(st.lists(st.sampled_from(["enter", "leave", "pump", "expire"]), max_size=60), st.integers(0, 5))
def test_nobody_is_told_twice_and_the_room_never_overflows(steps: list[str], most: int) -> None:
    room, told, guests, now = WaitingRoom(most, 5.0), [], [], 0.0
    for at, step in enumerate(steps):
        now += 1.0
        if step == "enter":
            try:
                guests.append(Guest(room, told, str(at), now))
                guests[-1].finds_worker = at % 3 == 0
            except Overloaded:
                assert len(room) == most
        elif step == "leave" and guests:
            room.leave(guests[at % len(guests)].ticket)
        elif step == "pump":
            room.pump()
        elif step == "expire":
            room.expire(now)
        assert len(room) <= most
    assert len(told) == len(set(told))
    assert len({line.split()[0] for line in told}) == len(told)
