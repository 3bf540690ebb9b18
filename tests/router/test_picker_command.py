"""The command line of the picker: flags over the file, and what to install where something is missing."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from router import picker_command
from router.cli import main, settings_from
from router.layers import SettingsError


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    picker_command.add(parser.add_subparsers(), settings_from)
    return parser.parse_args(["picker", *arguments])


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings that would be served with."""
    seen: list[Any] = []

    def serve(loaded: Any, _: Any) -> int:
        seen.append(loaded)
        return 0

    monkeypatch.setattr("router.picking.serve_picks", serve)
    return seen


def test_flags_come_over_the_file(served: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("picker: {port: 1, fallbacks: 3}\nworkers: [http://a:1]\nrouting: {policy: random}\n")
    options = parsed(
        "--config", str(file), "--port", "2", "--http-port", "3", "--worker", "http://b:1", "--host", "::1"
    )
    assert options.run(options) == 0
    [(settings, origins)] = served
    assert (settings.picker.host, settings.picker.port, settings.picker.http_port) == ("::1", 2, 3)
    assert settings.picker.fallbacks == 3
    assert [worker.url for worker in settings.workers] == ["http://b:1"]
    assert settings.routing.policy == "random"
    assert origins["picker.port"] == "command line"
    chosen = parsed("--policy", "least_work")
    chosen.run(chosen)
    assert served[-1][0].routing.policy == "least_work"


def test_what_is_missing_is_named_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("router.picker_command.find_spec", lambda _: None)
    assert main(["picker"]) == 2
    assert "pip install 'prefix-router[envoy]'" in capsys.readouterr().err
    options = parsed()
    with pytest.raises(SettingsError):
        options.run(options)


def test_a_certificate_and_a_key_go_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFIX_ROUTER_PICKER__TLS__KEY", "a-file")
    assert main(["picker"]) == 2
    assert "picker.tls: certificate and key go together" in capsys.readouterr().err
