"""The gateway's own log: the level asked for, whose line it is, and that nobody else writes lines there."""

import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observe.own_log import OneLine, safe

LINES = """
import logging
from router.observe.own_log import set_up_logging
set_up_logging({level!r}, {mark!r})
logging.getLogger("router").info("a worker came")
logging.getLogger("router").error("100%% wrong")
logging.getLogger("uvicorn.error").warning("of no interest")
logging.getLogger("httpx").info("of no interest")
"""
WICKED = "name\r\n2026-01-01 00:00:00 ERROR forged\x1b]0;title\x07\x1b[31m \x9b31m \u2028 \u202e \x7f \ud800"


@pytest.mark.parametrize(
    ("level", "mark", "said"),
    [("info", "", ["INFO a worker came", "ERROR 100%% wrong"]), ("error", "[1%] ", ["ERROR [1%] 100%% wrong"])],
)
def test_it_writes_what_was_asked_for_to_standard_error(level: str, mark: str, said: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LINES.format(level=level, mark=mark)], capture_output=True, text=True, check=True
    )
    assert [line.split(" ", 2)[2] for line in ended.stderr.splitlines()] == said
    assert ended.stdout == ""


def written(message: str, *values: object, name: str = "router", raised: BaseException | None = None) -> str:
    info = (type(raised), raised, raised.__traceback__) if raised is not None else None
    record = logging.LogRecord(name, logging.ERROR, __file__, 1, message, values, info)
    return OneLine("%(levelname)s %(message)s").format(record)


def test_what_comes_from_outside_stays_on_its_line_and_says_nothing_to_a_terminal() -> None:
    line = written("worker %s: %s", WICKED, "gone")
    assert line.splitlines() == [line]
    assert line.isascii()
    assert line.isprintable()
    assert line.endswith(": gone")
    assert "\\x1b[31m" in line


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_one_harmless_line(text: str) -> None:
    out = safe(text)
    assert len(out.splitlines()) <= 1
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in out)
    out.encode()


def test_names_and_passwords_in_urls_are_left_out() -> None:
    assert written("at %s", "redis://me:s3cret@db:6379/0 and http://x@w/") == "ERROR at redis://db:6379/0 and http://w/"


def raising() -> BaseException:
    try:
        try:
            {}["the prompt's text\nERROR forged"]  # type: ignore[index]
        except KeyError as first:
            raise ValueError("s3cret \x1b[31m") from first
    except ValueError as wrong:
        return wrong


def test_a_traceback_says_where_and_what_kind_and_quotes_nothing() -> None:
    first, *rest = written("a fault", raised=raising()).splitlines()
    assert first == "ERROR a fault"
    assert all(line.startswith("  | ") for line in rest)
    text = "\n".join(rest)
    assert "builtins.KeyError" in text
    assert rest[-1] == "  | builtins.ValueError"
    assert "in raising" in text
    for line in rest:
        assert "File " in line or "s3cret" not in line.replace('raise ValueError("s3cret', "")


def test_an_error_of_the_system_says_its_reason() -> None:
    assert written("no", raised=OSError(28, "No space left on device", "/a/name")).endswith(
        "builtins.OSError: No space left on device"
    )


def test_an_error_that_is_its_own_cause_ends() -> None:
    one, other = ValueError(), ValueError()
    one.__cause__, other.__cause__ = other, one
    assert len(written("x", raised=one)) < 1000


def test_the_event_loops_complaints_do_not_repeat_arguments() -> None:
    line = written("Exception in callback Journey.feed(b'the prompt')\nhandle: <Handle b'the prompt'>", name="asyncio")
    assert line == "ERROR Exception in callback Journey.feed"
