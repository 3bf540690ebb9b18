"""A real Envoy carries the bytes with the shipped configuration, and asks the picker where they go."""

import hashlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.certificates import Certificates
from tests.support.client import CHAT
from tests.support.envoys import (
    Change,
    Picker,
    any_path,
    cluster,
    echoes,
    envoy,
    fail_open,
    full_duplex,
    full_duplex_request,
    manager,
    picker,
    processor,
)
from tests.support.processes import Program, gateway, mock_workers, until

pytestmark = pytest.mark.system("envoy")

MODES = pytest.mark.parametrize("mode", [[], [full_duplex], [full_duplex_request]], ids=["buffered", "duplex", "half"])
LONG = "All of these rules are the same for every question that is asked here. " * 60


def chat(content: str, *, tokens: int = 2, stream: bool = False, model: str = "mock-model") -> dict[str, Any]:
    asked = [{"role": "system", "content": LONG}, {"role": "user", "content": content}]
    return {"model": model, "messages": asked, "max_tokens": tokens, "stream": stream}


@pytest.fixture
def workers() -> Iterator[list[Program]]:
    with mock_workers(2) as programs:
        yield programs


def urls(programs: list[Program]) -> list[str]:
    return [each.url for each in programs]


class Streaming:
    """A stream read in a thread of its own."""

    def __init__(self, url: str, tokens: int) -> None:
        self.text, self.cut = "", False
        self.begun = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(url, tokens), daemon=True)
        self._thread.start()

    def _read(self, url: str, tokens: int) -> None:
        body = chat("a long answer, please", tokens=tokens, stream=True)
        try:
            with httpx.stream("POST", url + CHAT, json=body, timeout=60) as response:
                for piece in response.iter_text():
                    self.text += piece
                    self.begun.set()
                    if self._stop.is_set():
                        return
        except httpx.HTTPError:
            self.cut = True
            self.begun.set()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def rest(self) -> str:
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
        return self.text


@MODES
def test_requests_with_one_beginning_go_to_one_worker_and_streams_pass(
    workers: list[Program], mode: list[Change], tmp_path: Path
) -> None:
    with picker(urls(workers)) as asked, envoy(tmp_path, asked, urls(workers), *mode) as url:
        answers = [httpx.post(url + CHAT, json=chat(f"question {at}")) for at in range(6)]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.headers["x-router-worker"] for answer in answers}) == 1
        assert answers[-1].headers["x-router-reason"] in ("warm", "home")
        assert answers[-1].json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert Streaming(url, 20).rest().rstrip().endswith("data: [DONE]")
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "mock-model"
        until(lambda: asked.in_flight() == 0)


@MODES
def test_a_body_reaches_the_worker_as_it_was_sent(mode: list[Change], tmp_path: Path) -> None:
    with echoes(2) as there, picker(there) as asked, envoy(tmp_path, asked, there, *mode) as url:
        for size in (0, 61_964, 61_965, 1_000_000):
            body = b'{"model": "m", "prompt": "%s", "user": "end"}' % (b"x" * size)
            said = httpx.post(f"{url}/v1/completions?a=b", content=body, headers={"x-kept": "yes"}).json()
            assert said["size"] == len(body)
            assert said["sha256"] == hashlib.sha256(body).hexdigest()
            assert said["path"] == "/v1/completions?a=b"
            assert said["headers"]["x-kept"] == "yes"
            unread = httpx.post(f"{url}/v1/unknown", content=body).json()
            assert unread["sha256"] == hashlib.sha256(body).hexdigest()
        until(lambda: asked.in_flight() == 0)


@MODES
def test_a_client_cannot_say_where_its_request_goes(mode: list[Change], tmp_path: Path) -> None:
    with echoes(3) as (inside, *_, outside), picker([inside]) as asked:
        for_it = {"x-gateway-destination-endpoint": outside.partition("//")[2]}
        with envoy(tmp_path, asked, [inside, outside], *mode) as url:
            said = httpx.post(url + CHAT, json=chat("hello", model="m"), headers=for_it).json()
            assert said["headers"]["host"] == url.partition("//")[2]
            assert said["headers"]["x-gateway-destination-endpoint"] == inside.partition("//")[2]
        with envoy(tmp_path, 1, [inside], *mode, fail_open) as url:
            said = httpx.get(f"{url}/v1/models", headers=for_it)
            assert said.status_code == 200


