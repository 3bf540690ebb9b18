"""`prefix-worker medusa` as users start it, the packaged model included."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends import cli
from backends.cli import build_parser
from backends.extras import TORCH
from backends.medusa.command import plan_of
from backends.medusa.plan import Plan
from tests.support.medusa_process import PATIENCE, ROOT, Process, process
from tests.support.tiny_worker import saved

TINY = ("--max-model-len", "160")

pytestmark = pytest.mark.xdist_group("medusa-command")


@pytest.fixture(scope="module")
def real() -> Iterator[Process]:
    """The packaged model, loaded once."""
    with process() as worker:
        yield worker.until_loaded()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(tmp_path_factory.mktemp("models") / "tiny"))


def text_of(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def test_the_packaged_model_answers_and_says_the_same_whole_and_streamed(real: Process) -> None:
    whole = real.chat("What is a tide? Use one emoji.", max_tokens=40)
    assert "tide" in text_of(whole).lower()
    assert "".join(real.stream("What is a tide? Use one emoji.", max_tokens=40)) == text_of(whole)
    assert whole["usage"]["completion_tokens"] <= 40


def test_an_answer_that_ends_by_itself_shows_no_control_token(real: Process) -> None:
    answer = real.chat("Say only the word yes.", max_tokens=60)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "<|" not in text_of(answer)


def test_the_next_turn_is_warm_and_a_salt_keeps_it_cold(real: Process) -> None:
    question = "Tell me about the moon, please. " * 4
    first = real.chat(question, max_tokens=12)
    turns = [("user", question), ("assistant", text_of(first)), ("user", "And the sun?")]
    body = {"messages": [{"role": role, "content": text} for role, text in turns], "max_tokens": 4}
    cached = [
        real.http.post("/v1/chat/completions", json={**body, **salt}).json()["usage"]["prompt_tokens_details"]
        for salt in ({}, {"cache_salt": "s"})
    ]
    assert cached[0]["cached_tokens"] >= first["usage"]["prompt_tokens"] // 16 * 16
    assert cached[1]["cached_tokens"] == 0


def test_many_streams_say_what_each_says_alone(real: Process) -> None:
    questions = [f"Name {count} animals of the sea." for count in ("two", "three", "four", "five", "six")]
    ask: Callable[[str], str] = lambda text: "".join(real.stream(text, max_tokens=24))  # noqa: E731
    with ThreadPoolExecutor(5) as pool:
        together = list(pool.map(ask, questions))
    assert together == [ask(question) for question in questions]


def test_a_long_prompt_does_not_stall_who_is_decoding(real: Process) -> None:
    """It is computed in a dozen parts; meanwhile the other's tokens keep coming."""
    order: list[str] = []
    started = threading.Event()

    def short() -> None:
        for _ in real.stream("Count from one to three hundred.", max_tokens=120, ignore_eos=True):
            order.append("short")
            if len(order) == 3:
                started.set()

    running = threading.Thread(target=short)
    running.start()
    assert started.wait(PATIENCE)
    before = len(order)
    real.chat("A new sentence about nothing much. " * 190, max_tokens=1)
    order.append("long")
    running.join(PATIENCE)
    assert order.index("long") - before >= 8


def test_a_client_that_goes_frees_its_seat(real: Process) -> None:
    for _ in real.stream("Tell me a long story.", max_tokens=1000, ignore_eos=True):
        break
    while real.http.get("/stats").json()["engine"]["running"]:
        pass
    assert real.http.get("/stats").json()["engine"]["finished"]["abort"] >= 1


def test_it_listens_at_once_and_says_how_far_it_is_and_nothing_else(folder: str) -> None:
    with process("--model-path", folder, *TINY) as worker:
        assert worker.line.startswith("prefix-worker medusa listening on http://127.0.0.1:")
        assert worker.http.get("/health").status_code in (200, 503)
        worker.until_loaded().chat("a secret prompt", max_tokens=3)
        worker.http.post("/v1/chat/completions", json={"messages": ["a secret prompt"]})
        status, out, err = worker.end()
    assert (status, out) == (0, "")
    assert all(line.startswith("prefix-worker medusa: ") for line in err.splitlines())
    assert "secret" not in err


def test_a_signal_while_it_loads_is_a_clean_end() -> None:
    with process() as worker:
        assert worker.http.get("/health").status_code == 503
        assert worker.end()[0] == 0


@pytest.mark.parametrize(("seconds", "whole"), [("60", True), ("0", False)])
def test_a_signal_lets_running_answers_finish_for_as_long_as_it_was_told(
    folder: str, seconds: str, whole: bool
) -> None:
    with process("--model-path", folder, *TINY, "--drain-seconds", seconds) as worker:
        worker.until_loaded()
        texts: list[str] = []
        try:
            for text in worker.stream("a", max_tokens=60, ignore_eos=True, logprobs=True):
                if not texts:
                    worker.popen.send_signal(signal.SIGTERM)
                texts.append(text)
        except httpx.RemoteProtocolError:
            assert not whole
        assert worker.popen.wait(PATIENCE) == 0


def test_a_model_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    with process("--model-path", str(tmp_path)) as worker:
        status, _, err = worker.end(0)
    assert status == 1
    assert err.splitlines()[-1].startswith(f"prefix-worker: {tmp_path}/config.json cannot be read")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("gone", "flags", "said"),
    [
        ("torch", [], "prefix-worker: prefix-worker medusa needs the extra medusa: torch cannot be found; "),
        ("zmq", ["--kv-events", "tcp://127.0.0.1:1"], "prefix-worker: KV events need pyzmq: "),
    ],
)
def test_what_is_not_installed_is_named_without_a_traceback(gone: str, flags: list[str], said: str) -> None:
    code = f"import sys; sys.modules['{gone}'] = None; from backends.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "medusa", "--port", "0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_help_says_what_is_not_lossless_and_what_is_not_identical(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["medusa", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "NOT lossless" in shown
    assert "bfloat16 is quicker, but not token-identical" in shown
    assert "prefix-worker medusa --port 9001" in shown


def test_all_faults_of_a_command_line_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--port", "x", "--dtype", "int8", "--device", "tpu", "--threads", "0", "--max-model-len", "1", "--bogus"]
    assert cli.main(["medusa", *flags]) == 2
    shown = capsys.readouterr().err
    for name in (
        "--port",
        "--dtype: expected float32 or bfloat16",
        "--device",
        "--threads",
        "--max-model-len",
        "--bogus",
    ):
        assert name in shown


def planned(*flags: str) -> Plan:
    complaints: list[str] = []
    found = build_parser(complaints).parse_args(["medusa", *flags])
    assert complaints == []
    return plan_of(found)


def test_flags_become_a_plan() -> None:
    plan = planned("--model", "a", "--model", "b", "--no-lookup", "--typical", "--cache-blocks", "0", "--heads", "none",
                   "--model-path", "x.gguf", "--dtype", "bfloat16", "--api-key", "k")  # fmt: skip
    assert (plan.models, plan.access.key) == (("a", "b"), "k")
    assert (plan.load.look, plan.load.typical, plan.load.cache_blocks, plan.load.heads) == (False, True, 0, "none")
    assert (plan.load.model, plan.load.dtype) == (Path("x.gguf"), "bfloat16")


def test_without_flags_the_plan_is_the_plain_one_on_its_usual_port() -> None:
    plan, plain = planned(), Plan(port=9001)
    assert plan == plain
    assert "torch" in TORCH
