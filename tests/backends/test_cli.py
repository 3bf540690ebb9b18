"""The console script."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from backends import cli

ROOT = Path(__file__).parents[2]


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["mock", "--version"]):
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        assert left.value.code == 0
        assert capsys.readouterr().out == f"prefix-worker {version('prefix-router')}\n"


def test_help_has_an_example_and_every_worker(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "prefix-worker mock --port 9001" in shown
    assert all(name in shown for name in cli.found_commands())


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["mock", "--port"], ["mock", "more"]])
def test_a_bad_command_line_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = cli.main(arguments)
    except SystemExit as left:
        status = left.code
    assert status == 2
    assert capsys.readouterr().err


def test_commands_are_found_by_their_folders() -> None:
    """Every folder with a module `command`, and only these; what has several words is written with hyphens."""
    found = cli.found_commands()
    assert {"mock", "medusa", "train-heads", "bench-decoding"} <= found.keys()
    assert "api" not in found
    assert all(re.fullmatch("[a-z-]+", name) for name in found)


def test_help_imports_no_engine() -> None:
    """It answers without the extra that one of them needs."""
    check = "import sys; from backends.cli import build_parser; build_parser([]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0
