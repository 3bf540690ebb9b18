"""`prefix-worker train-heads` as users start it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backends import cli
from backends.medusa.heads_file import load
from backends.train_heads import command

QUICK = (
    "--most-prompts", "16", "--most-unseen", "8", "--most-tokens", "20", "--seats", "4", "--depth", "2", "--inner", "8",
    "--vocabulary", "64", "--steps", "20", "--windows", "2", "--rate", "0.01",
)  # fmt: skip
ROOT = Path(__file__).parents[3]


def started(*arguments: object) -> int:
    return cli.main(["train-heads", *map(str, arguments)])


def test_it_writes_heads_that_load_and_shows_how_good_they_are(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "mine.safetensors"
    assert started("--work", tmp_path / "w", "--model-path", tiny_folder, "--out", out, *QUICK) == 0
    assert load(out).base["width"] == 32
    shown, said = capsys.readouterr()
    assert "head 2" in shown
    assert str(out) in shown
    assert "reading the model" in said


def test_a_second_run_goes_on_and_tells_the_same_in_json(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--work", tmp_path, "--model-path", tiny_folder, *QUICK, "--json")
    assert started(*flags) == 0
    first, before = json.loads(capsys.readouterr().out), (tmp_path / "heads.safetensors").read_bytes()
    assert started(*flags) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert (tmp_path / "heads.safetensors").read_bytes() == before
    assert first["out"] == str(tmp_path / "heads.safetensors")
    assert first["bytes"] == len(before)
    assert first["sets"].keys() == {"chat"}


def test_only_answers_writes_no_heads(tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--work", tmp_path, "--model-path", tiny_folder, *QUICK)
    assert started(*flags, "--only", "answers", "--part", "1/1") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["answers"]
    assert capsys.readouterr().out == ""
    assert started(*flags, "--only", "heads", "--from", next((tmp_path / "answers").iterdir())) == 1
    assert "not a file of heads" in capsys.readouterr().err


def test_all_faults_of_a_command_line_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--traces", tmp_path / "none", "--prompts", tmp_path / "none", "--from", tmp_path / "none")
    assert started("--work", tmp_path, "--part", "1/2", *flags) == 2
    said = capsys.readouterr().err
    assert all(f"{flag}" in said for flag in ("--part", "--traces", "--prompts", "--from"))
    assert len(said.splitlines()) == 4


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--part", "0/2"), ("--part", "3/2"), ("--part", "1"), ("--part", "a/b"), ("--only", "all"), ("--kind", "eagle"),
     ("--steps", "0"), ("--rate", "0")],
)  # fmt: skip
def test_a_bad_value_is_2_and_says_what_was_expected(
    tmp_path: Path, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert started("--work", tmp_path, flag, value) == 2
    said = capsys.readouterr().err
    assert f"{flag}: expected" in said
    assert repr(value) in said


def test_a_model_that_is_none_is_1_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert started("--work", tmp_path, "--model-path", tmp_path) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"prefix-worker: {tmp_path}")


def test_a_stop_is_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "made", stopped)
    assert started("--work", tmp_path) == 130


def test_without_the_extra_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert started("--work", tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "torch" in line
    assert "requirements-medusa.lock" in line


def test_help_needs_nothing_of_the_extra() -> None:
    check = (
        "import sys; from backends.cli import main\n"
        "try: main(['train-heads', '--help'])\n"
        "except SystemExit as left: assert left.code == 0\n"
        "heavy = {'torch', 'safetensors', 'tokenizers', 'gguf'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "prefix-worker train-heads --work" in done.stdout
