"""The waiting room: who goes first, who is refused, and that each leaves once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.patience import Hope
from router.core.queue import MOST_RETRY, Ticket, WaitingRoom, Woken
from router.errors import Overloaded

EACH = 64.0  # tokens: the least that a turn costs


class Guest:
    """One that waits, and writes down what it is told."""

    def __init__(self, room: WaitingRoom, told: list[str], name: str, now: float = 0.0, **claim: Any) -> None:
        self.says = Woken.GONE
        self.name = name
        self.now = now
        self._room, self._told = room, told
        self.ticket = Ticket(self._wake, self._refused, **{"tokens": EACH, **claim})
        room.enter(self.ticket, now)

    def _wake(self) -> Woken:
        if self.says is Woken.GONE:
            self._told.append(f"{self.name} goes")
            self._room.leave(self.ticket, self.now, served=True)
        return self.says

    def _refused(self, refusal: Overloaded, how: str) -> None:
        assert refusal.status == 429
        self._told.append(f"{self.name} {how}")


def room_of(most: int = 10, wait_seconds: float = 30.0) -> tuple[WaitingRoom, list[str]]:
    return WaitingRoom(most, wait_seconds), []


def served(room: WaitingRoom, a_second: float, seconds: float, start: float = 0.0, **claim: Any) -> float:
    """Keep somebody waiting while others go at this pace; the time at its end."""
    guests = [Guest(room, [], "kept", start, **claim)]
    for at in range(1, int(seconds * a_second) + 1):
        now = start + at / a_second
        guests.append(Guest(room, [], str(at), now, **claim))
        room.leave(guests.pop(0).ticket, now, served=True)
    room.leave(guests.pop().ticket, start + seconds)
    return start + seconds


def test_those_that_wait_go_in_the_order_they_came() -> None:
    room, told = room_of()
    for name in "abc":
        Guest(room, told, name)
    room.pump()
    assert told == ["a goes", "b goes", "c goes"]
    assert len(room) == 0


def test_the_lower_number_goes_first() -> None:
    room, told = room_of()
    for name, priority in zip("abcde", (0, 5, -3, 0, -3), strict=True):
        Guest(room, told, name, priority=priority)
    room.pump()
    assert told == ["c goes", "e goes", "a goes", "d goes", "b goes"]


def test_tenants_take_turns_by_their_weight() -> None:
    room, told = room_of(100)
    for at in range(20):
        Guest(room, told, f"many {at}", tenant="many", tokens=512)
    for at in range(5):
        Guest(room, told, f"few {at}", tenant="few", tokens=512, weight=2.0)
    room.pump()
    assert [line.split()[0] for line in told][:8] == ["many", "few", "few", "many", "few", "few", "many", "few"]
    assert [line for line in told if line.startswith("many")] == [f"many {at} goes" for at in range(20)]


def test_one_that_finds_no_worker_keeps_its_place_and_only_its_like_wait_for_it() -> None:
    room, told = room_of()
    first = Guest(room, told, "a", model="full")
    Guest(room, told, "b", model="full")
    Guest(room, told, "c", model="free")
    first.says = Woken.FULL
    room.pump()
    assert told == ["c goes"]
    first.says = Woken.GONE
    room.pump()
    assert told[1:] == ["a goes", "b goes"]


def test_when_no_worker_has_room_for_anybody_nobody_else_is_asked() -> None:
    room, told = room_of()
    first = Guest(room, told, "a", model="one")
    Guest(room, told, "b", model="other")
    first.says = Woken.SHUT
    room.pump()
    assert told == []


def test_one_that_waits_for_its_own_worker_holds_up_nobody() -> None:
    room, told = room_of()
    first = Guest(room, told, "a", hope=Hope("w0", 9.0))
    first.says = Woken.LATER
    Guest(room, told, "b")
    assert room.hoping == {"w0": 1}
    room.pump()
    assert told == ["b goes"]
    first.says = Woken.GONE
    room.pump()
    assert told == ["b goes", "a goes"]
    assert not room.hoping


def test_many_that_wait_for_their_own_worker_keep_a_free_one_from_nobody() -> None:
    room, told = room_of(1000)
    hopeful = [Guest(room, told, str(at), hope=Hope("w0", 9.0)) for at in range(300)]
    for guest in hopeful:
        guest.says = Woken.LATER
    Guest(room, told, "plain")
    room.pump()
    assert told == ["plain goes"]


def test_a_full_room_refuses_at_once_and_says_when_to_come_back() -> None:
    room, told = room_of(2)
    Guest(room, told, "a")
    Guest(room, told, "b")
    with pytest.raises(Overloaded) as refused:
        Guest(room, told, "c")
    assert refused.value.status == 429
    assert refused.value.retry_after == 1.0
    assert len(room) == 2


def test_a_room_for_nobody_refuses_everybody() -> None:
    for priority in (0, -1):
        with pytest.raises(Overloaded):
            Guest(WaitingRoom(0, 30.0), [], "a", priority=priority)


def test_the_more_important_takes_the_place_of_the_latest_of_the_least_important() -> None:
    room, told = room_of(3)
    for name, priority in zip("abc", (1, 0, 1), strict=True):
        Guest(room, told, name, priority=priority)
    Guest(room, told, "d")
    assert told == ["c pushed_out"]
    Guest(room, told, "e", priority=-1)
    assert told == ["c pushed_out", "a pushed_out"]
    with pytest.raises(Overloaded):
        Guest(room, told, "f", priority=0)
    with pytest.raises(Overloaded):
        Guest(room, told, "g", priority=2)
    room.pump()
    assert told[2:] == ["e goes", "b goes", "d goes"]


def test_of_one_priority_the_tenant_with_most_waiting_makes_room_for_another() -> None:
    room, told = room_of(4)
    for at in range(4):
        Guest(room, told, f"many {at}", tenant="many")
    for at in range(2):
        Guest(room, told, f"few {at}", tenant="few")
    assert told == ["many 3 pushed_out", "many 2 pushed_out"]
    for tenant in ("few", "many"):
        with pytest.raises(Overloaded):
            Guest(room, told, "more", tenant=tenant)
    assert len(room) == 4


def test_weights_count_for_places_too() -> None:
    room, told = room_of(4)
    for at in range(4):
        Guest(room, told, f"a {at}", tenant="a")
    for at in range(3):
        Guest(room, told, f"b {at}", tenant="b", weight=3.0)
    with pytest.raises(Overloaded):
        Guest(room, told, "b 3", tenant="b", weight=3.0)
    assert told == ["a 3 pushed_out", "a 2 pushed_out", "a 1 pushed_out"]


def test_a_place_is_given_back_once() -> None:
    room, _ = room_of(1)
    guest = Guest(room, [], "a")
    assert room.leave(guest.ticket, 1.0) is True
    assert room.leave(guest.ticket, 1.0) is False
    assert len(room) == 0


def test_four_clients_that_went_away_leave_room_for_a_fifth() -> None:
    room, told = room_of(4)
    for guest in [Guest(room, told, name) for name in "abcd"]:
        room.leave(guest.ticket, 0.0)
    Guest(room, told, "e")
    room.pump()
    assert told == ["e goes"]


def test_one_whose_time_is_up_is_told_once_and_its_place_is_free() -> None:
    room, told = room_of()
    Guest(room, told, "a", now=0.0)
    Guest(room, told, "b", now=10.0)
    room.expire(29.9)
    assert told == []
    room.expire(30.0)
    assert told == ["a expired"]
    for now in (35.0, 40.0, 50.0):
        room.expire(now)
    assert told == ["a expired", "b expired"]
    assert len(room) == 0


def test_a_shorter_wait_counts_for_those_that_come_after() -> None:
    room, told = room_of()
    Guest(room, told, "a")
    room.wait_seconds = 5.0
    Guest(room, told, "b")
    room.expire(6.0)
    assert told == ["b expired"]


def test_one_that_left_does_not_expire() -> None:
    room, told = room_of()
    room.leave(Guest(room, told, "a").ticket, 0.0)
    room.expire(1000.0)
    assert told == []


def test_one_that_says_it_goes_and_stays_is_not_asked_again() -> None:
    room, told = room_of()
    room.enter(Ticket(lambda: Woken.GONE, lambda *_: None), 0.0)
    Guest(room, told, "b")
    room.pump()
    assert told == ["b goes"]
    assert len(room) == 1


def test_one_that_is_sent_away_by_another_s_turn_is_not_woken() -> None:
    room, told = room_of()
    guests: list[Guest] = []

    def wake() -> Woken:
        room.leave(guests[0].ticket, 0.0)
        room.leave(first, 0.0, served=True)
        return Woken.GONE

    first = Ticket(wake, lambda *_: None)
    room.enter(first, 0.0)
    guests.append(Guest(room, told, "b"))
    room.pump()
    assert told == []
    assert len(room) == 0


# What is known of the wait.


def test_while_nothing_is_known_nobody_is_refused_for_a_long_wait() -> None:
    room, told = room_of(100, wait_seconds=1.0)
    for at in range(100):
        Guest(room, told, str(at), within=0.1)
    assert len(room) == 100


def test_whoever_would_wait_too_long_is_refused_at_once_and_comes_back_when_the_others_are_gone() -> None:
    room, told = room_of(100, wait_seconds=10.0)
    now = served(room, a_second=2.0, seconds=30.0)
    refused = []
    for at in range(100):
        try:
            Guest(room, told, str(at), now)
        except Overloaded as refusal:
            refused.append(refusal)
    assert len(room) == pytest.approx(18, abs=1)  # two a second, for nearly ten seconds
    assert len(refused) + len(room) == 100
    assert "queue.wait_seconds" in refused[0].message
    assert refused[0].retry_after == pytest.approx(9.0, rel=0.1)


def test_a_request_with_little_time_left_is_refused_sooner() -> None:
    room, told = room_of(100, wait_seconds=10.0)
    now = served(room, a_second=2.0, seconds=30.0)
    for at in range(4):
        Guest(room, told, str(at), now)
    with pytest.raises(Overloaded, match="own time limit"):
        Guest(room, told, "hasty", now, within=2.0)
    Guest(room, told, "patient", now, within=5.0)
    Guest(room, told, "important", now, within=2.0, priority=-1)


def test_the_first_in_an_empty_room_may_always_try() -> None:
    """Or one slow time would be remembered for ever, since nobody waits who could teach better."""
    room, told = room_of(100)
    now = served(room, a_second=0.5, seconds=60.0)
    room.wait_seconds = 1.0
    Guest(room, told, "first", now)
    with pytest.raises(Overloaded):
        Guest(room, told, "second", now)


def test_a_tenant_that_asks_little_does_not_wait_for_all_of_one_that_asks_much() -> None:
    room, told = room_of(100, wait_seconds=10.0)
    now = served(room, a_second=2.0, seconds=30.0, tenant="many")
    for at in range(15):
        Guest(room, told, str(at), now, tenant="many")
    ahead, wait = room.wait(Ticket(lambda: Woken.GONE, lambda *_: None, tenant="few"), now)
    assert ahead == 1.0
    assert wait == pytest.approx(1.0, rel=0.1)
    ahead, _ = room.wait(Ticket(lambda: Woken.GONE, lambda *_: None, tenant="many"), now)
    assert ahead == 15.0


def test_models_are_waited_for_apart() -> None:
    room, told = room_of(100, wait_seconds=10.0)
    now = served(room, a_second=2.0, seconds=30.0, model="slow")
    for at in range(17):
        Guest(room, told, str(at), now, model="slow")
    Guest(room, told, "other", now, model="other")
    assert room.retry_after("slow", now) > 8.0
    assert room.retry_after("other", now) == 1.0


def test_the_time_to_come_back_after_is_bounded() -> None:
    room, told = room_of(1000, wait_seconds=3600.0)
    now = served(room, a_second=1.0, seconds=30.0)
    for at in range(500):
        Guest(room, told, str(at), now)
    assert room.retry_after(None, now) == MOST_RETRY


def test_models_that_nobody_waits_for_are_forgotten() -> None:
    room, told = room_of(10_000)
    for at in range(1000):
        room.leave(Guest(room, told, "x", model=f"m{at}").ticket, 0.0)
    assert len(room._drains) <= 256


def test_a_room_says_how_full_it_is() -> None:
    assert repr(WaitingRoom(3, 1.0)) == "<WaitingRoom 0 of 3>"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "leave", "pump", "expire"]),
        st.integers(-2, 2),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, "m", "n"]),
        st.sampled_from(list(Woken)),
        st.floats(0.0, 5000.0),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 5))
def test_nobody_is_told_twice_and_the_room_never_overflows(steps: list[Any], most: int) -> None:
    room, told, guests, now = WaitingRoom(most, 5.0), [], [], 0.0
    left = refused = 0
    for at, (step, priority, tenant, model, says, tokens) in enumerate(steps):
        now += 1.0
        if step == "enter":
            try:
                claim = {"priority": priority, "tenant": tenant, "model": model, "tokens": tokens}
                guests.append(Guest(room, told, str(at), now, **claim))
                guests[-1].says = says
            except Overloaded:
                refused += 1
        elif step == "leave" and guests:
            left += room.leave(guests[at % len(guests)].ticket, now)
        elif step == "pump":
            for guest in guests:
                guest.now = now
            room.pump()
        elif step == "expire":
            room.expire(now)
        assert len(room) <= most
    assert len({line.split()[0] for line in told}) == len(told)
    assert len(guests) == len(told) + left + len(room)
    for guest in guests:
        room.leave(guest.ticket, now)
    assert (len(room), len(room._turns), sum(drain.waiting for drain in room._drains.values())) == (0, 0, 0)


def test_at_the_end_all_are_sent_away() -> None:
    room, told = room_of()
    for name in "ab":
        Guest(room, told, name)
    room.turn_out(Overloaded("It ends."), 1.0)
    assert told == ["a expired", "b expired"]
    assert len(room) == 0
