"""News between processes and replicas: they leave in batches, and what comes in is believed only where it can be."""

import asyncio
from itertools import pairwise
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import fingerprint
from router.core.fleet import Fleet
from router.core.mind import Mind
from router.signals import sharing as module
from router.signals.sharing import (
    BELIEVED,
    MOST_BYTES,
    MOST_LOADS,
    MOST_NEWS,
    MOST_NOTED,
    MOST_REQUESTS,
    MOST_SUM,
    MOST_TOKENS,
    PAUSE,
    REPEATED,
    VERSION,
    Outbox,
    Sharing,
)
from router.types import News, worker_from_url
from tests.support.gateway import eventually

PROMPT = fingerprint(b"a common beginning" * 40, 7)


class Wire:
    """A channel that writes down what it is told."""

    def __init__(self, *, broken: bool = False) -> None:
        self.batches: list[bytes] = []
        self.broken = broken
        self.closed = False

    def send(self, batch: bytes) -> None:
        self.batches.append(batch)
        if self.broken:
            raise OSError("the far side is gone")

    async def close(self) -> None:
        self.closed = True
        if self.broken:
            raise OSError("the far side is gone")

    @property
    def news(self) -> list[list[Any]]:
        return [news for batch in self.batches for news in msgspec.msgpack.decode(batch)[2]]

    @property
    def loads(self) -> list[list[Any]]:
        """Every telling of loads, those that say that nothing waits among them."""
        batches = [msgspec.msgpack.decode(batch) for batch in self.batches]
        return [loads for _, teller, news, loads in batches if teller and not news]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def mind_of(*names: str) -> Mind:
    fleet = Fleet()
    fleet.reconcile(worker_from_url(f"http://{name}:1", id=name) for name in names)
    return Mind(fleet, None)  # type: ignore[arg-type]


def sharing_of(*names: str, far: bool = False) -> tuple[Mind, Sharing, Wire]:
    mind, wire = mind_of(*names), Wire()
    sharing = Sharing(mind, Clock())
    sharing.join(wire, far=far)
    return mind, sharing, wire


def news(worker: str = "a", tokens: float = 100.0, computed: float = 60.0, hashes: list[int] | None = None) -> News:
    return News(worker, tokens, computed, PROMPT.hashes if hashes is None else hashes)


def batch_of(*items: Any, version: int = VERSION, teller: str = "", loads: Any = ()) -> bytes:
    return msgspec.msgpack.encode([version, teller, items, loads])


async def test_news_leave_together_a_moment_after_the_first() -> None:
    mind, sharing, wire = sharing_of("a")
    assert mind.outbox is not None
    for tokens in (1.0, 2.0, 3.0):
        mind.outbox.append(news(tokens=tokens, hashes=[int(tokens)]))
    assert wire.batches == []
    await eventually(lambda: wire.batches)
    assert len(wire.batches) == 1
    assert [each[1] for each in wire.news] == [1.0, 2.0, 3.0]
    assert (mind.outbox, sharing.sent) == ([], 3)


async def test_every_channel_is_told() -> None:
    mind, sharing, wire = sharing_of("a")
    other = Wire()
    sharing.join(other)
    assert mind.outbox is not None
    mind.outbox.append(news())
    sharing.flush()
    assert wire.batches == other.batches != []
    assert sharing.sent == 1


async def test_an_idle_gateway_has_no_timer() -> None:
    mind, sharing, _ = sharing_of("a")
    assert sharing._timer is None
    assert mind.outbox is not None
    mind.outbox.append(news())
    timer = sharing._timer
    mind.outbox.append(news())
    assert sharing._timer is timer is not None
    await eventually(lambda: sharing._timer is None)
    await asyncio.sleep(2 * PAUSE)
    assert sharing._timer is None


async def test_many_news_are_cut_in_batches_and_keep_their_order() -> None:
    mind, sharing, wire = sharing_of("a")
    assert mind.outbox is not None
    for at in range(2 * MOST_NEWS + 1):
        mind.outbox.append(news(tokens=float(at), hashes=[at]))
    sharing.flush()
    assert [len(msgspec.msgpack.decode(batch)[2]) for batch in wire.batches] == [MOST_NEWS, MOST_NEWS, 1]
    assert all(one[1] < other[1] for one, other in pairwise(wire.news))
    assert max(map(len, wire.batches)) < MOST_BYTES


