"""Where a peer is looked for."""

from pathlib import Path

import pytest

from bench.path import peer


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_an_environment_counts_once_the_package_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "ENVIRONMENTS", tmp_path)
    find = peer.in_environment("other", "python", installed="other-router")
    assert find() is None
    program(tmp_path / "other/bin/python")
    assert find() is None
    program(tmp_path / "other/bin/other-router")
    assert find() == str(tmp_path / "other/bin/python")


def test_a_program_is_looked_for_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peer.in_path("no-such-proxy")() is None
    program(tmp_path / "no-such-proxy")
    assert peer.in_path("no-such-proxy")() == str(tmp_path / "no-such-proxy")


def test_a_place_has_the_urls_of_its_workers(tmp_path: Path) -> None:
    assert peer.Place(1, 2, (6000, 6001), tmp_path).urls == ["http://127.0.0.1:6000", "http://127.0.0.1:6001"]
