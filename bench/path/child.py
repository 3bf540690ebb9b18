"""A process that was started here, with whatever it started itself."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bench.path import machine

LAST_LINES = 12


class Child:
    """`log`: a file that gets both its outputs, or None where the caller reads the standard one."""

    def __init__(
        self, command: list[str], on: list[int], log: Path, environment: Mapping[str, str] | None = None,
        *, talks: bool = False,
    ) -> None:  # fmt: skip
        self.log = log
        with log.open("w") as output, machine.on(on):
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if talks else output, stderr=output,
                text=True, cwd=log.parent, env=_environment() | dict(environment or {}),
                start_new_session=True,  # Ctrl-C reaches this program alone, which then ends the others in order
            )  # fmt: skip

    @property
    def pids(self) -> list[int]:
        return machine.tree(self.process.pid)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pause(self) -> None:
        """One that is not measured shall not disturb the one that is."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, with its children and with whatever else is left of its group."""
        if not self.ended:
            self.signal(signal.SIGSTOP)  # so that none is started meanwhile
            self.signal(signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def last_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]


def _environment() -> dict[str, str]:
    """This program's own, without settings of the gateway: it is measured with its defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFIX_ROUTER_")}
