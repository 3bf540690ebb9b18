"""Asking a gateway again and again: every look is a frame's figures, or why there are none just now."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Event
from typing import Any, NamedTuple, Self

import httpx
from rich.console import Console
from rich.live import Live

from router.clock import monotonic
from router.top_samples import Samples
from router.top_screen import frame, one_object
from router.top_view import Scrape, View, view

TIMEOUT = 5.0  # seconds for an answer


class Refused(Exception):
    """Asking again would not help; the message says what would."""


class Look(NamedTuple):
    """What is seen now, or was last seen, and why it is no newer."""

    shown: View | None
    trouble: str | None


class Watch:
    """One gateway, watched."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._token = token
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(headers=headers, trust_env=False, timeout=TIMEOUT)
        self._last: Scrape | None = None
        self._shown: View | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def look(self) -> Look:
        """Raises Refused where there is nothing to wait for."""
        try:
            scrape = self._scrape()
        except httpx.HTTPError as wrong:
            return Look(self._shown, f"no gateway answers at {self.url} ({type(wrong).__name__}); trying again")
        except _NotNow as wrong:
            return Look(self._shown, f"the gateway at {self.url} answered with status {wrong}; trying again")
        self._shown, self._last = view(self._last, scrape), scrape
        return Look(self._shown, None)

    def _scrape(self) -> Scrape:
        workers = self._ask("/admin/workers")
        decisions = self._ask("/admin/decisions")
        metrics = self._checked(self._client.get(f"{self.url}/metrics"))
        try:
            return Scrape(
                monotonic(),
                workers["workers"],
                bool(workers.get("panic")),
                decisions["decisions"],
                Samples(metrics.text),
            )
        except (KeyError, TypeError):
            raise self._no_gateway() from None

    def _ask(self, path: str) -> dict[str, Any]:
        answer = self._checked(self._client.get(f"{self.url}{path}"))
        try:
            said = answer.json()
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise self._no_gateway()
        return said

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code in (401, 403):
            raise Refused(self._needed())
        if answer.status_code >= 500 or answer.status_code == 429:
            raise _NotNow(str(answer.status_code))
        if answer.status_code != 200:
            raise self._no_gateway()
        return answer

    def _needed(self) -> str:
        if self._token:
            return f"the gateway at {self.url} refused this admin token"
        return (
            f"the gateway at {self.url} shows its workers to administrators only: give its admin token by --token "
            "or PREFIX_ROUTER_ADMIN_TOKEN (or ask from its own machine, where it has none)"
        )

    def _no_gateway(self) -> Refused:
        return Refused(f"what answered at {self.url} is no gateway")


class _NotNow(Exception):
    """An answer that another time may be better."""


def show(watch: Watch, interval: float, *, once: bool, as_json: bool) -> int:
    """Show frames until somebody ends it, or one; the exit status."""
    console = Console(markup=False, emoji=False, highlight=False)
    if once:
        return _once(watch, interval, console, as_json=as_json)
    if as_json or not console.is_terminal:
        for look in _looks(watch, interval):
            if look.trouble is not None or (look.shown is not None and look.shown.seconds is not None):
                _print(console, watch.url, look, as_json=as_json)
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for look in _looks(watch, interval):
            live.update(frame(watch.url, look.shown, look.trouble, console.height), refresh=True)
    return 0


def _looks(watch: Watch, interval: float) -> Iterator[Look]:
    pause = Event()
    while True:
        yield watch.look()
        pause.wait(interval)


def _once(watch: Watch, interval: float, console: Console, *, as_json: bool) -> int:
    """Two looks, since rates need them."""
    for look in _looks(watch, interval):
        if look.trouble is not None:
            sys.stderr.write(f"prefix-router: {look.trouble.removesuffix('; trying again')}\n")
            return 1
        if look.shown is not None and look.shown.seconds is not None:
            _print(console, watch.url, look, as_json=as_json)
            break
    return 0


def _print(console: Console, url: str, look: Look, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(one_object(url, look.shown, look.trouble) + "\n")
    else:
        console.print(frame(url, look.shown, look.trouble, None))
        console.print()
    sys.stdout.flush()
