"""All deployment files: they parse, hold no secret and name no registry."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.deployment import COMPOSE_FILE, DEPLOY, ROOT

INSTALLER = ROOT / ".ci/install-system.sh"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
FILES += [COMPOSE_FILE, ROOT / ".dockerignore", INSTALLER]
SECRETS = re.compile(
    r"-----BEGIN|\b(?:sk|ghp|glpat|xox[abp])[-_]\w{8}|\bAKIA[0-9A-Z]{16}"
    r"|(?:password|token|api_key|secret)\w*[\"']?\s*[:=]\s*[\"']?(?!\$\{|-?change-me)[A-Za-z0-9+/_-]{8,}",
    re.IGNORECASE,
)
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


@each_file
def test_a_file_parses(path: Path) -> None:
    text = path.read_text()
    if path.suffix in {".yml", ".yaml"}:
        assert isinstance(yaml.safe_load(text), dict)
    elif path.suffix == ".json":
        assert isinstance(json.loads(text), dict)
    elif path.suffix == ".sh":
        subprocess.run(["sh", "-n", path], check=True, timeout=10)


@each_file
def test_a_file_holds_no_secret(path: Path) -> None:
    assert SECRETS.findall(path.read_text()) == []


@pytest.mark.parametrize(
    "leak", ["admin_token: Zm9vYmFyYmF6", 'GF_SECURITY_ADMIN_PASSWORD: "hunter2hunter2"', "api_key=sk-0123456789abcdef"]
)
def test_a_secret_would_be_found(leak: str) -> None:
    assert SECRETS.search(leak)


@each_file
def test_a_file_names_no_registry(path: Path) -> None:
    hosts = re.findall(r"\b(?:docker|ghcr|quay|pypi|npmjs|pythonhosted|debian)\.(?:io|org|com)\b", path.read_text())
    assert [host for host in hosts if host != "docker.io" or path != INSTALLER] == []


def test_a_tokens_default_is_an_open_placeholder_that_the_file_points_out() -> None:
    text = COMPOSE_FILE.read_text()
    assert re.findall(r"\$\{(\w+(?:TOKEN|PASSWORD)):-([^}]*)\}", text) == [
        ("PREFIX_ROUTER_ADMIN_TOKEN", "change-me"),
        ("GRAFANA_ADMIN_PASSWORD", "change-me"),
    ]
    assert "Set PREFIX_ROUTER_ADMIN_TOKEN and GRAFANA_ADMIN_PASSWORD" in text
