"""Active probes of one worker, on connections of their own."""

import asyncio
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from router.clock import monotonic
from router.core.fleet import Seat
from router.core.health import PROBE_FAILED, PROBE_OK, Signal, Thresholds
from router.proxy.resolve import Name, Resolver
from router.signals.prober import MODELS_EVERY, MOST_MODELS, Prober
from router.types import worker_from_url
from tests.support.gateway import Stage, eventually
from tests.support.names import Names
from tests.support.worker import Answer, Peer, Seen, Worker, reply

OK = reply(b"{}")
TLS = ssl.create_default_context()


def listing(*names: str, **more: Any) -> Answer:
    return reply(json.dumps({"object": "list", "data": [{"id": name, **more} for name in names]}).encode())


@dataclass
class Faces(Worker):
    """A worker with an answer a path, 404 for the rest."""

    faces: dict[str, Answer] = field(default_factory=lambda: {"/health": OK, "/v1/models": listing("m")})

    async def _probe(self, peer: Peer, seen: Seen) -> bool:
        self.probes.append(seen)
        answer = self.faces.get(seen.target.decode(), reply(b"", 404))
        await peer.unless_gone(asyncio.sleep(answer.delay))
        await peer.write(answer.head() + b"".join(piece for piece in answer.pieces if isinstance(piece, bytes)))
        return True

    def asked(self, path: str) -> int:
        return sum(seen.target.decode() == path for seen in self.probes)


class Probing:
    """What a prober told of its worker, in order."""

    def __init__(
        self, url: str, *, path: str | None = None, timeout: float = 5.0, name: Name | None = None, **fields: Any
    ) -> None:
        self.seat = Seat(worker_from_url(url, **fields), Thresholds())
        self.told: list[Signal | list[str]] = []
        self.causes: list[str] = []
        self.prober = Prober(
            self.seat,
            self._tell,
            self._learn,
            interval=0.02,
            timeout=timeout,
            path=path,
            tls=TLS,
            clock=monotonic,
            name=name,
        )

    def _tell(self, seat: Seat, signal: Signal, cause: str) -> None:
        assert seat is self.seat
        self.told.append(signal)
        self.causes.append(cause)

    def _learn(self, seat: Seat, entries: list[dict[str, Any]]) -> None:
        self.told.append([entry["id"] for entry in entries])

    async def has(self, signal: Signal, times: int = 1) -> None:
        await eventually(lambda: self.told.count(signal) >= times)


Faced = Callable[..., Awaitable[Faces]]
Probe = Callable[..., Probing]


@pytest.fixture
async def faced() -> AsyncIterator[Faced]:
    made: list[Faces] = []

    async def start(faces: dict[str, Answer] | None = None, **switches: Any) -> Faces:
        made.append(Faces(**({"faces": faces} if faces is not None else {}), **switches))
        await made[-1].listen()
        return made[-1]

    yield start
    for each in made:
        await each.close()


@pytest.fixture
async def probe(faced: Faced) -> AsyncIterator[Probe]:
    made: list[Probing] = []

    def start(url: str, **options: Any) -> Probing:
        made.append(Probing(url, **options))
        return made[-1]

    yield start
    for each in made:
        each.prober.stop()
    await asyncio.gather(*(each.prober._task for each in made), return_exceptions=True)


async def test_models_are_learnt_before_the_worker_is_called_well(faced: Faced, probe: Probe) -> None:
    probing = probe((await faced()).url)
    await probing.has(PROBE_OK)
    assert probing.told[:2] == [["m"], PROBE_OK]


async def test_models_are_asked_for_again_now_and_then(faced: Faced, probe: Probe) -> None:
    worker = await faced()
    probing = probe(worker.url)
    await probing.has(PROBE_OK, MODELS_EVERY + 1)
    assert 2 <= worker.asked("/v1/models") < worker.asked("/health")


