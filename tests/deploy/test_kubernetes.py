"""The manifests fit together: what selects finds, what is named is there, and nobody may do more than it must."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.discovery.kubernetes_api import PATH
from tests.support.deployment import METRICS, PROMETHEUS, ROOT
from tests.support.manifests import (
    FILES,
    FOLDERS,
    KUBERNETES,
    Manifest,
    container,
    load,
    manifests,
    of_kind,
    options,
    pod,
    ports,
    resources,
    selected,
    the,
    workloads,
)

NAMESPACE = "prefix-router"
OURS = {"prefix-router", "prefix-router-picker"}
DISCOVERY = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}

# No package of the system has a kubectl that is new enough; where one is there it is asked.
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")


def named(found: list[Manifest]) -> list[Any]:
    return [pytest.param(each, id=f"{each['kind']} {each['metadata']['name']}") for each in found]


each_workload = pytest.mark.parametrize("workload", named(workloads()))
each_of_ours = pytest.mark.parametrize(
    "workload", named([each for each in workloads() if each["metadata"]["name"] in OURS])
)


def test_every_file_is_put_together_by_its_folder() -> None:
    assert {path.name for path in FOLDERS} == {"base", "engines", "gateway", "inference-pool", "monitoring"}
    for folder in FOLDERS:
        assert {path for path in resources(folder) if path.parent == folder} == set(folder.glob("*.yaml")) - {
            folder / "kustomization.yaml"
        }
    assert {path for folder in FOLDERS for path in resources(folder)} == set(FILES)


@needs_kubectl
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_kustomize_builds_the_folder_to_the_same(folder: Path) -> None:
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    made = list(yaml.safe_load_all(built.stdout))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in made}
    assert len(by_name) == len(made)
    assert by_name == {(each["kind"], each["metadata"]["name"]): each for each in manifests(folder.name)}


@needs_kubectl
def test_the_readmes_kustomization_moves_all_to_another_namespace_with_settings_of_ones_own(tmp_path: Path) -> None:
    text = (KUBERNETES / "README.md").read_text()
    (mine,) = re.findall(r"^cat >mine/kustomization.yaml <<'END'\n(.*?)^END$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "deploy").symlink_to(KUBERNETES.parent)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/kustomization.yaml").write_text(mine)
    (tmp_path / "mine/prefix-router.yaml").write_text("workers: []\n")
    built = subprocess.run(["kubectl", "kustomize", tmp_path / "mine"], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    made = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(built.stdout)}
    assert {each["metadata"].get("namespace", each["metadata"]["name"]) for each in made.values()} == {"llm"}
    assert made["RoleBinding", "prefix-router"]["subjects"][0]["namespace"] == "llm"
    assert container(made["Deployment", "prefix-router"])["image"] == "REGISTRY/prefix-router:0.1.0"
    assert made["ConfigMap", "prefix-router"]["data"] == {"prefix-router.yaml": "workers: []\n"}


@pytest.mark.parametrize("manifest", named(manifests()))
def test_a_manifest_is_in_the_one_namespace_and_belongs_to_the_whole(manifest: Manifest) -> None:
    place = manifest["metadata"].get("namespace", manifest["metadata"]["name"])
    assert place == NAMESPACE
    assert manifest["metadata"]["labels"]["app.kubernetes.io/part-of"] == "prefix-router"


def test_names_are_given_once() -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in map(load, FILES)]
    assert len(set(names)) == len(names)


# What selects, and what it finds.


@each_workload
def test_a_workload_finds_its_own_pods_and_no_others(workload: Manifest) -> None:
    assert selected(workload["spec"]["selector"]["matchLabels"]) == [workload]
    for spread in pod(workload)["topologySpreadConstraints"]:
        assert spread["labelSelector"] == workload["spec"]["selector"]


@pytest.mark.parametrize("service", named(of_kind("Service")))
def test_a_service_finds_one_workload_and_its_ports(service: Manifest) -> None:
    (workload,) = selected(service["spec"]["selector"])
    for port in service["spec"]["ports"]:
        assert ports(workload)[port["targetPort"]] == port["port"]
    assert service["metadata"]["labels"].items() >= service["spec"]["selector"].items()


@pytest.mark.parametrize("budget", named(of_kind("PodDisruptionBudget")))
def test_a_budget_lets_one_pod_of_one_workload_go(budget: Manifest) -> None:
    assert len(selected(budget["spec"]["selector"]["matchLabels"])) == 1
    assert budget["spec"]["maxUnavailable"] == 1


@each_workload
def test_a_workload_has_a_budget_and_a_network_policy(workload: Manifest) -> None:
    budgets = [selected(each["spec"]["selector"]["matchLabels"]) for each in of_kind("PodDisruptionBudget")]
    policies = [selected(each["spec"]["podSelector"]["matchLabels"]) for each in of_kind("NetworkPolicy")]
    assert budgets.count([workload]) == policies.count([workload]) == 1


@pytest.mark.parametrize("policy", named(of_kind("NetworkPolicy")))
def test_a_network_policy_names_ports_and_pods_that_are_there(policy: Manifest) -> None:
    (workload,) = selected(policy["spec"]["podSelector"]["matchLabels"])
    for rule in policy["spec"]["ingress"]:
        assert {port["port"] for port in rule["ports"]} <= ports(workload).keys()
    for rule in policy["spec"].get("egress", []):
        for labels in [peer["podSelector"]["matchLabels"] for peer in rule.get("to", [])]:
            if labels == {"app.kubernetes.io/name": "redis"}:
                assert [port["port"] for port in rule["ports"]] == [6379]
            else:
                (other,) = selected(labels)
                assert {port["port"] for port in rule["ports"]} == set(ports(other).values())


@each_of_ours
def test_whoever_routes_may_reach_the_engines_and_they_let_it_in(workload: Manifest) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    inward = the("NetworkPolicy", "vllm")["spec"]["ingress"][0]
    assert inward["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert {port["port"] for port in inward["ports"]} == ports(the("StatefulSet", "vllm")).keys()
    outward = the("NetworkPolicy", workload["metadata"]["name"])["spec"]["egress"]
    assert any(
        rule.get("to") == [{"podSelector": the("NetworkPolicy", "vllm")["spec"]["podSelector"]}] for rule in outward
    )


def test_the_autoscaler_scales_the_gateway_and_its_cpu_is_asked_for() -> None:
    scaler = the("HorizontalPodAutoscaler", "prefix-router")["spec"]
    gateway = the("Deployment", scaler["scaleTargetRef"]["name"])
    assert "replicas" not in gateway["spec"]
    assert container(gateway)["resources"]["requests"]["cpu"]
    assert 2 <= scaler["minReplicas"] <= scaler["maxReplicas"]


def test_the_autoscalers_other_metric_is_one_that_the_gateway_has() -> None:
    ((_, scaler),) = options(KUBERNETES / "gateway/horizontalpodautoscaler.yaml")
    (_, own) = scaler["spec"]["metrics"]
    assert own["pods"]["metric"]["name"] in METRICS


def test_the_stateful_sets_service_is_headless() -> None:
    engines = the("StatefulSet", "vllm")
    service = the("Service", engines["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    assert selected(service["spec"]["selector"]) == [engines]


# Rights.


def test_the_account_may_watch_endpoint_slices_and_nothing_else() -> None:
    assert of_kind("ClusterRole") == of_kind("ClusterRoleBinding") == []
    (role,) = of_kind("Role")
    (binding,) = of_kind("RoleBinding")
    (account,) = of_kind("ServiceAccount")
    assert role["rules"] == [DISCOVERY]
    assert PATH == "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", "all that is asked for"
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]
    }  # fmt: skip
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": NAMESPACE}
    ]


@each_workload
def test_only_whoever_discovers_has_a_token(workload: Manifest) -> None:
    spec, ours = pod(workload), workload["metadata"]["name"] in OURS
    assert spec["automountServiceAccountToken"] is ours
    assert spec.get("serviceAccountName") == ("prefix-router" if ours else None)
    assert the("ServiceAccount", "prefix-router")["automountServiceAccountToken"] is False


@each_workload
def test_a_pod_keeps_to_the_restricted_standard_on_a_read_only_file_system(workload: Manifest) -> None:
    outer, inner = pod(workload)["securityContext"], container(workload)["securityContext"]
    assert outer["runAsNonRoot"] is True
    assert outer["runAsUser"] > 0
    assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inner == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod(workload).keys()
    assert the("Namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@each_of_ours
def test_a_pod_runs_the_image_of_this_version_as_its_user(workload: Manifest) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert container(workload)["image"] == f"prefix-router:{version}"
    outer = pod(workload)["securityContext"]
    assert f"USER {outer['runAsUser']}:{outer['runAsGroup']}\n" in (ROOT / "deploy/Dockerfile").read_text()


@each_workload
def test_variables_of_services_stay_out_of_the_environment(workload: Manifest) -> None:
    assert pod(workload)["enableServiceLinks"] is False


@each_workload
def test_a_pod_says_what_it_needs(workload: Manifest) -> None:
    needs = container(workload)["resources"]
    assert set(needs["requests"]) == {"cpu", "memory"}
    assert "memory" in needs["limits"]
    assert "cpu" not in needs["limits"]


@each_workload
def test_a_probe_asks_a_port_that_is_there(workload: Manifest) -> None:
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        (how,) = container(workload)[probe].keys() & {"httpGet", "grpc"}
        asked = container(workload)[probe][how]["port"]
        assert asked in (ports(workload) if how == "httpGet" else ports(workload).values())


# Metrics.


def test_the_alerts_are_those_that_prometheus_has_elsewhere() -> None:
    rules = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
    assert the("PrometheusRule", "prefix-router")["spec"] == rules


@pytest.mark.parametrize("monitor", named(of_kind("ServiceMonitor")))
def test_a_monitor_finds_services_with_its_port(monitor: Manifest) -> None:
    labels = monitor["spec"]["selector"]["matchLabels"]
    found = [each for each in of_kind("Service") if labels.items() <= each["metadata"]["labels"].items()]
    assert found
    for service in found:
        names = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= names


def test_the_job_is_the_one_that_the_alerts_ask_for() -> None:
    label = the("ServiceMonitor", "prefix-router")["spec"]["jobLabel"]
    jobs = {each["metadata"]["labels"][label] for each in of_kind("Service") if each["metadata"]["name"] in OURS}
    assert jobs == {"prefix-router"}
    assert 'up{job="prefix-router"}' in (PROMETHEUS / "rules.yml").read_text()


# The inference pool.


def test_the_pool_is_what_the_picker_discovers() -> None:
    pool, service = the("InferencePool", "vllm")["spec"], the("Service", "vllm")
    assert pool["selector"]["matchLabels"] == service["spec"]["selector"]
    assert [port["number"] for port in pool["targetPorts"]] == [ports(the("StatefulSet", "vllm"))["http"]]


def test_the_pool_asks_the_pickers_service_by_grpc() -> None:
    reference = the("InferencePool", "vllm")["spec"]["endpointPickerRef"]
    service = the(reference["kind"], reference["name"])
    (port,) = [port for port in service["spec"]["ports"] if port["port"] == reference["port"]["number"]]
    assert (port["name"], port["appProtocol"]) == ("ext-proc", "kubernetes.io/h2c")


def test_only_the_labelled_proxies_reach_the_picker_and_the_engines_beside_it() -> None:
    proxies = [{"namespaceSelector": {"matchLabels": {"prefix-router/data-plane": "true"}}}]
    (asked,) = [
        rule
        for rule in the("NetworkPolicy", "prefix-router-picker")["spec"]["ingress"]
        if {"port": "ext-proc"} in rule["ports"]
    ]
    assert asked == {"from": proxies, "ports": [{"port": "ext-proc"}]}
    assert {"from": proxies, "ports": [{"port": "http"}]} in the("NetworkPolicy", "vllm")["spec"]["ingress"]
    assert "kubectl label namespace NAME prefix-router/data-plane=true" in (KUBERNETES / "README.md").read_text()


def test_the_route_leads_to_the_pool() -> None:
    (rule,) = the("HTTPRoute", "vllm")["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    pool = the(backend["kind"], backend["name"])
    assert pool["apiVersion"].startswith(f"{backend['group']}/")
