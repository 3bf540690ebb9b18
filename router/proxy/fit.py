"""Whether the installed uvicorn fits the fast lane, which stands inside a class of uvicorn's that is no public API."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

USED = ("client", "connections", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser", "pipeline",
        "server_state", "tasks", "timeout_keep_alive", "timeout_keep_alive_task", "transport")  # fmt: skip
METHODS = ("connection_lost", "connection_made", "data_received", "on_body", "on_headers_complete", "on_message_begin",
           "on_message_complete", "on_response_complete", "pause_writing", "resume_writing", "shutdown",
           "_start_asgi_task", "_unset_keepalive_if_required")  # fmt: skip


def missing_attributes() -> list[str]:
    """What this lane uses and this uvicorn lacks; empty when all is well."""
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    lacking = [name for name in METHODS if not callable(getattr(HttpToolsProtocol, name, None))]
    loop = asyncio.new_event_loop()
    try:
        probe = HttpToolsProtocol(
            Config(app=_no_app, log_config=None, interface="asgi3", ws="none"), ServerState(), {}, _loop=loop
        )
        lacking += [name for name in USED if not hasattr(probe, name)]
    except Exception as wrong:
        lacking.append(f"its constructor ({type(wrong).__name__})")
    finally:
        loop.close()
    return lacking


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """Stands for an application in the check."""