async def test_an_api_without_a_health_path_is_asked_for_its_models(faced: Faced, probe: Probe) -> None:
    worker = await faced({"/v1/models": listing("m")})
    probing = probe(worker.url)
    await probing.has(PROBE_OK, 3)
    assert PROBE_FAILED not in probing.told
    assert worker.asked("/health") == 1


async def test_a_configured_path_is_asked_and_no_other(faced: Faced, probe: Probe) -> None:
    worker = await faced({"/v1/models": listing("m")})
    probing = probe(worker.url, path="/live")
    await probing.has(PROBE_FAILED)
    assert worker.asked("/live") >= 1
    assert probing.causes[0] == "probe: status 404"
    worker.faces["/live"] = OK
    await probing.has(PROBE_OK)


@pytest.mark.parametrize(("dialect", "path"), [("sagemaker", "/ping"), ("ollama", "/"), ("openai", "/health")])
async def test_a_dialect_has_its_own_health_path(faced: Faced, probe: Probe, dialect: str, path: str) -> None:
    worker = await faced({path: OK})
    await probe(worker.url, dialect=dialect).has(PROBE_OK)
    assert worker.probes[0].target.decode() == path


async def test_a_base_path_stands_before_both_paths(faced: Faced, probe: Probe) -> None:
    worker = await faced({"/base/health": OK, "/base/v1/models": listing("m")})
    probing = probe(f"{worker.url}/base/v1/")
    await probing.has(PROBE_OK)
    assert probing.told[0] == ["m"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_missing_key_is_told_once_with_the_settings_name(
    faced: Faced, probe: Probe, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    worker = await faced({"/health": reply(b"", status)})
    with caplog.at_level(logging.ERROR, "router"):
        await probe(worker.url).has(PROBE_FAILED, 4)
    (record,) = caplog.records
    assert "workers[].api_key" in record.message
    assert worker.id in record.message


@pytest.mark.parametrize("status", [301, 500, 503, 429])
async def test_any_other_status_is_a_failed_probe(faced: Faced, probe: Probe, status: int) -> None:
    worker = await faced({"/health": reply(b"", status, ("location", "/elsewhere")), "/elsewhere": OK})
    probing = probe(worker.url)
    await probing.has(PROBE_FAILED, 2)
    assert set(probing.causes) == {f"probe: status {status}"}
    assert worker.asked("/elsewhere") == 0, "redirects are not followed"


async def test_the_workers_own_key_goes_with_every_probe(faced: Faced, probe: Probe) -> None:
    worker = await faced()
    await probe(worker.url, api_key="its-key").has(PROBE_OK)
    assert {seen.one("authorization") for seen in worker.probes} == {b"Bearer its-key"}
    assert worker.asked("/v1/models")


async def test_what_the_url_carries_goes_as_basic_credentials(faced: Faced, probe: Probe) -> None:
    worker = await faced()
    await probe(f"http://me:s%40cret@{worker.id}").has(PROBE_OK)
    assert {seen.one("authorization") for seen in worker.probes} == {b"Basic " + b64encode(b"me:s@cret")}


async def test_without_credentials_none_are_sent(faced: Faced, probe: Probe) -> None:
    worker = await faced()
    await probe(worker.url).has(PROBE_OK)
    assert {seen.one("authorization") for seen in worker.probes} == {None}


async def test_proxy_variables_are_ignored(faced: Faced, probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await probe((await faced()).url).has(PROBE_OK)


async def test_a_worker_that_hangs_costs_its_timeout_only(faced: Faced, probe: Probe) -> None:
    worker = await faced({"/health": reply(b"", delay=60.0)})
    probing = probe(worker.url, timeout=0.1)
    await probing.has(PROBE_FAILED, 2)
    worker.faces["/health"] = OK
    await probing.has(PROBE_OK)


async def test_a_model_list_that_hangs_is_no_failed_probe(faced: Faced, probe: Probe) -> None:
    worker = await faced({"/health": OK, "/v1/models": reply(b"", delay=60.0)})
    probing = probe(worker.url, timeout=0.1)
    await probing.has(PROBE_OK, 2)
    assert set(probing.told) == {PROBE_OK}


async def test_a_worker_that_is_not_there_fails_its_probes_and_may_come_back(faced: Faced, probe: Probe) -> None:
    worker = await faced()
    await worker.refuse()
    probing = probe(worker.url)
    await probing.has(PROBE_FAILED, 2)
    assert probing.causes[0] == "probe: ConnectError"
    await worker.listen()
    await probing.has(PROBE_OK)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"data": 5}', b'{"data": [1, 2]}', b"\xff"])
async def test_a_model_list_that_is_none_teaches_nothing(faced: Faced, probe: Probe, body: bytes) -> None:
    probing = probe((await faced({"/health": OK, "/v1/models": reply(body)})).url)
    await probing.has(PROBE_OK, 2)
    assert set(probing.told) == {PROBE_OK}


async def test_entries_without_a_name_are_passed_over_and_long_lists_cut(faced: Faced, probe: Probe) -> None:
    names = [{"id": f"m{at}"} for at in range(MOST_MODELS + 5)]
    body = json.dumps({"data": [{"object": "model"}, {"id": 7}, *names]}).encode()
    probing = probe((await faced({"/health": OK, "/v1/models": reply(body)})).url)
    await probing.has(PROBE_OK)
    learnt = probing.told[0]
    assert isinstance(learnt, list)
    assert (learnt[0], len(learnt)) == ("m0", MOST_MODELS)


async def test_once_stopped_it_asks_no_more(faced: Faced, probe: Probe) -> None:
    worker = await faced()
    probing = probe(worker.url)
    await probing.has(PROBE_OK)
    probing.prober.stop()
    await asyncio.wait([probing.prober._task], timeout=5)
    assert probing.prober._task.cancelled()
    count = len(worker.probes)
    await asyncio.sleep(0.1)
    assert len(worker.probes) == count


async def test_a_fleet_that_is_up_is_ready_at_once(stage: Stage) -> None:
    """However long the interval is: the first probe does not wait for it."""
    workers = [await stage.worker() for _ in range(3)]
    await stage.gateway(*workers, health={"interval_seconds": 3600})


async def test_thresholds_decide_when_a_worker_is_down_and_back(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 0.05, "unhealthy_after": 2})
    worker.healthy = 500
    await eventually(lambda: running.state(worker) == "down")
    worker.healthy = 200
    await eventually(lambda: running.state(worker) == "ready")


async def test_a_workers_models_are_known_when_it_is_ready(stage: Stage) -> None:
    worker = await stage.worker(models=("x", "y"))
    running = await stage.gateway(worker)
    assert running.house.fleet.models() == ["x", "y"]


async def test_when_the_name_leads_elsewhere_the_old_connection_is_closed(faced: Faced, probe: Probe) -> None:
    names = Names()
    names.at["w.test"] = ["127.0.0.1"]
    old = await faced()
    new = await faced(host="127.0.0.2", port=old.port)
    with names.serving():
        resolver = Resolver(monotonic, 0.05)
        probing = probe(f"http://w.test:{old.port}", name=resolver.name("w.test"))
        await probing.has(PROBE_OK, 2)
        names.at["w.test"] = ["127.0.0.2"]
        await eventually(lambda: len(new.probes) > 3)
        assert PROBE_FAILED not in probing.told
        await eventually(lambda: not old._peers)
        probing.prober.stop()
        resolver.close()


async def test_a_failed_probe_looks_the_name_up(faced: Faced, probe: Probe) -> None:
    names = Names()
    names.at["w.test"] = ["127.0.0.1"]
    old = await faced()
    new = await faced(host="127.0.0.2", port=old.port)
    with names.serving():
        resolver = Resolver(monotonic, 3600.0)
        probing = probe(f"http://w.test:{old.port}", name=resolver.name("w.test"))
        await probing.has(PROBE_OK)
        names.at["w.test"] = ["127.0.0.2"]
        await old.refuse()
        await eventually(lambda: len(new.probes) > 3)
        assert probing.told[-1] == PROBE_OK
        probing.prober.stop()
        resolver.close()
