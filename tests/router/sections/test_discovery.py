"""Settings of discovery: what is accepted, and faults that name their setting."""

from typing import Any

import pytest
import yaml

from router.layers import SettingsError, effective, load
from router.sections.discovery import Discovery, Kubernetes
from router.types import WorkerTls


def faults(text: str) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load([("file", {"discovery": {"kubernetes": yaml.safe_load(text)}})], {})
    return refused.value.faults


def test_nothing_is_discovered_unless_told() -> None:
    assert Discovery().kubernetes is None
    assert load([("file", {"discovery": {"kubernetes": None}})], {})[0].discovery == Discovery()


def test_a_service_is_enough() -> None:
    made = Kubernetes.model_validate({"service": "vllm"})
    assert (made.namespace, made.selector, made.port, made.scheme, made.kubeconfig) == (None, None, None, "http", None)


@pytest.mark.parametrize(
    "selector",
    [
        "app=vllm", "app==vllm", "app != vllm", "kubernetes.io/service-name in (a, b)", "tier notin (x,y),app",
        "!canary", " app = vllm , ! canary ", "a in (), b=", "a.b-c_d/e.f-g_h=i.j-k_l",
    ],
)  # fmt: skip
def test_every_form_of_a_label_selector_is_taken(selector: str) -> None:
    assert Kubernetes(selector=selector).selector == selector


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{}", "discovery.kubernetes: service and selector: set one of the two"),
        ("{service: a, selector: b}", "discovery.kubernetes: service and selector: set one of the two"),
        ("{service: a, context: c}", "discovery.kubernetes: context: it is one of a kubeconfig; set kubeconfig too"),
        ("{service: Not_A_Name}", "discovery.kubernetes.service: "),
        ("{service: a, namespace: 'x/y'}", "discovery.kubernetes.namespace: "),
        ("{service: a, namespace: ''}", "discovery.kubernetes.namespace: "),
        ("{selector: 'a=b c'}", "discovery.kubernetes.selector: expected a label selector, such as app=vllm"),
        ("{selector: 'a in b'}", "discovery.kubernetes.selector: expected a label selector"),
        ("{selector: 'a=b&watch=false'}", "discovery.kubernetes.selector: expected a label selector"),
        ("{selector: ''}", "discovery.kubernetes.selector: expected a label selector"),
        ("{selector: 'a=b,'}", "discovery.kubernetes.selector: expected a label selector"),
        ("{service: a, port: 0}", "discovery.kubernetes.port: expected a port's name, or a number from 1 to 65535"),
        ("{service: a, port: 65536}", "discovery.kubernetes.port: expected a port's name"),
        ("{service: a, port: '8000'}", "discovery.kubernetes.port: expected a port's name"),
        ("{service: a, port: true}", "discovery.kubernetes.port: expected a port's name"),
        ("{service: a, port: 1.5}", "discovery.kubernetes.port: expected a port's name"),
        ("{service: a, port: Http}", "discovery.kubernetes.port: expected a port's name"),
        ("{service: a, scheme: ftp}", "discovery.kubernetes.scheme: "),
        ("{service: a, servcie: b}", "discovery.kubernetes.servcie: there is no such setting"),
        ("{service: a, worker: {weight: 0}}", "discovery.kubernetes.worker.weight: "),
        ("{service: a, worker: {url: 'http://a'}}", "discovery.kubernetes.worker.url: there is no such setting"),
        ('{service: a, worker: {api_key: "a\\nb"}}', "discovery.kubernetes.worker.api_key: expected printable ASCII"),
        ("{service: a, worker: {kv_events: {port: 0}}}", "discovery.kubernetes.worker.kv_events.port: "),
        ("7", "discovery.kubernetes: "),
    ],
)
def test_a_fault_names_its_setting(text: str, fault: str) -> None:
    found = faults(text)
    assert len(found) == 1
    assert found[0].startswith(fault)


@pytest.mark.parametrize("port", [1, 8000, 65535, "http", "h2-c", "8k"])
def test_a_port_is_a_number_or_a_name(port: Any) -> None:
    assert Kubernetes(service="a", port=port).port == port


def test_what_all_workers_have_comes_as_it_is_used() -> None:
    worker = {"api_key": "sk", "weight": 2, "tls": {"ca": "ca.pem"}, "models": ["m"], "kv_events": {"port": 5557}}
    fields = Kubernetes.model_validate({"service": "a", "worker": worker}).worker.fields()
    assert fields == {
        "api_key": "sk", "dialect": "auto", "weight": 2.0, "max_in_flight": None, "max_connections": None,
        "models": ("m",), "tls": WorkerTls(ca="ca.pem"),
    }  # fmt: skip
    bare = Kubernetes.model_validate({"service": "a", "worker": {"api_key": ""}}).worker.fields()
    assert (bare["api_key"], bare["tls"]) == (None, None)


def test_the_workers_key_is_shown_nowhere() -> None:
    layer = {"discovery": {"kubernetes": {"service": "a", "worker": {"api_key": "sk-secret"}}}}
    settings, origins = load([("file", layer)], {})
    shown = {path: value for path, value, _ in effective(settings, origins)}
    assert shown["discovery.kubernetes.worker.api_key"] == "********"
    assert shown["discovery.kubernetes.service"] == "a"
    assert "sk-secret" not in repr(settings)
