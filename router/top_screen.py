"""How a frame of `prefix-router top` looks: within 80 columns, wider where the terminal is.

Ids, reasons and models come from outside: they are shown as they are, never as markup or control codes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.top_view import View, WorkerRow, as_object

NOTHING = "-"
STYLES = {"ready": "green", "down": "bold red"}
FIXED_LINES = 12  # around the two tables' rows: titles, totals, heads and gaps
LEAST_DECISIONS = 3


def frame(url: str, shown: View | None, trouble: str | None, height: int | None) -> Group:
    """The whole picture. `height` is the terminal's, None where the frame may be as long as it likes."""
    parts: list[RenderableType] = [Text(f"prefix-router top  {url}", style="bold", overflow="fold")]
    if trouble is not None:
        parts.append(Text(trouble, style="bold red", overflow="fold"))
    if shown is None:
        return Group(*parts)
    if shown.panic:
        parts.append(Text("Nearly all workers look bad; those that were well before are still tried.", style="red"))
    room = 10 if height is None else max(LEAST_DECISIONS, height - FIXED_LINES - len(shown.workers))
    return Group(*parts, *_totals(shown), Text(), _workers(shown), Text(), _decisions(shown, room))


def one_object(url: str, shown: View | None, trouble: str | None) -> str:
    """A frame as one JSON object on one line; with `error`, its figures are the last there were, if any."""
    said = {"url": url, "error": trouble, **(as_object(shown) if shown is not None else {})}
    return json.dumps({name: value for name, value in said.items() if name != "error" or value is not None})


def _totals(shown: View) -> list[Text]:
    totals = shown.totals
    ready = f"{totals.workers_ready} of {len(shown.workers)} workers ready"
    times = f"first token p50 {_time(totals.first_token_p50)}, p90 {_time(totals.first_token_p90)}"
    lines = [
        f"{ready}, {totals.in_flight} in flight, {totals.queued} queued, policy {shown.policy or NOTHING}",
        f"{_rate(totals.requests_per_second)} requests/s, {times}, in time {_share(totals.slo_met_share)}",
        f"prompt tokens from cache {_share(totals.cached_share)}",
    ]
    if totals.reasons:
        lines.append("reasons: " + ", ".join(f"{name} {share:.0%}" for name, share in totals.reasons.items()))
    if totals.shadows:
        differs = ", ".join(f"{name} differs in {share:.0%}" for name, share in totals.shadows.items())
        lines.append(f"shadow: {differs}")
    if totals.saved_tokens is not None:
        lines[2] += f", affinity has saved {_short(totals.saved_tokens)} tokens"
    return [Text(_plain(line), overflow="fold") for line in lines]


def _workers(shown: View) -> Table:
    table = _table()
    table.add_column("worker")  # alone may shrink
    table.add_column("state", no_wrap=True)
    for head in ("in\nflight", "tokens\nowed", "wait", "prefill\n/s", "req\n/s", "from\ncache", "got of\nexpected",
                 "fail-\nures"):  # fmt: skip
        table.add_column(head, justify="right", no_wrap=True)
    for each in shown.workers:
        table.add_row(*_cells(each))
    if not shown.workers:
        table.add_row("no worker is known")
    return table


def _cells(each: WorkerRow) -> list[str | Text]:
    pair = f"{_short(each.cached_tokens)}/{_short(each.predicted_cached_tokens)}"
    return [
        _name(each.id), Text(_plain(each.state), style=STYLES.get(each.state, "yellow")), str(each.in_flight),
        _short(each.outstanding_tokens), _short(each.wait_tokens), _short(each.prefill_tokens_per_second),
        _rate(each.requests_per_second), _share(each.cached_share), pair, _short(each.failures),
    ]  # fmt: skip


def _decisions(shown: View, room: int) -> Table:
    table = _table()
    table.add_column("ago", justify="right", no_wrap=True)
    table.add_column("sent to")  # alone may shrink
    table.add_column("reason", no_wrap=True)
    for head in ("key bytes", "prompt", "expected", "cached", "first token"):
        table.add_column(head, justify="right", no_wrap=True)
    for each in shown.decisions[:room]:
        table.add_row(*_decision(each))
    if not shown.decisions:
        table.add_row("", "no request yet")
    return table


def _decision(each: Mapping[str, Any]) -> list[str | Text]:
    return [
        f"{each.get('age_seconds', 0):.1f} s", _name(each.get("worker")), _plain(each.get("reason")),
        _short(each.get("key_depth")), _short(each.get("prompt_tokens")), _short(each.get("predicted_cached_tokens")),
        _short(each.get("cached_tokens")), _time(each.get("first_token_seconds")),
    ]  # fmt: skip


def _table() -> Table:
    return Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))


def _name(value: object) -> Text:
    """Cut where there is no room for all of it, so that the figures beside it never are."""
    return Text(_plain(value), no_wrap=True, overflow="ellipsis")


def _plain(value: object) -> str:
    """Without control characters, which a terminal would obey, and without rich's markup."""
    return "".join(each if each.isprintable() else "?" for each in str(value))


def _short(value: float | None) -> str:
    """Three digits and a unit: it fits into five columns."""
    if value is None:
        return NOTHING
    size, units = float(value), iter(("", "k", "M", "G", "T"))
    unit = next(units)
    while abs(size) >= 999.5 and unit != "T":
        size, unit = size / 1000, next(units)
    return f"{size:.0f}" if unit == "" else f"{size:.{1 if abs(size) < 99.95 else 0}f}{unit}"


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}" if value < 999.5 else _short(value)


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"
