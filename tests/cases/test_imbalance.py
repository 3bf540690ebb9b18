"""Load: a worker that is behind, that fails or that is slow gets no more than it can bear, and affinity stays."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from statistics import mean
from typing import Any

import pytest

from router.events import Chosen
from router.house import House
from router.prompt import Prompt
from router.proxy.headers import Intake
from tests.support.client import Client, post
from tests.support.endpoints import CHAT, COMPLETIONS, IDS, MESSAGES, RESPONSES, Endpoint
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Seen, event, garbled, reply, stream

BUSY = pytest.mark.parametrize("policy", ["prefix_cost", "prefix_bounded", "least_work"])
WORDS = "all that there is to know of it, "


def subject(at: int) -> str:
    return f"Subject number {at}: {WORDS * 12}"


async def spread(house: House, count: int = 10_000) -> float:
    """The most that one worker gets of so many unrelated prompts, over the mean, chosen one after another."""
    dice = Random(9)
    places: Counter[str] = Counter()
    now = house.clock() + 3600  # what failures and refusals left behind has faded
    for at in range(count):
        asked = house.mind.weigh(Prompt(b"%d" % dice.randrange(10**12) + b" " * 300, "m"), Intake())
        choice = house.mind.choose(asked, "m", (), now)
        assert choice is not None
        house.mind.commit(asked, choice, now, streaming=False).release()
        places[choice.seat.id] += 1
        if not at % 200:
            await asyncio.sleep(0)
    assert len(places) == len(house.fleet.seats)
    return max(places.values()) / mean(places.values())


# Days of traffic.


@pytest.mark.parametrize(("policy", "bound"), [("prefix_cost", 1.2), ("prefix_bounded", 1.4), ("prefix_aware", 1.4)])
async def test_after_errors_aborts_and_comings_and_goings_the_spread_is_as_before(
    stage: Stage, policy: str, bound: float
) -> None:
    dice = Random(2)
    kinds = [reply(), reply(delay=0.01), reply(b"{}", 500), reply(b"{}", 503), reply(stop=-1, ending="reset"),
             reply(stop=-1, ending="hang"), stream(event("1"), event("2"), DONE, gap=0.01),
             stream(event("1"), stop=1, ending="reset"), garbled()]  # fmt: skip
    workers = [await stage.worker(answer=lambda _: dice.choice(kinds)) for _ in range(10)]
    running = await stage.gateway(*workers, routing={"policy": policy, "slow_start_seconds": 0},
                                  health={"unhealthy_after": 1000, "outliers": {"most_ejected": 0}})  # fmt: skip
    ring = [running.house.fleet.ring.home(at * 2**50) for at in range(10_000)]
    assert max(Counter(ring).values()) < 1.4 * 1000

    async def one(at: int) -> None:
        client = await Client.connect(running.port)
        try:
            async with asyncio.timeout(0.05 + dice.random() * 0.1):
                await client.send(CHAT.request(subject(dice.randrange(100)), "Hi", stream=dice.random() < 0.5))
                await client.answer()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        client.drop(reset=dice.random() < 0.5)

    for turn in range(6):
        gone = workers[turn]
        await asyncio.gather(*[one(at) for at in range(40)])
        assert (await admin(running, f"/{gone.id}", method="DELETE")).status == 204
        await asyncio.gather(*[one(at) for at in range(20)])
        assert (await admin(running, "", {"url": gone.url})).status == 201
    for worker in workers:
        worker.answer = reply()
    await running.ready()
    await eventually(lambda: not running.taken())
    assert [running.house.fleet.ring.home(at * 2**50) for at in range(10_000)] == ring
    for seat in running.seats.values():
        assert (seat.load.in_flight, seat.load.waiting, seat.load.charged) == (0, 0, 0.0)
        assert seat.load.wait(running.house.clock() + 3600) == 0.0
    assert await spread(running.house, 3000) < bound


async def admin(running: Running, path: str, body: Any = None, method: str = "POST") -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    return await ask(running.port, post(data, f"/admin/workers{path}").replace(b"POST", method.encode(), 1))


# Work that waits.


async def hold(stage: Stage, running: Running, requests: Sequence[bytes]) -> list[Client]:
    """Send these and leave them running."""
    clients = [await stage.client(running) for _ in requests]
    for client, request in zip(clients, requests, strict=True):
        await client.send(request)
    return clients


@BUSY
async def test_new_prefixes_are_not_sent_behind_slow_work_while_another_idles(stage: Stage, policy: str) -> None:
    """Eight slow requests on one worker; the other is idle, and knows much."""
    stuck = await stage.worker(answer=reply(stop=-1, ending="hang"))
    running = await stage.gateway(stuck, routing={"policy": policy, "slow_start_seconds": 0})
    held = await hold(stage, running, [CHAT.request(subject(at), "Go on. " * 300) for at in range(8)])
    await eventually(lambda: stuck.running == 8)
    idle = await stage.worker()
    assert (await admin(running, "", {"url": idle.url})).status == 201
    await running.ready()
    client = await stage.client(running)
    for at in range(40):
        assert (await client.ask(CHAT.request(subject(at + 1000), "Hi"))).status == 200  # its large history
    for at in range(20):
        answer = await client.ask(CHAT.request(subject(at + 5000), "Hi"))
        assert answer.one("x-router-worker") == idle.id
    assert stuck.started == 8
    for client in held:
        client.drop()


@pytest.mark.parametrize("policy", ["prefix_cost", "prefix_bounded"])
@pytest.mark.parametrize("endpoint", [CHAT, MESSAGES, RESPONSES, IDS], ids=["chat", "messages", "responses", "ids"])
async def test_overflow_goes_to_few_and_comes_home_again(stage: Stage, policy: str, endpoint: Endpoint) -> None:
    """Fifty of one prefix whose home is far behind: not everybody computes it too."""
    gate = asyncio.Event()
    workers = [await stage.worker() for _ in range(8)]
    running = await stage.gateway(*workers, routing={"policy": policy})
    client = await stage.client(running)
    shared = subject(0) * 6

    async def place(at: int) -> str | None:
        answer = await client.ask(endpoint.request(shared, f"Question {at}, what of it?"))
        return answer.one("x-router-worker")

    home = await place(0)
    at_home = next(worker for worker in workers if worker.id == home)
    at_home.answer = lambda seen: stream(gate, event("x"), DONE) if len(seen.body) > 100_000 else reply()
    held = await hold(stage, running, [endpoint.request(shared, subject(1) * 300, stream=True)])
    await eventually(lambda: at_home.running == 1)
    overflow = Counter([await place(at) for at in range(1, 51)])
    assert home not in overflow
    assert len(overflow) <= 2, f"it was scattered: {overflow}"
    gate.set()
    assert (await held[0].answer()).status == 200
    assert {await place(at) for at in range(100, 110)} == {home}


async def test_bounded_overflow_that_is_not_answered_spreads_no_further_than_it_must(stage: Stage) -> None:
    """Fifty at once, none of them answered: each further worker is a copy of the prefix, and is used again."""
    gate = asyncio.Event()
    workers = [await stage.worker(answer=lambda _: stream(gate, event("x"), DONE)) for _ in range(16)]
    running = await stage.gateway(*workers, routing={"policy": "prefix_bounded"})
    clients: list[Client] = []
    for at in range(50):
        clients += await hold(stage, running, [CHAT.request(subject(0) * 6, f"Question {at}?", stream=True)])
        await eventually(lambda at=at: sum(worker.running for worker in workers) == at + 1)
    used = Counter(chosen.worker for chosen in running.told(Chosen))
    assert 2 <= len(used) < 14, used
    assert max(used.values()) <= 25
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200


POLICIES = ("prefix_cost", "prefix_bounded", "prefix_aware", "least_work", "least_outstanding", "power_of_two",
            "round_robin")  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_slow_beginnings_count_from_the_choice_on(stage: Stage, policy: str, streaming: bool) -> None:
    """No head for long, then one token: whoever counts from the head on sends all to one worker."""
    gates = [asyncio.Event() for _ in range(4)]
    one_token = stream(event("x"), DONE) if streaming else reply()

    def waiting(at: int) -> Callable[[Seen], Answer]:
        return lambda _: Answer(raw=None, headers=one_token.headers, pieces=one_token.pieces, framing=one_token.framing,
                                delay=0.6)  # fmt: skip

    workers = [await stage.worker(answer=waiting(at)) for at in range(len(gates))]
    options = {"concurrency_threshold": 3} if policy == "prefix_aware" else {}
    running = await stage.gateway(*workers, routing={"policy": policy, "options": options})
    clients = await hold(stage, running, [CHAT.request(subject(at), "Hi", stream=streaming) for at in range(12)])
    await eventually(lambda: sum(worker.started for worker in workers) == 12)
    loads = sorted(running.seat(worker).load.in_flight for worker in workers)
    assert sum(loads) == 12, "counted before any head came"
    most = {"power_of_two": 6, "prefix_bounded": 6}.get(policy, 3)
    assert loads[-1] <= most, loads
    for client in clients:
        assert (await client.answer()).status == 200
    await eventually(lambda: not running.taken())


async def test_ties_fall_to_nobody_in_particular(stage: Stage) -> None:
    """The same idle fleet again and again: an index or a name decides nothing."""
    for policy in ("least_work", "least_outstanding", "power_of_two", "round_robin", "prefix_cost"):
        workers = [await stage.worker() for _ in range(3)]
        running = await stage.gateway(*workers, routing={"policy": policy})
        client = await stage.client(running)
        for at in range(45):
            await client.ask(CHAT.request(subject(at), "Hi"))
        assert min(len(worker.requests) for worker in workers) >= 8, policy
        await client.close()
        await running.stop()


# Who fails fast.

FAILURES = {
    "500": reply(b'{"error": "out of memory"}', 500),
    "502": reply(b"bad gateway", 502),
    "a reset": reply(stop=-1, ending="reset"),
    "no HTTP": garbled(b"what?\r\n\r\n"),
    "a cut stream": stream(event("1"), stop=1, ending="reset"),
}


@pytest.mark.parametrize("policy", ["prefix_cost", "prefix_bounded", "least_work", "least_outstanding"])
@pytest.mark.parametrize("failure", FAILURES)
async def test_whoever_fails_at_once_does_not_get_the_most(stage: Stage, policy: str, failure: str) -> None:
    broken = await stage.worker(answer=FAILURES[failure])
    good = await stage.worker(answer=reply(delay=0.1))
    running = await stage.gateway(broken, good, routing={"policy": policy})
    turns = iter(range(80))

    async def keep_asking() -> None:
        for at in turns:
            client = await Client.connect(running.port)
            await client.send(CHAT.request(subject(at), "Hi"))
            await client.answer()
            await client.close()

    await asyncio.gather(*[keep_asking() for _ in range(8)])
    assert len(broken.requests) + len(good.requests) == 80
    assert len(broken.requests) <= 16, f"{len(broken.requests)} of 80 went to the one that fails"


@pytest.mark.parametrize("status", [503, 429])
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_whoever_says_no_at_once_costs_nobody_an_answer(stage: Stage, status: int, streaming: bool) -> None:
    """Its probes are good and its refusals take no time; every client is served elsewhere."""
    busy = await stage.worker(answer=reply(b'{"error": "busy"}', status))
    good = await stage.worker(answer=reply(delay=0.1))
    running = await stage.gateway(busy, good)
    turns = iter(range(80))
    statuses: Counter[int] = Counter()

    async def keep_asking() -> None:
        for at in turns:
            statuses[(await ask(running.port, CHAT.request(subject(at), "Hi", stream=streaming))).status] += 1

    await asyncio.gather(*[keep_asking() for _ in range(8)])
    assert statuses == {200: 80}
    assert len(busy.requests) <= 24, f"asked {len(busy.requests)} times"


async def test_a_failure_is_remembered_longer_than_the_request_that_met_it(stage: Stage) -> None:
    broken = await stage.worker(answer=reply(b"{}", 500))
    good = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(broken, *good)
    client = await stage.client(running)
    for at in range(200):
        await client.ask(CHAT.request(subject(at), "Hi"))
    assert len(broken.requests) <= 10
    assert running.seat(broken).health.failed_requests or running.state(broken) in ("down", "trial", "suspect")


# Settings, each alone.

SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "shadow": {"routing": {"shadow": "prefix_bounded"}},
    "slo": {"routing": {"slo": {"first_token_ms": 50, "per_uncached_token_ms": 0}}},
    "one try": {"routing": {"max_tries": 1}},
    "no slow start": {"routing": {"slow_start_seconds": 0}},
    "a small table": {"routing": {"table_hashes": 1000}},
    "replicas": {"routing": {"replicas": 3}},
    "resume": {"routing": {"resume": True}},
    "a large factor": {"routing": {"options": {"factor": 16}}},
    "a small factor": {"routing": {"options": {"factor": 1}}},
    "prefix_bounded": {"routing": {"policy": "prefix_bounded"}},
    "a longer key": {"routing": {"policy": "prefix_bounded", "options": {"key_bytes": 4096}}},
    "prefix_aware": {"routing": {"policy": "prefix_aware"}},
    "the longest prefix": {"routing": {"policy": "prefix_aware", "options": {"prefix_length": 2048}}},
    "concurrency of one": {"routing": {"policy": "prefix_aware", "options": {"concurrency_threshold": 1}}},
    "a limit for each": {"limits": {"worker_in_flight": 1}},
    "a limit on all": {"limits": {"in_flight": 1}},
    "no queue": {"queue": {"max": 0}},
    "hashes in the log": {"log": {"access": "none", "hashes": True}},
    "no looks at queues": {"signals": {"queue_seconds": 0}},
}


@pytest.mark.parametrize("name", SETTINGS)
async def test_no_setting_alone_ends_affinity(stage: Stage, name: str) -> None:
    workers = [await stage.worker() for _ in range(4)]
    running = await stage.gateway(*workers, **SETTINGS[name])
    client = await stage.client(running)
    for endpoint in (CHAT, COMPLETIONS, RESPONSES):
        said = ["Where shall we begin?"]
        places = Counter[str]()
        system = f"{endpoint.path}: {subject(7) * 11}"  # longer than the longest of these keys
        for turn in range(30):
            answer = await client.ask(endpoint.request(system, *said))
            assert answer.status == 200, answer.body
            places[answer.one("x-router-worker") or ""] += 1
            said += [f"That was answer {turn}. ", f"And what of number {turn}?"]
        assert places.most_common(1)[0][1] >= 29, places