async def test_a_full_batch_of_the_longest_prompts_is_taken_in() -> None:
    mind, sharing, wire = sharing_of("a")
    assert mind.outbox is not None
    same = [2**64 - 1] * (MOST_NOTED - 1)
    mind.outbox.extend(news(worker="w" * 128, hashes=[*same, 2**64 - 1 - at]) for at in range(MOST_NEWS))
    sharing.flush()
    other = Sharing(mind_of("a"), Clock())
    other.receive(wire.batches[0])
    assert (other.received, other.garbage) == (MOST_NEWS, 0)


def test_the_outbox_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    woken: list[None] = []
    outbox = Outbox(lambda: woken.append(None))
    for _ in range(5):
        outbox.append(news())
    assert (len(outbox), outbox.dropped, len(woken)) == (3, 2, 1)


async def test_what_one_mind_did_another_knows() -> None:
    """The whole way: sent by one replica, it is held by that worker in the eyes of the other."""
    mind, sharing, wire = sharing_of("a", "b")
    other = mind_of("a", "b")
    hearing = Sharing(other, Clock())
    assert mind.outbox is not None
    mind.outbox.append(news("b", tokens=100.0, computed=60.0))
    sharing.flush()
    hearing.receive(wire.batches[0])
    assert other.holders.look(PROMPT)[0] == {"b": PROMPT.depths[-1]}
    assert other.fleet.seats["b"].load.traffic == 100.0
    assert (hearing.received, hearing.garbage) == (1, 0)


async def test_a_warm_prefix_is_told_by_its_hashes_once_a_second_and_by_its_tokens_each_time() -> None:
    mind, sharing, wire = sharing_of("a", "b")
    clock = sharing._clock
    assert isinstance(clock, Clock)
    assert mind.outbox is not None

    def told(worker: str, seconds: float) -> list[int]:
        clock.now += seconds
        assert mind.outbox is not None
        mind.outbox.append(news(worker))
        sharing.flush()
        return list(wire.news[-1][3])

    whole = list(PROMPT.hashes)
    assert [told("a", 0.0), told("a", 0.5), told("b", 0.0), told("b", 0.4)] == [whole, [], whole, []]
    assert told("a", 0.2) == whole, "whoever came late, or missed it, hears it now"
    other = mind_of("a", "b")
    hearing = Sharing(other, Clock())
    for batch in wire.batches:
        hearing.receive(batch)
    assert other.holders.look(PROMPT)[0] == dict.fromkeys("ab", PROMPT.depths[-1])
    assert {name: other.fleet.seats[name].load.traffic for name in "ab"} == {"a": 300.0, "b": 200.0}


async def test_what_else_goes_to_warm_prefixes_is_told_as_one_sum_a_worker() -> None:
    mind, sharing, wire = sharing_of("a", "b")
    other = mind_of("a", "b")
    hearing = Sharing(other, Clock())
    assert mind.outbox is not None
    for worker, many in (("a", 4), ("b", 2)):
        for _ in range(many):
            mind.outbox.append(news(worker, tokens=100.0, computed=60.0))
    mind.outbox.append(news("b", tokens=7.0, computed=1.0, hashes=[]))
    sharing.flush()
    assert [(each[0], each[1], each[2], len(each[3]) > 0) for each in wire.news] == [
        ("a", 100.0, 60.0, True), ("b", 100.0, 60.0, True), ("a", 300.0, 180.0, False), ("b", 107.0, 61.0, False),
    ]  # fmt: skip
    hearing.receive(wire.batches[0])
    assert {name: other.fleet.seats[name].load.traffic for name in "ab"} == {"a": 400.0, "b": 207.0}
    assert (sharing.sent, hearing.received, hearing.garbage) == (4, 4, 0)


async def test_no_sum_is_more_than_anybody_believes() -> None:
    mind, sharing, wire = sharing_of("a")
    other = mind_of("a")
    hearing = Sharing(other, Clock())
    assert mind.outbox is not None
    for _ in range(5):
        mind.outbox.append(news(tokens=0.4 * MOST_TOKENS, computed=1.0, hashes=[]))
    sharing.flush()
    hearing.receive(wire.batches[0])
    assert other.fleet.seats["a"].load.traffic == pytest.approx(2.0 * MOST_TOKENS)
    assert (hearing.received, hearing.garbage) == (3, 0)


async def test_what_was_heard_is_not_told_on() -> None:
    mind, sharing, wire = sharing_of("a")
    sharing.receive(batch_of(news()))
    sharing.flush()
    assert (mind.outbox, wire.batches) == ([], [])


