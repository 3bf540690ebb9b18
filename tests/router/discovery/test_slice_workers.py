"""From EndpointSlices to workers: who takes new requests, under which name, at which address."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.ring import Ring
from router.discovery.slice_workers import Found, SliceWorkers, is_usable
from router.discovery.slices import Conditions, Endpoint, Slice, Slices
from router.sections.discovery import Kubernetes
from router.types import KvSource, WorkerTls
from tests.support.kube_api import pod, slice_of


def read(*slices: dict[str, Any]) -> list[Slice]:
    made = Slices()
    items = [{**each, "metadata": {**each["metadata"], "resourceVersion": "1"}} for each in slices]
    whole = {"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"}, "items": items}
    made.replace(json.dumps(whole).encode())
    return list(made.all())


def made(**options: Any) -> SliceWorkers:
    return SliceWorkers(Kubernetes.model_validate({"service": "vllm", **options}))


def found(*slices: dict[str, Any], **options: Any) -> Found:
    return made(**options).found(read(*slices))


def places(*slices: dict[str, Any], **options: Any) -> dict[str, str]:
    return {worker.id: worker.address.url for worker in found(*slices, **options).workers}


# Who takes new requests.


@pytest.mark.parametrize("ready", [None, True, False])
@pytest.mark.parametrize("serving", [None, True, False])
@pytest.mark.parametrize("terminating", [None, True, False])
def test_an_endpoint_is_used_unless_it_is_known_to_end_or_not_to_be_ready(
    ready: bool | None, serving: bool | None, terminating: bool | None
) -> None:
    conditions = Conditions(ready=ready, serving=serving, terminating=terminating)
    assert is_usable(Endpoint(conditions=conditions)) is (
        ready in (None, True) and serving in (None, True) and terminating in (None, False)
    )


def test_without_conditions_an_endpoint_is_ready() -> None:
    bare = pod("vllm-0", "10.0.0.1")
    del bare["conditions"]
    assert places(slice_of("a", bare)) == {"vllm-0": "http://10.0.0.1:8000"}


def test_one_that_ends_leaves_though_it_still_serves_and_though_its_service_publishes_all() -> None:
    drained = pod("vllm-0", "10.0.0.1", ready=False, serving=True, terminating=True)
    published = pod("vllm-1", "10.0.0.2", ready=True, serving=False, terminating=True)
    assert places(slice_of("a", drained, published, pod("vllm-2", "10.0.0.3"))) == {"vllm-2": "http://10.0.0.3:8000"}


# Its name.


def test_a_worker_is_named_after_its_pod_and_else_by_its_address() -> None:
    endpoints = pod("vllm-0", "10.0.0.1"), pod(None, "10.0.0.2"), pod("x", "10.0.0.3", kind="Node")
    assert places(slice_of("a", *endpoints)) == {
        "vllm-0": "http://10.0.0.1:8000",
        "10.0.0.2:8000": "http://10.0.0.2:8000",
        "10.0.0.3:8000": "http://10.0.0.3:8000",
    }


def test_a_pod_that_comes_back_elsewhere_keeps_its_place_on_the_ring() -> None:
    before = found(slice_of("a", *(pod(f"vllm-{at}", f"10.0.0.{at + 1}") for at in range(4))))
    after = found(
        slice_of("a", *(pod(f"vllm-{at}", f"10.0.0.{at + 1}") for at in range(3))),
        slice_of("b", pod("vllm-3", "10.9.9.9", ready=True)),
        slice_of("c", pod("vllm-3", "10.0.0.4", ready=False, terminating=True)),
    )
    rings = Ring(), Ring()
    for ring, each in zip(rings, (before, after), strict=True):
        ring.place({worker.id: worker.weight for worker in each.workers})
    keys = [Random(7).getrandbits(64) for _ in range(200)]
    assert [rings[0].home(key) for key in keys] == [rings[1].home(key) for key in keys]
    assert after.workers[3].address.host == "10.9.9.9"


def test_a_pod_in_two_slices_is_one_worker_and_the_newer_slice_counts() -> None:
    old = slice_of("z", pod("vllm-0", "10.0.0.1"), made="2026-01-01T00:00:00Z")
    new = slice_of("a", pod("vllm-0", "10.0.0.2"), made="2026-01-02T00:00:00Z")
    assert places(old, new) == places(new, old) == {"vllm-0": "http://10.0.0.2:8000"}


def test_an_address_is_one_worker() -> None:
    assert len(found(slice_of("a", pod("vllm-0", "10.0.0.1"), pod("vllm-1", "10.0.0.1"))).workers) == 1


# Its address.


def test_of_two_families_ipv4_counts_for_the_whole_service() -> None:
    both = slice_of("four", pod("vllm-0", "10.0.0.1")), slice_of("six", pod("vllm-0", "FD00::1"), family="IPv6")
    assert places(*both) == {"vllm-0": "http://10.0.0.1:8000"}
    leaving = slice_of("four"), slice_of("six", pod("vllm-0", "fd00::1"), family="IPv6")
    assert places(*leaving) == {}, "its address would change for a moment, and then it would go"


def test_a_service_of_ipv6_alone_is_used_beside_one_of_ipv4() -> None:
    slices = (
        slice_of("a", pod("a-0", "10.0.0.1"), service="a"),
        slice_of("b", pod("b-0", "FD00::1"), service="b", family="IPv6"),
    )
    assert places(*slices) == {"a-0": "http://10.0.0.1:8000", "b-0": "http://[fd00::1]:8000"}


def test_names_as_addresses_are_left_out_with_a_word() -> None:
    result = found(slice_of("named", pod("x", "x.example"), family="FQDN"), slice_of("a", pod("vllm-0", "10.0.0.1")))
    assert [worker.id for worker in result.workers] == ["vllm-0"]
    assert result.remarks == ("EndpointSlice named is left out: addresses of type FQDN are not supported",)


def test_an_address_that_is_none_is_left_out_with_a_word() -> None:
    result = found(slice_of("a", pod("bad", "10.0.0.1/evil?x"), pod("vllm-0", "10.0.0.1"), pod("worse", "a b")))
    assert [worker.id for worker in result.workers] == ["vllm-0"]
    assert set(result.remarks) == {"bad is left out: its address is none", "worse is left out: its address is none"}


def test_an_endpoint_without_addresses_is_none() -> None:
    bare = pod("vllm-0", "10.0.0.1") | {"addresses": []}
    assert places(slice_of("a", bare)) == {}


HTTP, METRICS = {"name": "http", "port": 8000}, {"name": "metrics", "port": 9000, "protocol": "TCP"}
UDP = {"name": "gossip", "port": 7000, "protocol": "UDP"}


@pytest.mark.parametrize(
    ("ports", "wanted", "url"),
    [
        ([HTTP], None, 8000),
        ([HTTP, UDP], None, 8000),
        ([{"name": "", "port": 8000}], None, 8000),
        ([HTTP, METRICS], "http", 8000),
        ([HTTP, METRICS], "metrics", 9000),
        ([HTTP, METRICS], 1234, 1234),
        ([], 1234, 1234),
    ],
)
def test_the_port_is_the_only_one_or_the_one_named_or_the_one_numbered(
    ports: list[dict[str, Any]], wanted: int | str | None, url: int
) -> None:
    options = {} if wanted is None else {"port": wanted}
    assert places(slice_of("a", pod("vllm-0", "10.0.0.1"), ports=ports), **options) == {
        "vllm-0": f"http://10.0.0.1:{url}"
    }


@pytest.mark.parametrize(
    ("ports", "wanted", "words"),
    [
        ([HTTP, METRICS], None, "it has several ports (there: http, metrics)"),
        ([HTTP], "grpc", "it has no port grpc (there: http)"),
        ([UDP], "gossip", "it has no port gossip (there: none)"),
        ([], None, "it has no port (there: none)"),
        ([{"name": "http"}], None, "it has no port (there: none)"),
    ],
)
def test_a_slice_without_the_port_is_left_out_and_the_setting_named(
    ports: list[dict[str, Any]], wanted: str | None, words: str
) -> None:
    options = {} if wanted is None else {"port": wanted}
    result = found(slice_of("a", pod("vllm-0", "10.0.0.1"), ports=ports), **options)
    assert result.workers == ()
    assert result.remarks == (f"EndpointSlice a is left out: {words}; set discovery.kubernetes.port",)


def test_an_empty_slice_without_ports_is_no_matter() -> None:
    assert found(slice_of("a", ports=[])) == Found((), ())


# What else it has.


def test_every_worker_has_what_the_settings_give_and_where_it_stands() -> None:
    options = {
        "scheme": "https",
        "worker": {
            "api_key": "sk", "weight": 2, "max_in_flight": 5, "max_connections": 6, "models": ["m"],
            "labels": {"tier": "a", "zone": "overruled"}, "tls": {"ca": "ca.pem"}, "dialect": "openai",
            "kv_events": {"port": 5557, "topic": "kv"},
        },
    }  # fmt: skip
    four = slice_of("a", pod("vllm-0", "10.0.0.1", zone="z1"), pod("vllm-1", "10.0.0.2"))
    one, other = found(four, **options).workers
    assert one.address.url == "https://10.0.0.1:8000"
    assert (one.api_key, one.weight, one.max_in_flight, one.max_connections) == ("sk", 2.0, 5, 6)
    assert (one.models, one.dialect, one.tls) == (("m",), "openai", WorkerTls(ca="ca.pem"))
    assert one.labels == {"tier": "a", "zone": "z1", "node": "node-in-z1"}
    assert other.labels == {"tier": "a", "zone": "overruled"}
    assert one.kv_events == KvSource("tcp://10.0.0.1:5557", topic="kv")
    (six,) = found(slice_of("a", pod("vllm-0", "fd00::1"), family="IPv6"), **options).workers
    assert six.kv_events == KvSource("tcp://[fd00::1]:5557", topic="kv")


def test_a_worker_that_stays_is_the_same_object() -> None:
    workers = made()
    first = workers.found(read(slice_of("a", pod("vllm-0", "10.0.0.1")))).workers[0]
    moved = slice_of("b", pod("vllm-0", "10.0.0.1"), pod("vllm-1", "10.0.0.2"))
    assert workers.found(read(moved)).workers[0] is first


# Whatever comes.

PODS = st.builds(
    lambda at, named, **conditions: pod(
        f"vllm-{at}" if named else None, f"10.0.0.{at + 1}", **{k: v for k, v in conditions.items() if v is not None}
    ),
    st.integers(0, 12), st.booleans(), ready=st.none() | st.booleans(), serving=st.none() | st.booleans(),
    terminating=st.none() | st.booleans(),
)  # fmt: skip
SLICES = st.lists(
    st.builds(
        lambda pods, family, service, port, day: (pods, family, service, port, day),
        st.lists(PODS, max_size=6), st.sampled_from(["IPv4", "IPv6", "FQDN"]), st.sampled_from(["a", "b"]),
        st.sampled_from([8000, 9000, None]), st.integers(1, 9),
    ),
    max_size=6,
).map(
    lambda drawn: [
        slice_of(f"s{at}", *pods, family=family, service=service, port=port, made=f"2026-01-0{day}T00:00:00Z")
        for at, (pods, family, service, port, day) in enumerate(drawn)
    ]
)  # fmt: skip


@given(SLICES, st.randoms())
def test_the_order_of_the_slices_does_not_matter(slices: list[dict[str, Any]], dice: Any) -> None:
    shuffled = dice.sample(slices, len(slices))
    assert found(*slices).workers == found(*shuffled).workers


@given(SLICES)
def test_names_and_addresses_are_unique_and_somebody_usable_stands_behind_each(slices: list[dict[str, Any]]) -> None:
    workers = found(*slices).workers
    assert len({worker.id for worker in workers}) == len({worker.address for worker in workers}) == len(workers)
    usable = {
        endpoint.addresses[0]
        for each in read(*slices)
        for endpoint in each.endpoints or ()
        if is_usable(endpoint) and each.address_type in ("IPv4", "IPv6")
    }
    assert {worker.address.host for worker in workers} <= usable
    assert [worker.id for worker in workers] == sorted(worker.id for worker in workers)


@given(st.lists(st.integers(0, 40), unique=True, max_size=20), st.integers(1, 5), st.randoms())
def test_how_endpoints_are_spread_over_slices_does_not_matter(ids: list[int], many: int, dice: Any) -> None:
    pods = [pod(f"vllm-{at}", f"10.0.0.{at + 1}") for at in ids]
    spread = [[each for each in pods if dice.random() < 0.5 or at == 0] for at in range(many)]  # some in several
    slices = [slice_of(f"s{at}", *each) for at, each in enumerate(spread)]
    assert found(*slices).workers == found(slice_of("one", *pods)).workers


@given(SLICES, SLICES)
def test_what_was_found_before_leaves_no_trace(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    workers = made()
    workers.found(read(*first))
    assert workers.found(read(*second)).workers == found(*second).workers
