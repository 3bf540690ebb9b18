"""The gateway's own log: the level asked for, and whose line it is."""

import subprocess
import sys

import pytest

LINES = """
import logging
from router.observe.own_log import set_up_logging
set_up_logging({level!r}, {mark!r})
logging.getLogger("router").info("a worker came")
logging.getLogger("router").error("100%% wrong")
logging.getLogger("uvicorn.error").warning("of no interest")
logging.getLogger("httpx").info("of no interest")
"""


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
