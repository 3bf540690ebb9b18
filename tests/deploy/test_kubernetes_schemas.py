"""The manifests against the published types and validators of their kinds, strictly; and proof that those refuse.

Types (unknown keys, wrong types, what is missing) and validators (ranges, patterns, quantities) come from npm, where
they are made from the kinds' own schemas. Only those of InferencePool are written by hand, in kubernetes/.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.manifests import (
    FILES,
    KINDS,
    Manifest,
    load,
    name_of,
    options,
    the,
    type_complaints,
    value_complaints,
)
from tests.support.npm import installed

CHECKER = Path(__file__).parent / "kubernetes"
SHIPPED = {name_of(path): load(path) for path in FILES} | {
    f"{name_of(path)}: {name}": taken for path in FILES for name, taken in options(path)
}
needs_npm = pytest.mark.system("npm")
alone = pytest.mark.xdist_group("npm")  # one process installs the packages, and no other beside it


def changed(kind: str, name: str, path: str, value: Any) -> Manifest:
    """The shipped manifest with one thing wrong; what is `...` is taken out."""
    broken = copy.deepcopy(the(kind, name))
    place: Any = broken
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return broken


CONTAINER = "spec/template/spec/containers/0"
WRONG_TYPES = {
    "a misspelt field": changed("Deployment", "prefix-router", f"{CONTAINER}/volumeMounts/0/readonly", True),
    "a misspelt probe": changed("Deployment", "prefix-router", f"{CONTAINER}/readynessProbe", {}),
    "a number as text": changed("Deployment", "prefix-router", "spec/minReadySeconds", "5"),
    "a word that is none": changed("Deployment", "prefix-router", "spec/strategy/type", "Rolling"),
    "no name": changed("StatefulSet", "vllm", f"{CONTAINER}/name", ...),
    "another kind's field": changed("StatefulSet", "vllm", "spec/strategy", {"type": "RollingUpdate"}),
    "a misspelt namespace field": changed("Namespace", "prefix-router", "spec", {"finalizer": []}),
    "a list for a map": changed("ConfigMap", "prefix-router", "data", []),
    "a misspelt metric": changed("HorizontalPodAutoscaler", "prefix-router", "spec/metrics/0/resources", {}),
    "a number for a name": changed("RoleBinding", "prefix-router", "subjects/0/name", 7),
    "a misspelt verb list": changed("Role", "prefix-router", "rules/0/verb", ["get"]),
    "a misspelt budget": changed("PodDisruptionBudget", "vllm", "spec/maxUnavailible", 1),
    "a misspelt direction": changed("NetworkPolicy", "vllm", "spec/ingres", []),
    "a policy that is none": changed("NetworkPolicy", "vllm", "spec/policyTypes", ["Inbound"]),
    "a misspelt application protocol": changed("Service", "vllm", "spec/ports/0/appProtokol", "http"),
    "a misspelt account field": changed("ServiceAccount", "prefix-router", "automount", True),
    "a misspelt endpoint": changed("ServiceMonitor", "prefix-router", "spec/endpoints/0/intervall", "5s"),
    "an action that is none": changed("ServiceMonitor", "vllm", "spec/endpoints/0/relabelings/0/action", "rename"),
    "a rule without an expression": changed("PrometheusRule", "prefix-router", "spec/groups/0/rules/0/expr", ...),
    "a misspelt backend": changed("HTTPRoute", "vllm", "spec/rules/0/backendRefs/0/knd", "Service"),
    "a misspelt picker": changed("InferencePool", "vllm", "spec/endpointPickerRef/portNumber", 9002),
    "a port as text": changed("InferencePool", "vllm", "spec/targetPorts/0/number", "8000"),
    "a failure mode that is none": changed("InferencePool", "vllm", "spec/endpointPickerRef/failureMode", "Open"),
}
WRONG_VALUES = {
    "a quantity that is none": changed("Deployment", "prefix-router", f"{CONTAINER}/resources/limits/memory", "1 GB"),
    "half a replica": changed("StatefulSet", "vllm", "spec/replicas", 1.5),
    "a duration that is none": changed("ServiceMonitor", "prefix-router", "spec/endpoints/0/interval", "15 seconds"),
    "a host name that is none": changed("HTTPRoute", "vllm", "spec/hostnames", ["Not A Name"]),
    "a port beyond all": changed("HTTPRoute", "vllm", "spec/rules/0/backendRefs/0/port", 70000),
    "a pool port beyond all": changed("InferencePool", "vllm", "spec/targetPorts/0/number", 70000),
    "a pool port twice": changed("InferencePool", "vllm", "spec/targetPorts", [{"number": 8000}] * 2),
    "a picker without a port": changed("InferencePool", "vllm", "spec/endpointPickerRef/port", ...),
    "a pool of everything": changed("InferencePool", "vllm", "spec/selector/matchLabels", {}),
    "a label that is none": changed("InferencePool", "vllm", "spec/selector/matchLabels/app", "of mine"),
}


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(CHECKER, "manifest-check", tmp_path_factory.mktemp("manifest-check"))


@pytest.fixture(scope="module")
def types(checker: Path) -> dict[str, str]:
    """One run of the compiler for all: it takes a second, whatever their number."""
    return type_complaints(checker, SHIPPED | WRONG_TYPES)


@pytest.fixture(scope="module")
def values(checker: Path) -> dict[str, str]:
    return value_complaints(checker, SHIPPED | WRONG_VALUES)


@needs_npm
@alone
@pytest.mark.parametrize("name", SHIPPED)
def test_the_published_types_and_validators_accept_a_manifest(
    types: dict[str, str], values: dict[str, str], name: str
) -> None:
    assert (types[name], values[name]) == ("", "")


@needs_npm
@alone
@pytest.mark.parametrize("what", WRONG_TYPES)
def test_the_types_refuse(types: dict[str, str], what: str) -> None:
    assert "error TS" in types[what]


@needs_npm
@alone
@pytest.mark.parametrize("what", WRONG_VALUES)
def test_the_validators_refuse(values: dict[str, str], what: str) -> None:
    assert values[what] != ""


def refused() -> Iterator[tuple[str, str]]:
    for manifest in WRONG_TYPES.values():
        yield manifest["apiVersion"], manifest["kind"]


def test_every_kind_is_there_and_shown_to_be_refused() -> None:
    assert {(manifest["apiVersion"], manifest["kind"]) for manifest in SHIPPED.values()} == KINDS.keys()
    assert set(refused()) == KINDS.keys()


def test_there_are_options_in_comments() -> None:
    assert [name for name in SHIPPED if ": " in name] == [
        "base/settings.yaml: TLS",
        "base/settings.yaml: share",
        "base/settings.yaml: keys",
        "gateway/horizontalpodautoscaler.yaml: requests in flight",
    ]
