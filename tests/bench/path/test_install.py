"""The environments of the peers; nothing is fetched here."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.path import install
from bench.path.roster import BY_NAME


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip would have been asked; it fails for a package that is named `broken`."""
    made: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        made.append(command)
        return subprocess.CompletedProcess(command, int("broken" in command[-1]))

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(install.venv, "create", lambda folder, **_: Path(folder).mkdir(parents=True, exist_ok=True))
    return made


@pytest.mark.parametrize("name", install.PACKAGES)
def test_every_package_is_a_peers_and_pinned(name: str) -> None:
    assert BY_NAME[name].get == "make bench-peers"
    assert len(install.PACKAGES[name].split("==")) == 2


def test_every_peer_that_says_so_is_installed() -> None:
    assert {peer.name for peer in BY_NAME.values() if peer.get == "make bench-peers"} == set(install.PACKAGES)


def test_a_peer_is_installed_once(tmp_path: Path, calls: list[list[str]]) -> None:
    assert install.install("smg", tmp_path)
    assert install.install("smg", tmp_path)
    (only,) = calls
    assert only[0] == str(tmp_path / "smg/bin/python")
    assert only[-1] == install.PACKAGES["smg"]


def test_another_version_is_installed_anew(
    tmp_path: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install("smg", tmp_path)
    monkeypatch.setitem(install.PACKAGES, "smg", "smg==99.0")
    install.install("smg", tmp_path)
    assert [call[-1] for call in calls][1:] == ["smg==99.0"]


def test_one_that_cannot_be_installed_is_tried_again_next_time(
    tmp_path: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(install.PACKAGES, "smg", "broken==1")
    assert not install.install("smg", tmp_path)
    assert not install.install("smg", tmp_path)
    assert len(calls) == 2
    assert "smg: could not be installed" in capsys.readouterr().err