def test_keys_are_used_up_and_a_tenant_s_salt_reaches_the_worker(tmp_path: Path) -> None:
    keys = [{"tenant": "a", "key": "the-key-of-a"}]
    for mode in ([any_path], [any_path, full_duplex]):
        with echoes(1) as there:
            own = [{"url": there[0] + "/base", "api_key": "the-worker-s"}]
            with picker([], ready=1, **{"auth.api_keys": keys, "workers": own}) as asked:
                with envoy(tmp_path, asked, there, *mode) as url:
                    stranger = httpx.post(url + CHAT, json=chat("hi", model="m"))
                    assert stranger.json()["error"]["code"] == "invalid_api_key"
                    shown = {"authorization": "Bearer the-key-of-a", "x-copy": "the-key-of-a"}
                    said = httpx.post(url + CHAT, json=chat("hi", model="m"), headers=shown).json()
        assert said["path"] == "/base/v1/chat/completions"
        assert said["headers"]["authorization"] == "Bearer the-worker-s"
        assert "the-key-of-a" not in json.dumps(said)
        assert '"cache_salt"' in said["begin"]
        assert said["size"] > len(json.dumps(chat("hi", model="m"), separators=(",", ":")))


REFUSED = {
    "bad JSON": (CHAT, b"{nope", 400),
    "bad JSON, in the other dialect": ("/v1/messages", b"{nope", 400),
    "an unknown model": (CHAT, b'{"model": "nobody", "messages": []}', 404),
    "a body that is too large": (CHAT, b'{"model": "mock-model", "prompt": "%s"}' % (b"x" * 5000), 413),
}


@MODES
def test_refusals_are_the_gateway_s_own(workers: list[Program], mode: list[Change], tmp_path: Path) -> None:
    small = {"limits.body_bytes": 5000}
    with gateway(urls(workers), **small) as direct, picker(urls(workers), **small) as asked:
        with envoy(tmp_path, asked, urls(workers), *mode) as url:
            for path, body, status in REFUSED.values():
                ours, other = (httpx.post(each + path, content=body) for each in (url, direct.url))
                assert ours.status_code == other.status_code == status
                assert ours.content == other.content
                assert ours.headers["content-type"] == other.headers["content-type"]
                assert "x-request-id" in ours.headers
            limited = {"content": b'{"model": "mock-model", "prompt": "hello"}'}
            assert httpx.post(f"{url}/v1/completions", **limited).status_code == 200
            until(lambda: asked.in_flight() == 0)