async def test_news_of_unknown_workers_change_nothing() -> None:
    mind, sharing, _ = sharing_of("a")
    sharing.receive(batch_of(news("stranger")))
    assert mind.holders.look(PROMPT)[0] == {}
    assert sharing.garbage == 0


@pytest.mark.parametrize(
    "batch",
    [b"", b"\xc1", b"not msgpack", b"\x92\x01", b"\xdd\xff\xff\xff\xff", batch_of(version=VERSION + 1),
     batch_of(news(), version=0), batch_of(["a", 1.0]), batch_of(["a", "b", 1.0, []]), batch_of(["a", 1.0, 1.0, ["x"]]),
     batch_of(7), msgspec.msgpack.encode({"version": 1}), msgspec.msgpack.encode([VERSION]),
     b"\x91" * 100_000, bytes(MOST_BYTES + 1), batch_of(*[news()] * 3000),
     msgspec.msgpack.encode([1, [news()]]), batch_of(news(), teller=7), batch_of(news(), loads=[["a"]]),  # type: ignore[arg-type]
     batch_of(news(), loads=[["a", 1, "x"]]), batch_of(news(), loads=7),
     batch_of(news(), teller="t", loads=[["a", 1, 1.0]] * (MOST_LOADS + 1))],
)  # fmt: skip
async def test_garbage_is_counted_and_changes_nothing(batch: bytes) -> None:
    mind, sharing, _ = sharing_of("a")
    sharing.receive(batch)
    assert (sharing.received, sharing.garbage) == (0, 1)
    assert mind.fleet.seats["a"].load.traffic == 0.0
    assert mind.holders.look(PROMPT)[0] == {}


@pytest.mark.parametrize(
    "bad",
    [news(tokens=inf), news(tokens=nan), news(tokens=-1.0), news(tokens=1e300), news(computed=inf), news(computed=nan),
     news(computed=-5.0), news(hashes=[1] * (MOST_NOTED + 1))],
)  # fmt: skip
async def test_numbers_that_would_spoil_a_sum_are_passed_over_and_the_rest_counts(bad: News) -> None:
    mind, sharing, _ = sharing_of("a")
    sharing.receive(batch_of(bad, news(tokens=5.0)))
    assert mind.fleet.seats["a"].load.traffic == 5.0
    assert (sharing.received, sharing.garbage) == (1, 1)


async def test_a_later_versions_longer_news_can_be_read() -> None:
    mind, sharing, _ = sharing_of("a")
    sharing.receive(batch_of(["a", 5.0, 5.0, [1], "what a later one adds"]))
    assert mind.fleet.seats["a"].load.traffic == 5.0


@given(st.binary(max_size=200))
def test_any_bytes_can_come_in(batch: bytes) -> None:
    Sharing(mind_of("a"), Clock()).receive(batch)


async def test_a_channel_that_raises_takes_nothing_else_with_it(caplog: pytest.LogCaptureFixture) -> None:
    mind = mind_of("a")
    sharing, broken, sound = Sharing(mind, Clock()), Wire(broken=True), Wire()
    sharing.join(broken)
    sharing.join(sound)
    assert mind.outbox is not None
    mind.outbox.append(news())
    sharing.flush()
    assert (len(sound.batches), sharing.dropped) == (1, 1)
    await sharing.close()
    assert sound.closed
    assert "did not close well (OSError)" in caplog.text


async def test_at_its_end_the_last_is_said_and_the_mind_tells_no_more() -> None:
    mind, sharing, wire = sharing_of("a")
    assert mind.outbox is not None
    mind.outbox.append(news())
    await sharing.close()
    assert len(wire.news) == 1
    assert wire.closed
    assert mind.outbox is None
    assert sharing._timer is None


# Loads, which go to other machines only.


async def test_loads_go_to_far_channels_only_and_leave_with_the_news() -> None:
    mind, sharing, near = sharing_of("a", "b")
    far = Wire()
    sharing.join(far, far=True)
    assert mind.outbox is not None
    lease = mind.fleet.seats["b"].load.charge(50.0, 0.0, streaming=True)
    mind.outbox.append(news("b"))
    sharing.flush()
    assert near.loads == []
    assert far.loads == [[["b", 1, 50.0]]]
    assert near.news == far.news != []
    lease.release()
    sharing.flush()
    assert far.loads[-1] == []
    assert near.loads == []


