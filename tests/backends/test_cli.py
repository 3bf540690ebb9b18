"""The console script."""

from importlib.metadata import version

import pytest

from backends import cli


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


def test_workers_are_found_by_their_folders() -> None:
    """Every folder with a module `command`, and only these."""
    found = cli.found_commands()
    assert "mock" in found
    assert "api" not in found