def test_a_caller_that_asks_too_often_is_told_when_to_come_back(workers: list[Program], tmp_path: Path) -> None:
    one = {"limits.caller.requests_per_minute": "1"}
    with picker(urls(workers), **one) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        answers = [httpx.post(url + CHAT, json=chat("hello")) for _ in range(3)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert refused[-1].json()["error"]["code"] == "rate_limited"
        assert int(refused[-1].headers["retry-after"]) > 0


def test_a_worker_that_is_gone_is_passed_over_for_the_next_and_blamed(workers: list[Program], tmp_path: Path) -> None:
    slow = {"health.interval_seconds": "60"}
    with picker(urls(workers), **slow) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        first = httpx.post(url + CHAT, json=chat("question")).headers["x-router-worker"]
        [gone] = [each for each in workers if each.url.endswith(first)]
        gone.stop(signal.SIGKILL)
        answer = httpx.post(url + CHAT, json=chat("question"))
        assert answer.status_code == 200
        assert answer.headers["x-router-worker"] != first
        assert answer.headers["x-router-reason"] == "retry"
        until(lambda: asked.in_flight() == 0)
        failed = {worker["id"]: worker["failed_requests"] for worker in asked.workers()}
        assert failed[first] == 1
        assert sum(failed.values()) == 1


@MODES
def test_every_end_gives_the_lease_back(workers: list[Program], mode: list[Change], tmp_path: Path) -> None:
    with picker(urls(workers)) as asked, envoy(tmp_path, asked, urls(workers), *mode) as url:
        streaming = Streaming(url, 600)
        assert streaming.begun.wait(30)
        until(lambda: asked.in_flight() == 1)
        streaming.leave()
        until(lambda: asked.in_flight() == 0)
        for each in workers:
            httpx.post(f"{each.url}/faults", json={"cut": 0.5})
        assert "[DONE]" not in Streaming(url, 60).rest()
        until(lambda: asked.in_flight() == 0)
        for each in workers:
            httpx.post(f"{each.url}/faults", json={"status": 500})
        assert httpx.post(url + CHAT, json=chat("hello")).status_code == 500
        until(lambda: asked.in_flight() == 0)
        assert sum(worker["failed_requests"] for worker in asked.workers()) == 1


def quick(url: str, **given: Any) -> tuple[int, float]:
    began = time.monotonic()
    status = httpx.post(url + CHAT, timeout=30, **given).status_code
    return status, time.monotonic() - began


@pytest.mark.parametrize(("routes", "status"), [([], 503), ([fail_open], 200)], ids=["closed", "open"])
def test_streams_go_on_when_the_picker_is_killed_and_requests_meanwhile_fail_as_was_said(
    workers: list[Program], routes: list[Change], status: int, tmp_path: Path
) -> None:
    with picker(urls(workers)) as asked, envoy(tmp_path, asked, urls(workers), *routes) as url:
        streaming = Streaming(url, 400)
        assert streaming.begun.wait(30)
        port = asked.port
        asked.stop(signal.SIGKILL)
        for _ in range(5):
            answered, seconds = quick(url, json=chat("in the gap"))
            assert answered == status
            assert seconds < 5
        with picker(urls(workers), "--port", str(port)) as again:
            until(lambda: "x-router-worker" in httpx.post(url + CHAT, json=chat("hello"), timeout=30).headers)
            assert "data: [DONE]" in streaming.rest()
            assert not streaming.cut
            until(lambda: again.in_flight() == 0)


@pytest.mark.parametrize(("routes", "status"), [([], 503), ([fail_open], 200)], ids=["closed", "open"])
def test_a_picker_that_hangs_is_left_out_and_taken_back(
    workers: list[Program], routes: list[Change], status: int, tmp_path: Path
) -> None:
    with picker(urls(workers)) as asked, envoy(tmp_path, asked, urls(workers), *routes) as url:
        asked.process.send_signal(signal.SIGSTOP)
        try:
            answered, seconds = quick(url, json=chat("while it hangs"))
            assert answered == status
            assert seconds < 25  # pings notice; the protocol's own time would be 40
        finally:
            asked.process.send_signal(signal.SIGCONT)
        until(lambda: "x-router-worker" in httpx.post(url + CHAT, json=chat("hello"), timeout=30).headers)
        until(lambda: asked.in_flight() == 0)


def test_a_picker_that_is_told_to_stop_lets_streams_go_on_without_it(workers: list[Program], tmp_path: Path) -> None:
    with picker(urls(workers)) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        streaming = Streaming(url, 300)
        assert streaming.begun.wait(30)
        assert asked.stop() == 0
        assert "[DONE]" not in streaming.text
        assert "data: [DONE]" in streaming.rest()


def test_with_no_worker_well_the_answer_is_a_503_or_by_setting_a_worker_all_the_same(
    workers: list[Program], tmp_path: Path
) -> None:
    for each in workers:
        httpx.post(f"{each.url}/faults", json={"path": "/health", "status": 500})
    with picker(urls(workers), ready=0) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        answer = httpx.post(url + CHAT, json=chat("hello"))
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "no_ready_worker"
        assert answer.headers["retry-after"] == "1"
    open_ = {"picker.fail_open": "true"}
    with picker(urls(workers), ready=0, **open_) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        answers = [httpx.post(url + CHAT, json=chat("hello")) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.headers["x-router-worker"] for answer in answers}) == 1
        until(lambda: asked.in_flight() == 0)


