"""Settings of discovery against this machine: files that are not there, names that nobody knows."""

from pathlib import Path
from typing import Any

from router.discovery.faults import discovery_faults
from router.sections.discovery import Discovery
from tests.support.certificates import certificates

DIALECTS = ("auto", "openai")


def faults(**kubernetes: Any) -> list[str]:
    return discovery_faults(Discovery.model_validate({"kubernetes": {"service": "vllm", **kubernetes}}), DIALECTS)


def test_there_is_none_without_discovery_and_with_good_settings(tmp_path: Path) -> None:
    assert discovery_faults(Discovery(), DIALECTS) == []
    assert faults() == []
    (tmp_path / "config").touch()
    tls = {"ca": certificates().file("ca.pem")}
    assert faults(kubeconfig=str(tmp_path / "config"), worker={"dialect": "openai", "tls": tls}) == []


def test_all_are_found_at_once_each_with_its_path() -> None:
    found = faults(kubeconfig="/nowhere", worker={"dialect": "latin", "tls": {"ca": certificates().file("not.pem")}})
    assert found[:2] == [
        "discovery.kubernetes.kubeconfig: there is no file /nowhere",
        "discovery.kubernetes.worker.dialect: there is no dialect 'latin'; expected one of auto, openai",
    ]
    assert found[2].startswith("discovery.kubernetes.worker.tls.ca: expected certificates in PEM")
    assert len(found) == 3
