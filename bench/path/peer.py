"""One of the proxies that are compared: how it is found, and how it is started."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".peers"


@dataclass(frozen=True)
class Place:
    """Where a peer is to stand: the port to listen on, one more that it may use, its workers, a folder of its own."""

    port: int
    spare_port: int
    workers: tuple[int, ...]
    folder: Path

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.workers]


@dataclass(frozen=True)
class Peer:
    """`find`: its program, or None. `get`: what to do where there is none. `command`: may write files into the place's
    folder. `emptied`: files there that grow with each request."""

    name: str
    what: str
    get: str
    find: Callable[[], str | None]
    command: Callable[[str, Place], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    pinned: bool = True
    emptied: tuple[str, ...] = ()


def in_path(program: str) -> Callable[[], str | None]:
    """In PATH, or where Debian puts servers, which is not in everybody's PATH."""
    return lambda: shutil.which(program) or shutil.which(program, path="/usr/local/sbin:/usr/sbin")


def in_environment(name: str, program: str, installed: str | None = None) -> Callable[[], str | None]:
    """In the environment that `make bench-peers` made, once `installed` (else the program itself) is there too."""
    folder = str(ENVIRONMENTS / name / "bin")
    return lambda: shutil.which(program, path=folder) if shutil.which(installed or program, path=folder) else None
