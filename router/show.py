"""What the commands print: tables for people, JSON for pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table


def settings_table(rows: Sequence[tuple[str, Any, str]]) -> None:
    table = Table("setting", "value", "from", box=None, header_style="bold")
    for path, value, origin in rows:
        table.add_row(path, json.dumps(value, ensure_ascii=False), origin, style=None if origin != "default" else "dim")
    _plain().print(table)


def ask_explanation(url: str, body: bytes, path: str | None, token: str | None, *, as_json: bool) -> int:
    """Ask a running gateway and print its answer; the exit status."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.post(
            f"{url.rstrip('/')}/admin/explain", content=body, params={"path": path} if path else None, headers=headers,
            trust_env=False, timeout=10,
        )  # fmt: skip
        said = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as wrong:
        sys.stderr.write(f"prefix-router: no gateway answered at {url} ({type(wrong).__name__})\n")
        return 1
    if answer.status_code != 200 or not isinstance(said, dict) or "candidates" not in said:
        sys.stderr.write(f"prefix-router: {_trouble(said)}\n")
        return 1
    if as_json:
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
    else:
        _print_explanation(said)
    return 0


def _plain() -> Console:
    """Ids and values are shown as they are: `[fd00::1]:80` is no markup."""
    return Console(soft_wrap=True, markup=False, emoji=False)


def _trouble(said: Any) -> str:
    """What an answer that is no explanation says, if it is the gateway's; else that it is not."""
    error = said.get("error") if isinstance(said, dict) else None
    told = error.get("message") if isinstance(error, dict) else error
    return str(told or f"what answered is no gateway: {json.dumps(said)[:200]}")


def _print_explanation(said: dict[str, Any]) -> None:
    console = _plain()
    console.print(said["chosen"], style="bold", end="")
    console.print(f"  reason: {said['reason']}, policy: {said['policy']}")
    console.print(
        f"a prompt of about {said['prompt_tokens']} tokens, its key {said['key_depth']} bytes deep, home {said['home']}"
    )
    table = Table("worker", "state", "in flight", "wait", "expected cached", "cost", box=None, header_style="bold")
    for each in said["candidates"]:
        cells = (each["state"], each["in_flight"], each["wait_tokens"], each["expected_cached_tokens"], each["cost"])
        table.add_row(each["worker"], *map(str, cells), style="green" if each["worker"] == said["chosen"] else None)
    console.print(table)
    console.print("waits, cached and costs are in prefill tokens", style="dim")