async def test_loads_are_told_when_they_changed_and_again_while_they_last() -> None:
    mind, sharing, wire = sharing_of("a", far=True)
    clock = sharing._clock
    assert isinstance(clock, Clock)
    lease = mind.fleet.seats["a"].load.charge(50.0, 0.0, streaming=True)
    sharing.flush()
    sharing.flush()
    assert len(wire.loads) == 1, "nothing changed"
    clock.now += 2 * REPEATED
    sharing.flush()
    assert len(wire.loads) == 2, "told again, since it is believed for a while only"
    assert REPEATED < BELIEVED / 2
    lease.first_token(0.0)
    sharing.flush()
    sharing.flush()
    clock.now += 10 * REPEATED
    sharing.flush()
    assert wire.loads[2:] == [[]], "that nothing waits any more is said once"


async def test_it_goes_on_looking_while_something_waits_and_then_stops() -> None:
    mind, sharing, wire = sharing_of("a", far=True)
    assert mind.outbox is not None
    lease = mind.fleet.seats["a"].load.charge(50.0, 0.0, streaming=True)
    mind.outbox.append(news())
    await eventually(lambda: wire.loads)
    assert sharing._timer is not None
    lease.release()
    await eventually(lambda: wire.loads[-1] == [])
    await eventually(lambda: sharing._timer is None)


async def test_without_far_channels_nobody_looks_at_the_loads() -> None:
    mind, sharing, wire = sharing_of("a")
    mind.fleet.seats["a"].load.charge(50.0, 0.0, streaming=True)
    sharing.flush()
    assert (wire.batches, sharing._timer) == ([], None)


async def test_the_load_of_one_is_a_wait_for_the_other_until_it_is_too_old() -> None:
    mind, sharing, wire = sharing_of("a", "b", far=True)
    other, clock = mind_of("a", "b"), Clock()
    hearing = Sharing(other, clock)
    mind.fleet.seats["a"].load.charge(50.0, 0.0, streaming=True)
    sharing.flush()
    hearing.receive(wire.batches[0])
    waits = [other.fleet.seats[name].load.wait(clock.now) for name in ("a", "b")]
    assert waits == [50.0, 0.0]
    assert other.fleet.seats["a"].load.wait(clock.now + BELIEVED + 0.01) == 0.0
    await sharing.close()


async def test_two_replicas_loads_add_up_and_each_speaks_for_itself() -> None:
    mind, clock = mind_of("a"), Clock()
    sharing = Sharing(mind, clock)
    load = mind.fleet.seats["a"].load
    for teller, tokens in (("one", 10.0), ("two", 20.0), ("one", 15.0)):
        sharing.receive(batch_of(teller=teller, loads=[["a", 1, tokens], ["stranger", 1, 7.0]]))
    assert load.wait(clock.now) == 35.0
    sharing.receive(batch_of(teller="one"))
    assert load.wait(clock.now) == 20.0
    assert (sharing.received, sharing.garbage) == (0, 0)


async def test_two_gateways_are_two_tellers() -> None:
    tellers = set()
    for _ in range(2):
        mind, sharing, wire = sharing_of("a", far=True)
        mind.fleet.seats["a"].load.charge(50.0, 0.0, streaming=True)
        await sharing.close()
        tellers.add(msgspec.msgpack.decode(wire.batches[0])[1])
    assert len(tellers) == 2
    assert "" not in tellers


@pytest.mark.parametrize(
    "bad", [["a", 1, inf], ["a", 1, nan], ["a", 1, -1.0], ["a", 1, 2 * MOST_SUM], ["a", -1, 1.0],
            ["a", MOST_REQUESTS + 1, 1.0]]
)  # fmt: skip
async def test_loads_that_cannot_be_are_not_believed_and_the_news_beside_them_are(bad: list[Any]) -> None:
    mind, sharing, _ = sharing_of("a")
    sharing.receive(batch_of(news(tokens=5.0), teller="t", loads=[["a", 1, 10.0], bad]))
    load = mind.fleet.seats["a"].load
    assert (load.traffic, load.wait(100.0)) == (5.0, 0.0)


async def test_loads_without_a_teller_are_passed_over() -> None:
    mind, sharing, _ = sharing_of("a")
    sharing.receive(batch_of(loads=[["a", 1, 10.0]]))
    assert mind.fleet.seats["a"].load.wait(100.0) == 0.0
