"""Reloading the settings while requests run: read again, validated whole, and only then taken.

What is read is what the start read: the file, the environment, the flags. Bad ones, an empty file and one that cannot
be read change nothing; each fault is logged once. What only a new process can take, `RESTART`, stays and is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec

from router.contracts import PolicyTools
from router.core.ring import Ring
from router.layers import SettingsError
from router.plugins import build_policy
from router.sections.part import Part
from router.settings import Settings

log = logging.getLogger("router")

LOOK_SECONDS, SETTLE_SECONDS = (
    1.0,
    0.2,
)  # between two looks at the file; a file still being written is left alone so long
# What a process is built with. With several, SIGUSR2 starts new ones; `WHOLE` needs the gateway itself started anew.
WHOLE = ("listen.host", "listen.port", "listen.processes")
RESTART = (
    *WHOLE, "listen.tls.certificate", "listen.tls.key", "listen.trusted_proxies", "listen.proxy_protocol",
    "listen.cors_origins", "routing.replicas", "routing.pass_through", "share", "log.access",
    "picker.host", "picker.port", "picker.http_port", "picker.tls.certificate", "picker.tls.key",
)  # fmt: skip

P = TypeVar("P", bound=Part)
Origins = dict[str, str]
Loaded = tuple[Settings, Origins]
Signature = tuple[int, ...] | None


class Outcome(msgspec.Struct, frozen=True):
    """changed: the settings that count from now on, by path
    restart: those that differ from what runs and need a restart
    faults: why nothing was taken
    """

    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class SettingsSource:
    """Where the settings come from. `read` raises SettingsError; `path` is the file, where there is one."""

    def __init__(self, read: Callable[[], Loaded], path: Path | None = None) -> None:
        self.read, self.path = read, path
        self.seen = self.look()

    def look(self) -> Signature:
        """What tells a changed file from the same one: also where a link to it leads elsewhere now."""
        try:
            found = os.stat(self.path) if self.path is not None else None
        except OSError:
            return None
        return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Reloader:
    """`take` makes new settings count, everywhere or nowhere; `mark` is told whether the last reload was refused.

    settings: what runs
    wanted: what a process that is started now should run with, and the origins
    taking_back: what is being taken is what was before
    """

    def __init__(
        self,
        source: SettingsSource,
        running: Loaded,
        take: Callable[[Settings, Origins], Awaitable[None]],
        mark: Callable[[bool], None],
    ) -> None:
        self.settings, self.wanted = running[0], running
        self._source, self._take, self._mark = source, take, mark
        self.taking_back = False
        self._lock = asyncio.Lock()
        self._reloading: set[asyncio.Task[Outcome]] = set()

    def begin(self, why: str) -> None:
        """Reload in a task of its own: for signals."""
        task = asyncio.create_task(self.reload(why), name="reload")
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def reload(self, why: str) -> Outcome:
        """Read again; take what is good. One at a time."""
        async with self._lock:
            try:
                fresh, origins = await self._read()
                changed, restart = sorted_out(self.settings, fresh)
                whole = [path for path in restart if path in WHOLE]
                await self._put((kept(fresh, self.settings, whole), origins_kept(origins, self.wanted[1], whole)))
            except SettingsError as wrong:
                return self._refused(why, wrong.faults)
            self.settings = kept(fresh, self.settings, restart)
            self._mark(False)
            self._tell(why, changed, restart)
            return Outcome(tuple(changed), tuple(restart))

    async def follow(self) -> None:
        """Reload whenever the file has changed, or is there again, and has come to rest."""
        source = self._source
        while source.path is not None:
            await asyncio.sleep(LOOK_SECONDS)
            found = await asyncio.to_thread(source.look)
            while found != source.seen:
                await asyncio.sleep(SETTLE_SECONDS)
                before, found = found, await asyncio.to_thread(source.look)
                if found == before:
                    await self.reload(f"{source.path} has changed")
                    break

    async def _read(self) -> Loaded:
        """The settings as they stand there now, fit to be taken. Raises SettingsError."""
        source = self._source
        source.seen = await asyncio.to_thread(source.look)
        try:
            loaded = await asyncio.to_thread(source.read)
        except SettingsError:
            raise
        except Exception as wrong:  # an outsider's policy may do anything
            log.exception("the settings could not be read")
            raise SettingsError([f"the settings could not be read: {type(wrong).__name__}"]) from None
        faults = trial(loaded[0])
        if faults:
            raise SettingsError(faults)
        return loaded

    def renewed(self) -> None:
        """Every process was started anew."""
        self.settings = self.wanted[0]

    async def _put(self, loaded: Loaded) -> None:
        """Make them count; where that fails, those before. Raises SettingsError."""
        before, self.wanted = self.wanted, loaded  # a process that is started in the meantime has the new ones
        try:
            await self._take(*loaded)  # though they may be the same: certificates that they name may be new
        except Exception as wrong:
            log.exception("the new settings could not be taken; those before are taken again")
            self.wanted, self.taking_back = before, True
            await self._take(*before)
            raise SettingsError([f"the settings could not be taken: {type(wrong).__name__}"]) from None
        finally:
            self.taking_back = False

    def _refused(self, why: str, faults: list[str]) -> Outcome:
        for fault in faults:
            log.error("reload (%s): %s", why, fault)
        log.error("reload (%s): refused; the settings stay as they were", why)
        self._mark(True)
        return Outcome(faults=tuple(faults))

    def _tell(self, why: str, changed: list[str], restart: list[str]) -> None:
        if self._source.path is None and not changed:
            log.warning("reload (%s): there is no --config file, and environment and flags stay as they are", why)
        else:
            log.info("reload (%s): %s", why, f"changed {', '.join(changed)}" if changed else "nothing has changed")
        if restart:
            log.warning("reload (%s): these need a restart: %s", why, ", ".join(restart))


def trial(settings: Settings) -> list[str]:
    """Build what an outsider's code builds, so that it fails here and changes nothing."""
    routing = settings.routing
    tools = PolicyTools(Ring(), Random())  # noqa: S311 - it decides nothing
    faults = []
    for place, name, options in (("policy", routing.policy, routing.options), ("shadow", routing.shadow, {})):
        try:
            if name is not None:
                build_policy(name, options, tools)
        except Exception as wrong:
            faults.append(f"routing.{place}: {name} cannot be built: {wrong!r}")
    return faults


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """The dotted paths of the settings that differ; a list counts as one."""
    if isinstance(before, Part) and type(before) is type(after):
        fields = type(before).model_fields
        inner = [differences(getattr(before, f), getattr(after, f), f"{path}.{f}".lstrip(".")) for f in fields]
        return [each for found in inner for each in found]
    return [] if before == after else [path]


def sorted_out(before: Settings, after: Settings) -> tuple[list[str], list[str]]:
    """What can be taken, and what needs a restart."""
    paths = differences(before, after)
    return [each for each in paths if each not in RESTART], [each for each in paths if each in RESTART]


def kept(after: Settings, before: Settings, paths: list[str] | tuple[str, ...]) -> Settings:
    """The new settings with the old values at these paths."""
    for path in paths:
        after = _set(after, before, path.split("."))
    return after


def _set(after: P, before: P, steps: list[str]) -> P:
    name, *rest = steps
    value = getattr(before, name)
    return after.model_copy(update={name: _set(getattr(after, name), value, rest) if rest else value})


def origins_kept(after: Origins, before: Origins, paths: list[str]) -> Origins:
    """The new origins with the old ones at these paths."""
    found = {path: layer for path, layer in after.items() if path not in paths}
    return found | {path: before[path] for path in paths if path in before}
