"""The image's recipe: reproducible, small in rights, and the same for any builder."""

import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.deployment import DEPLOY, ROOT

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
STEPS = [line for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
LOCKS = [ROOT / "requirements.lock", DEPLOY / "build.lock"]


def test_every_stage_starts_from_the_one_base_image() -> None:
    bases = {step.split()[1] for step in STEPS if step.startswith("FROM ")}
    assert bases == {"python:3.11-slim-bookworm"}


def test_no_syntax_line_would_make_a_builder_pull_its_front_end() -> None:
    assert not re.search(r"^#\s*syntax\s*=", DOCKERFILE, re.MULTILINE)


def test_packages_come_from_hashed_locks_only() -> None:
    installs = [part for step in STEPS for part in re.findall(r"pip (?:--python \S+ )?(?:install|wheel)[^&]*", step)]
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes -r" in install or ("--no-deps" in install and "--no-index" in install)


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def test_the_build_lock_holds_every_build_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    compiling = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]["dependencies"]
    wanted = [*project["build-system"]["requires"], *compiling]
    assert {re.split(r"[^\w-]", name)[0] for name in wanted} <= set(pins(DEPLOY / "build.lock"))


def test_the_image_is_built_with_the_versions_that_the_tests_compile_with() -> None:
    assert pins(DEPLOY / "build.lock").items() <= pins(ROOT / "requirements-dev.lock").items()


def test_the_compiler_works_in_the_first_stage_and_stays_there() -> None:
    first, last = "\n".join(STEPS).split("\nFROM ")
    assert "apt-get install -y --no-install-recommends gcc libc6-dev" in first
    assert "HATCH_BUILD_HOOK_ENABLE_MYPYC=1 /build/bin/pip wheel" in first
    assert "apt-get" not in last
    assert re.findall(r"COPY --from=\S+ (\S+)", last) == ["/app"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_pins_and_hashes_everything_and_names_no_host(lock: Path) -> None:
    text = lock.read_text()
    entries = re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==\S+.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_the_last_user_is_a_number_that_is_not_root() -> None:
    users = [step.split()[1] for step in STEPS if step.startswith("USER ")]
    assert users[-1] == "10001:10001"


def test_python_is_called_by_name_as_base_images_keep_it_in_different_places() -> None:
    assert not re.search(r"/usr/(local/)?bin/python", DOCKERFILE)


def test_only_what_the_recipe_copies_travels_to_the_builder() -> None:
    copied = {
        name for step in STEPS if step.startswith("COPY ") and "--from" not in step for name in step.split()[1:-1]
    }
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on the test's output."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def health_check(address: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, DEPLOY / "healthcheck.py", address], capture_output=True, text=True, timeout=30
    )


def test_the_health_check_passes_on_200_only(server: str) -> None:
    assert health_check(f"{server}/healthz").returncode == 0
    sick = health_check(f"{server}/readyz")
    assert sick.returncode == 1
    assert "503" in sick.stderr


def test_the_health_check_fails_with_one_line_where_nothing_listens(server: str) -> None:
    nowhere = health_check("http://127.0.0.1:1/healthz")
    assert nowhere.returncode == 1
    assert len(nowhere.stderr.splitlines()) == 1