def test_a_request_waits_its_turn_where_the_workers_are_full(workers: list[Program], tmp_path: Path) -> None:
    one = {"limits.worker_in_flight": "1"}
    with picker(urls(workers), **one) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        streams = [Streaming(url, 60) for _ in range(4)]
        until(lambda: asked.in_flight() == 2)
        assert all("[DONE]" in each.rest() for each in streams)
        until(lambda: asked.in_flight() == 0)


def _over_tls(made: dict[str, Any]) -> None:
    [asked] = [each for each in made["static_resources"]["clusters"] if each["name"] == "picker"]
    context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    asked["transport_socket"] = {"name": "tls", "typed_config": {"@type": context}}


def test_the_picker_speaks_tls(workers: list[Program], tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    tls = {"picker.tls.certificate": made.file("server.pem"), "picker.tls.key": made.file("server.key")}
    with picker(urls(workers), **tls) as asked, envoy(tmp_path, asked, urls(workers), _over_tls) as url:
        assert "x-router-worker" in httpx.post(url + CHAT, json=chat("hello")).headers


def _no_attributes(made: dict[str, Any]) -> None:
    del processor(made)["response_attributes"], processor(made)["metadata_options"]


def test_it_also_works_with_the_least_that_an_envoy_tells(workers: list[Program], tmp_path: Path) -> None:
    with picker(urls(workers)) as asked, envoy(tmp_path, asked, urls(workers), _no_attributes, full_duplex) as url:
        assert httpx.post(url + CHAT, json=chat("hello")).status_code == 200
        assert isinstance(asked, Picker)
        until(lambda: asked.in_flight() == 0)


def _only(*urls: str) -> Change:
    """Envoy tells the picker to choose among these, by metadata."""

    def change(made: dict[str, Any]) -> None:
        value = {"x-gateway-destination-endpoint-subset": [url.partition("//")[2] for url in urls]}
        told = {"metadata_namespace": "envoy.lb.subset_hint", "value": value}
        config = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
        manager(made)["http_filters"].insert(0, {
            "name": "envoy.filters.http.set_metadata", "typed_config": {"@type": config, "metadata": [told]},
        })  # fmt: skip

    return change


def test_a_subset_that_envoy_names_is_kept_to(workers: list[Program], tmp_path: Path) -> None:
    with picker(urls(workers)) as asked:
        for one in workers:
            with envoy(tmp_path, asked, urls(workers), _only(one.url)) as url:
                for at in range(3):
                    answer = httpx.post(url + CHAT, json=chat(f"question {at}"))
                    assert answer.headers["x-router-worker"] == one.url.partition("//")[2]
        with envoy(tmp_path, asked, urls(workers), _only()) as url:
            assert httpx.post(url + CHAT, json=chat("hello")).status_code == 503


def _by_metadata(made: dict[str, Any]) -> None:
    """A cluster that goes wherever the metadata says."""
    where = {"metadata_key": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
    found = cluster(made, "workers")
    for name in ("load_assignment", "load_balancing_policy"):
        del found[name]
    found |= {"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "original_dst_lb_config": where}


@MODES
def test_the_metadata_alone_leads_there_too(workers: list[Program], mode: list[Change], tmp_path: Path) -> None:
    alone = {"picker.fallbacks": "0"}
    with picker(urls(workers), **alone) as asked, envoy(tmp_path, asked, urls(workers), *mode, _by_metadata) as url:
        assert httpx.post(url + CHAT, json=chat("hello")).status_code == 200
        assert httpx.get(f"{url}/v1/models").status_code == 200


def test_changed_settings_count_from_a_hangup_on(workers: list[Program], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("{}")
    flags = ("--port", "0", "--config", str(file))
    with picker([], *flags, ready=0) as asked, envoy(tmp_path, asked, urls(workers)) as url:
        assert httpx.post(url + CHAT, json=chat("hello")).status_code == 503
        file.write_text(f"workers: [{workers[0].url}]")
        asked.process.send_signal(signal.SIGHUP)
        until(lambda: httpx.post(url + CHAT, json=chat("hello")).status_code == 200)
        until(lambda: asked.in_flight() == 0)
