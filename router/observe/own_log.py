"""The gateway's own log, on standard error: what happened to workers and to itself, never what passed through it."""

from __future__ import annotations

import logging
import sys


def set_up_logging(level: str, mark: str = "") -> None:
    """`mark` stands before every message, where several processes write one log."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format=f"%(asctime)s %(levelname)s {mark.replace('%', '%%')}%(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
