"""Workers from a Kubernetes API: listed, followed, kept through whatever fails. Over real HTTP, by the real client."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import kmock
import pytest
from kubernetes.aio import client

from router.discovery.kubernetes import KubernetesSource, build
from router.discovery.kubernetes_api import Pace, reached
from router.sections.discovery import Kubernetes
from router.types import Worker
from tests.support.gateway import eventually
from tests.support.kube_api import NAMESPACE, KubeApi, kube_api, kubeconfig, pod, slice_of

QUICK = Pace(connect=5.0, listing=5.0, watch=60.0, silence=30.0, first=0.02, most=0.1, steady=10.0)


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with kube_api() as made:
        yield made


class Follower:
    """Reads a source in a task of its own; `sets` are all that it yielded."""

    def __init__(self, source: KubernetesSource) -> None:
        self.source = source
        self.sets: list[tuple[Worker, ...]] = []

    async def run(self) -> None:
        async for workers in self.source.watch():
            self.sets.append(workers)

    def places(self) -> dict[str, str]:
        return {worker.id: worker.address.netloc for worker in self.sets[-1]} if self.sets else {}

    async def sees(self, *names: str) -> None:
        await eventually(lambda: self.sets and sorted(self.places()) == sorted(names), lambda: f"{self.sets}")


Follow = Callable[..., Any]


@pytest.fixture
def follow(api: KubeApi, tmp_path: Path) -> Follow:
    @asynccontextmanager
    async def following(pace: Pace = QUICK, **options: Any) -> AsyncIterator[Follower]:
        user = {"tokenFile": str(tmp_path / "token")} if (tmp_path / "token").exists() else {}
        path = str(kubeconfig(tmp_path, api.url, user))
        given = {"kubeconfig": path, **({} if "selector" in options else {"service": "vllm"}), **options}
        settings = Kubernetes.model_validate(given)
        follower = Follower(KubernetesSource(settings, lambda: reached(settings, pace), pace, Random(1)))
        task = asyncio.create_task(follower.run())
        try:
            yield follower
            assert not task.done(), "a source never ends"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return following


async def test_the_ready_endpoints_of_all_slices_of_a_service_are_one_set(api: KubeApi, follow: Follow) -> None:
    api.put(
        slice_of("a", pod("vllm-0", "10.0.0.1"), pod("vllm-1", "10.0.0.2", ready=False)),
        slice_of("b", pod("vllm-2", "10.0.0.3"), port=9000),
        slice_of("c", pod("other-0", "10.0.0.9"), service="other"),
    )
    async with follow() as follower:
        await follower.sees("vllm-0", "vllm-2")
        assert follower.places() == {"vllm-0": "10.0.0.1:8000", "vllm-2": "10.0.0.3:9000"}
        assert len(follower.sets) == 1, "the first set is whole"


async def test_changes_are_followed_without_another_list(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        api.put(slice_of("a", pod("vllm-0", "10.0.0.1"), pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        api.put(slice_of("b", pod("vllm-2", "10.0.0.3")))
        await follower.sees("vllm-0", "vllm-1", "vllm-2")
        api.put(slice_of("a", pod("vllm-0", "10.0.0.1", ready=False, terminating=True), pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-1", "vllm-2")
        api.remove("b")
        await follower.sees("vllm-1")
        api.remove("a")
        await follower.sees()
        assert (api.lists, api.watches) == (1, 1)


async def test_a_change_that_changes_no_worker_is_not_told(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        api.put(slice_of("a", pod("vllm-0", "10.0.0.1"), pod("vllm-1", "10.0.0.2", ready=False)))
        api.put(slice_of("b", pod("vllm-2", "10.0.0.3")))
        await follower.sees("vllm-0", "vllm-2")
        assert [len(workers) for workers in follower.sets] == [1, 2]


async def test_a_label_selector_joins_several_services_and_what_fits_no_more_leaves(
    api: KubeApi, follow: Follow
) -> None:
    api.put(slice_of("a", pod("a-0", "10.0.0.1"), service="a", team="x"))
    api.put(slice_of("b", pod("b-0", "10.0.0.2"), service="b", team="y"))
    api.put(slice_of("c", pod("c-0", "10.0.0.3"), service="c", team="z"))
    async with follow(selector="team in (x, y), team != z") as follower:
        await follower.sees("a-0", "b-0")
        api.put(slice_of("b", pod("b-0", "10.0.0.2"), service="b", team="z"))
        await follower.sees("a-0")
        assert api.lists == 1


async def test_a_watch_that_ends_goes_on_where_it_was(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        for at in range(1, 4):
            await eventually(lambda at=at: api.open_watches == 1 and api.watches == at)
            api.end_watches()
            api.put(slice_of(f"s{at}", pod(f"vllm-{at}", f"10.0.1.{at}")))
            await eventually(lambda at=at: f"vllm-{at}" in follower.places())
        assert api.lists == 1
        assert api.most_watches == 1


async def test_the_api_ends_a_watch_when_its_time_is_up(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow(QUICK._replace(watch=1.0)) as follower:
        await eventually(lambda: api.watches >= 3, within=30)
        assert api.lists == 1
        assert len(follower.sets) == 1


async def test_a_watch_cut_in_the_middle_of_a_line_loses_nothing(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        await eventually(lambda: api.open_watches == 1)
        api.end_watches("cut")
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert api.lists == 1
    assert [each for each in caplog.messages if "broke off" in each]


@pytest.mark.parametrize("as_event", [False, True], ids=["status", "event"])
async def test_when_the_state_is_gone_all_is_listed_anew(api: KubeApi, follow: Follow, *, as_event: bool) -> None:
    api.gone_as_event = as_event
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")), slice_of("b", pod("vllm-1", "10.0.0.2")))
    async with follow() as follower:
        await follower.sees("vllm-0", "vllm-1")
        await eventually(lambda: api.open_watches == 1)
        with api.changed:  # in one go: no watch sees what happened, and none can be told
            api.end_watches("drop")
            api.remove("a")
            api.put(slice_of("c", pod("vllm-2", "10.0.0.3")))
            api.forget()
        await follower.sees("vllm-1", "vllm-2")
        assert api.lists == 2
        assert all(workers for workers in follower.sets), "there was no moment without workers"


async def test_a_bookmark_moves_on_so_that_no_list_is_needed(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        await eventually(lambda: api.open_watches == 1)
        api.forget()
        api.say("BOOKMARK", kind="EndpointSlice")
        await eventually(lambda: follower.source._slices.version == str(api._version))
        api.end_watches()
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert api.lists == 1


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "s3cret"}),
        ("ERROR", {}),
        ("NONSENSE", {"addressType": "IPv4"}),
        ("ADDED", {"addressType": "IPv4", "endpoints": 7}),
    ],
)
async def test_after_an_error_in_a_watch_or_what_is_no_change_all_is_listed_anew(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture, kind: str, content: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG, "router")
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        api.say(kind, **content)
        await eventually(lambda: api.lists == 2)
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert all(workers for workers in follower.sets)
    assert "s3cret" not in caplog.text


async def test_an_api_that_cannot_be_reached_empties_nothing_and_is_told_once(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "router")
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        api.refusal = (503, {})
        api.end_watches()
        asked = len(api.shown)
        await eventually(lambda: len(api.shown) > asked + 5)
        assert [len(workers) for workers in follower.sets] == [1]
        assert [each for each in caplog.messages if "it failed (503)" in each] == [
            "discovery.kubernetes: the API: it failed (503); 1 worker known before stay"
        ]
        api.refusal = None
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert caplog.messages.count("discovery.kubernetes: the API answers again") == 1


async def test_a_list_that_is_none_empties_nothing(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    bodies = [b"<html>sorry</html>", b"{}", b'{"kind": "Status", "metadata": {}, "items": []}', b""]
    async with follow() as follower:
        await follower.sees("vllm-0")
        for body in bodies:
            api.list_body = body
            before = api.lists
            api.say("ERROR", kind="Status", code=500, reason="InternalError")
            await eventually(lambda before=before: api.lists >= before + 2)
            api.list_body = None
            await eventually(lambda: api.open_watches == 1)
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert [len(workers) for workers in follower.sets] == [1, 2]


async def test_a_service_without_endpoints_has_no_workers_and_that_is_said(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow() as follower:
        await follower.sees()
        assert [each for each in caplog.messages if "kubernetes.io/service-name=vllm in namespace models" in each]
        api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
        await follower.sees("vllm-0")


async def test_a_rotated_token_is_read_again(api: KubeApi, follow: Follow, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    api.tokens = {"first"}
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        await eventually(lambda: api.open_watches == 1)
        api.tokens = {"second"}
        api.end_watches()
        await eventually(lambda: api.shown.count("first") > 2)
        (tmp_path / "token").write_text("second")
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert api.shown[-1] == "second"
        assert api.lists == 1, "the state that was known is good under a new token too"


async def test_no_token_reaches_the_log(
    api: KubeApi, follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "token").write_text("s3cret-token")
    api.tokens = {"other"}
    async with follow():
        await eventually(lambda: len(api.shown) > 2)
        (tmp_path / "token").write_text("s3cret-token\nwith-a-line-end")
        asked = len(api.shown)
        await eventually(lambda: any("cannot be reached (ValueError)" in each for each in caplog.messages))
        assert len(api.shown) <= asked + 1, "half a token is not sent"
    assert [each for each in caplog.messages if "it refuses the credentials (401)" in each]
    assert "s3cret" not in caplog.text
    assert api.shown[0] == "s3cret-token"


@pytest.mark.parametrize("only_watches", [False, True])
async def test_missing_rights_are_named(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture, *, only_watches: bool
) -> None:
    api.refusal, api.only_watches = (403, {}), only_watches
    async with follow():
        await eventually(lambda: len(api.shown) > 3)
    said = [each for each in caplog.messages if "get, list and watch of endpointslices" in each]
    assert len(said) == 1


async def test_an_api_that_asks_for_time_is_given_it(api: KubeApi, follow: Follow) -> None:
    api.refusal = (429, {"Retry_After": "60"})
    async with follow():
        await eventually(lambda: len(api.shown) == 1)
        await asyncio.sleep(0.5)
        assert len(api.shown) == 1, "the pauses here are a tenth of a second otherwise"


async def test_a_slow_list_is_given_up_and_asked_for_again(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    api.slow = 1.0
    async with follow(QUICK._replace(listing=0.3)) as follower:
        await eventually(lambda: len(caplog.messages) > 0)
        assert follower.sets == []
        api.slow = 0.0
        await follower.sees("vllm-0")


async def test_a_silent_connection_is_left_for_another(api: KubeApi, follow: Follow) -> None:
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    api.silent = True
    async with follow(QUICK._replace(silence=0.5)) as follower:
        await follower.sees("vllm-0")
        await eventually(lambda: api.watches >= 3, within=30)
        api.silent = False
        api.put(slice_of("b", pod("vllm-1", "10.0.0.2")))
        await follower.sees("vllm-0", "vllm-1")
        assert api.lists == 1


async def test_what_is_left_out_is_said_once(api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture) -> None:
    api.put(slice_of("named", pod("x-0", "x.example"), family="FQDN"), slice_of("a", pod("vllm-0", "10.0.0.1")))
    async with follow() as follower:
        await follower.sees("vllm-0")
        for at in range(3):
            api.put(slice_of(f"s{at}", pod(f"vllm-1{at}", f"10.0.1.{at}")))
            await eventually(lambda at=at: f"vllm-1{at}" in follower.places())
    assert len([each for each in caplog.messages if "type FQDN" in each]) == 1


async def test_the_log_says_who_came_and_went_and_not_all_of_many(
    api: KubeApi, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "router")
    pods = [pod(f"vllm-{at:02}", f"10.0.0.{at + 1}") for at in range(14)]
    api.put(slice_of("a", *pods[:1]))
    async with follow() as follower:
        await follower.sees("vllm-00")
        api.put(slice_of("a", *pods[1:]))
        await eventually(lambda: len(follower.places()) == 13)
    assert any(
        each.endswith("vllm-09, vllm-10 and 3 more; went: vllm-00") and "came: vllm-01, " in each
        for each in caplog.messages
    )


async def test_pauses_grow_to_a_limit_and_differ_between_gateways() -> None:
    def pauses(seed: int) -> list[float]:
        options, pace = Kubernetes(service="vllm"), Pace()
        source = KubernetesSource(options, lambda: reached(options, pace), pace, Random(seed))
        return [source._pause(failures) for failures in (*range(12), 10_000)]

    mine, theirs = pauses(1), pauses(2)
    assert not set(mine) & set(theirs)
    assert all(0.125 * 2**at <= pause <= 0.25 * 2**at for at, pause in enumerate(mine[:7]))
    assert all(15 <= pause <= 30 for pause in mine[7:])


async def test_failures_that_go_on_are_not_asked_in_a_hurry(api: KubeApi, follow: Follow) -> None:
    """Neither a state that is always gone, nor watches that end at once, make a storm of requests."""
    api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
    api.refusal, api.only_watches = (410, {}), True
    async with follow(QUICK._replace(first=0.05, most=10.0)) as follower:
        await follower.sees("vllm-0")
        began, before = asyncio.get_running_loop().time(), api.lists
        await asyncio.sleep(1.5)
        lists, seconds = api.lists - before, asyncio.get_running_loop().time() - began
        assert 1 <= lists <= sum(0.025 * 2**at <= seconds for at in range(20)) + 1, (
            "each pause is at least half its time"
        )


async def test_it_is_built_from_its_settings() -> None:
    source = build(Kubernetes(service="vllm"))
    assert isinstance(source, KubernetesSource)
    assert source._selector == "kubernetes.io/service-name=vllm"
    assert json.loads(json.dumps(source._pace)) == list(Pace())


# Against an emulator that others made, filled by the official client: less strict, and not ours.


async def test_an_emulator_filled_by_the_official_client_is_followed(tmp_path: Path) -> None:
    emulator = kmock.KubernetesEmulator()
    emulator.resources["discovery.k8s.io/v1/endpointslices"] = {"kind": "EndpointSlice", "namespaced": True}
    async with emulator, kmock.Server(emulator, host="127.0.0.1"):
        url = str(emulator.url).rstrip("/")
        settings = Kubernetes(service="vllm", kubeconfig=str(kubeconfig(tmp_path, url)))
        async with client.ApiClient(client.Configuration(host=url)) as writer:
            slices = client.DiscoveryV1Api(writer)
            await slices.create_namespaced_endpoint_slice(NAMESPACE, slice_of("a", pod("vllm-0", "10.0.0.1")))
            follower = Follower(KubernetesSource(settings, lambda: reached(settings, QUICK), QUICK, Random(1)))
            task = asyncio.create_task(follower.run())
            try:
                await follower.sees("vllm-0")
                await slices.create_namespaced_endpoint_slice(NAMESPACE, slice_of("b", pod("vllm-1", "10.0.0.2")))
                await follower.sees("vllm-0", "vllm-1")
                leaving = {"endpoints": [pod("vllm-1", "10.0.0.2", ready=False, terminating=True)]}
                await slices.patch_namespaced_endpoint_slice("b", NAMESPACE, leaving)
                await follower.sees("vllm-0")
                await slices.delete_namespaced_endpoint_slice("a", NAMESPACE)
                await follower.sees()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
