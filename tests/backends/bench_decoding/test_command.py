"""The command, from its flags to its figures."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.bench_decoding.command import MissingHeadsError, modes_for
from backends.bench_decoding.modes import MODES
from backends.cli import main

QUICK = ("--batch", "2", "--prompts", "2", "--tokens", "4", "--rounds", "1")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit status, and what was written to standard output and standard error."""

    def called(*flags: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["bench-decoding", *map(str, flags)])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return called


def test_all_modes_are_measured_shown_and_drawn(
    run: Run, folder: Path, heads_on_disk: Callable[[str], Path], tmp_path: Path
) -> None:
    heads = ("--heads", heads_on_disk("hydra"), "--heads-medusa", heads_on_disk("medusa"))
    picture = tmp_path / "decoding.png"
    status, out, err = run("--model-path", folder, *heads, "--set", "chat", *QUICK, "--plot", picture)
    assert status == 0
    assert all(f" {mode} " in out for mode in MODES)
    assert "chat, batch 2: hydra" in err
    assert picture.stat().st_size > 1000


def test_json_says_how_it_was_measured_and_no_place_of_this_machine(run: Run, folder: Path, traces: Path) -> None:
    flags = ("--model-path", folder, "--traces", traces, "--set", "mt_bench", "--set", "chat", "--json")
    status, out, _ = run(*flags, *QUICK)
    assert status == 0
    said = json.loads(out)
    assert [(one["set"], one["mode"]) for one in said["measured"]] == [
        (of, mode) for of in ("mt_bench", "chat") for mode in ("plain", "lookup")
    ]
    assert all(one["rows_differing"] == 0 and one["speed_up"]["min"] > 0 for one in said["measured"])
    assert said["model"] == "tiny"
    assert (said["clock"], said["threads"], said["prompts"], said["rounds"]) == ("cpu", 1, 2, 1)
    assert len(said["costs"]["tokens"]) == len(said["costs"]["seconds"])
    assert str(folder.parent) not in out


def test_the_first_token_is_measured_cold_and_warm(run: Run, folder: Path) -> None:
    status, out, _ = run("--model-path", folder, "--ttft", "--rounds", "2", "--prompts", "4", "--json")
    said = json.loads(out)
    assert status == 0
    assert said["measured"] == []
    assert said["first_token"]["cached"] == 992
    assert said["first_token"]["same_token"] == 2
    assert len(said["first_token"]["ratio"]["rounds"]) == 2


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--mode", "magic"), "--mode: expected"),
        (("--set", "jokes"), "--set: expected"),
        (("--batch", "0"), "--batch: expected a whole number of at least 1, got '0'"),
        (("--dtype", "int8"), "--dtype: expected float32 or bfloat16"),
        (("--set", "agent"), "the set agent needs --traces FOLDER"),
        (("--traces", "/nowhere"), "--traces /nowhere: no such folder"),
        (("--plot", "picture.txt"), "--plot picture.txt: expected a file name"),
        (("--plot", "picture.png", "--ttft"), "--plot draws decoding"),
    ],
)
def test_a_bad_flag_is_named(run: Run, flags: tuple[str, ...], complaint: str) -> None:
    status, out, err = run(*flags)
    assert (status, out) == (2, "")
    assert complaint in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--model-path", "/nowhere"), "/nowhere: neither a .gguf file nor a folder"),
        (("--prompts", "100000"), "--prompts asks for 100000"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(run: Run, flags: tuple[str, ...], complaint: str) -> None:
    status, out, err = run("--mode", "lookup", *flags)
    assert (status, out) == (1, "")
    assert complaint in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_mode_whose_heads_are_not_there_is_refused_or_left_out_when_nobody_asked(run: Run, folder: Path) -> None:
    status, _, err = run("--model-path", folder, "--mode", "medusa")
    assert status == 1
    assert err == "prefix-worker: the mode medusa needs --heads-medusa FILE\n"
    assert modes_for(None, {}) == ["plain", "lookup"]
    assert modes_for(None, {"heads": Path("one"), "heads_medusa": Path("other")}) == list(MODES)
    assert modes_for(["lookup", "lookup", "plain"], {}) == ["plain", "lookup"]
    with pytest.raises(MissingHeadsError, match="the mode hydra needs --heads FILE"):
        modes_for(["hydra"], {})


def test_without_torch_one_line_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    status, out, err = run()
    assert (status, out) == (1, "")
    assert err.startswith("prefix-worker: prefix-worker bench-decoding needs the extra medusa: torch cannot be found; ")
    assert err.count("\n") == 1
