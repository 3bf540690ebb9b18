"""The Kubernetes manifests: their files, what belongs together, and the packages that know their kinds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.deployment import DEPLOY

KUBERNETES = DEPLOY / "kubernetes"
FOLDERS = sorted(path.parent for path in KUBERNETES.glob("*/kustomization.yaml"))
FILES = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")

Manifest = dict[str, Any]

# Where npm has the type `I<Kind>` and the validator `<Kind>` of each.
MODELS, OPERATOR, GATEWAY = (
    "kubernetes-models",
    "@kubernetes-models/prometheus-operator",
    "@kubernetes-models/gateway-api",
)
KINDS = {
    ("v1", "Namespace"): f"{MODELS}/v1/Namespace",
    ("v1", "ConfigMap"): f"{MODELS}/v1/ConfigMap",
    ("v1", "Service"): f"{MODELS}/v1/Service",
    ("v1", "ServiceAccount"): f"{MODELS}/v1/ServiceAccount",
    ("apps/v1", "Deployment"): f"{MODELS}/apps/v1/Deployment",
    ("apps/v1", "StatefulSet"): f"{MODELS}/apps/v1/StatefulSet",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): f"{MODELS}/autoscaling/v2/HorizontalPodAutoscaler",
    ("policy/v1", "PodDisruptionBudget"): f"{MODELS}/policy/v1/PodDisruptionBudget",
    ("networking.k8s.io/v1", "NetworkPolicy"): f"{MODELS}/networking.k8s.io/v1/NetworkPolicy",
    ("rbac.authorization.k8s.io/v1", "Role"): f"{MODELS}/rbac.authorization.k8s.io/v1/Role",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): f"{MODELS}/rbac.authorization.k8s.io/v1/RoleBinding",
    ("monitoring.coreos.com/v1", "ServiceMonitor"): f"{OPERATOR}/monitoring.coreos.com/v1/ServiceMonitor",
    ("monitoring.coreos.com/v1", "PrometheusRule"): f"{OPERATOR}/monitoring.coreos.com/v1/PrometheusRule",
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): f"{GATEWAY}/gateway.networking.k8s.io/v1/HTTPRoute",
    ("inference.networking.k8s.io/v1", "InferencePool"): "./inference_pool.mjs",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(KUBERNETES))


def load(path: Path) -> Manifest:
    loaded: Manifest = yaml.safe_load(path.read_text("utf-8"))
    return loaded


def resources(folder: Path) -> list[Path]:
    """The files that a kustomization puts together; the ones here do nothing but that."""
    kustomization = load(folder / "kustomization.yaml")
    assert set(kustomization) == {"apiVersion", "kind", "resources"}, folder
    found: list[Path] = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        found += resources(path) if path.is_dir() else [path]
    return found


def manifests(*folders: str) -> list[Manifest]:
    """All that is applied with these folders, each once."""
    paths = dict.fromkeys(
        path for folder in folders or [f.name for f in FOLDERS] for path in resources(KUBERNETES / folder)
    )
    return [load(path) for path in paths]


def of_kind(kind: str, *folders: str) -> list[Manifest]:
    return [manifest for manifest in manifests(*folders) if manifest["kind"] == kind]


def the(kind: str, name: str) -> Manifest:
    (found,) = [manifest for manifest in of_kind(kind) if manifest["metadata"]["name"] == name]
    return found


def workloads() -> list[Manifest]:
    return of_kind("Deployment") + of_kind("StatefulSet")


def pod(workload: Manifest) -> Manifest:
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Manifest) -> Manifest:
    (only,) = pod(workload)["containers"]
    found: Manifest = only
    return found


def selected(labels: Mapping[str, str]) -> list[Manifest]:
    """The workloads whose pods have these labels."""
    return [each for each in workloads() if labels.items() <= each["spec"]["template"]["metadata"]["labels"].items()]


def ports(workload: Manifest) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workload).get("ports", [])}


def options(path: Path) -> Iterator[tuple[str, Manifest]]:
    """The manifest with each option that a file leaves in comments below `# option: NAME`, taken in."""
    lines = path.read_text("utf-8").splitlines()
    for at, line in enumerate(lines):
        if not line.strip().startswith("# option: "):
            continue
        taken, end = list(lines), at + 1
        while end < len(lines) and lines[end].strip().startswith("# "):
            taken[end] = lines[end].replace("# ", "", 1)
            end += 1
        yield line.split("option: ")[1], yaml.safe_load("\n".join(taken))


def type_complaints(checker: Path, manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """What the TypeScript compiler says of each by its type, in one run: unknown keys, wrong types, what is missing."""
    for path in checker.glob("manifest_*.ts"):
        path.unlink()
    for at, manifest in enumerate(manifests.values()):
        kind = manifest["kind"]
        text = f'import type {{ I{kind} }} from "{KINDS[manifest["apiVersion"], kind]}";\n'
        text += f"export const manifest: I{kind} = {json.dumps(manifest, indent=1)};\n"
        (checker / f"manifest_{at}.ts").write_text(text)
    compiler = ["node", "node_modules/typescript/bin/tsc", "--project", "."]
    said = subprocess.run(compiler, cwd=checker, capture_output=True, text=True, timeout=100).stdout
    lines = [line for line in said.splitlines() if ": error TS" in line]
    found = {
        name: "\n".join(x for x in lines if x.startswith(f"manifest_{at}.ts(")) for at, name in enumerate(manifests)
    }
    assert sum(text.count(": error TS") for text in found.values()) == len(lines), said
    return found


def value_complaints(checker: Path, manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """What the validator of each one's kind says, in one run: ranges, patterns, quantities."""
    asked = [
        {"module": KINDS[manifest["apiVersion"], manifest["kind"]], "kind": manifest["kind"], "manifest": manifest}
        for manifest in manifests.values()
    ]
    node = subprocess.run(
        ["node", "check.mjs"], cwd=checker, input=json.dumps(asked), capture_output=True, text=True, timeout=60
    )
    assert node.returncode == 0, node.stderr
    return dict(zip(manifests, json.loads(node.stdout), strict=True))
