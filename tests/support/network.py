"""Several machines on one: network namespaces of Linux, joined by a bridge that stands in one of its own.

Nothing of the machine's own network is touched, so nothing has to be found free or put back, and no rule of its
firewall counts. Needs root, iproute2, and a kernel that allows namespaces.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SUBNET = "10.77.0"
NAMES = re.compile(r"^prnet-(\d+)-")  # a namespace of ours, and the process that made it
PATIENCE = 20.0
Found = TypeVar("Found")


def ip(*arguments: str) -> str:
    """`ip ARGUMENTS`; what it printed. Raises subprocess.CalledProcessError."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE)
    return done.stdout


def why_not() -> str | None:
    """What keeps namespaces from being made here; None where nothing does."""
    if shutil.which("ip") is None:
        return "ip (iproute2)"
    name = f"prnet-{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "bridge", "type", "bridge")
        ip("netns", "exec", name, "true")
    except (subprocess.SubprocessError, OSError):
        return "leave to make network namespaces and bridges (root on Linux)"
    finally:
        with suppress(subprocess.SubprocessError, OSError):
            ip("netns", "del", name)
    return None


class Place:
    """A machine of its own: one address, and the programs that were started there."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.network, self.name = network, name
        self.namespace = network.prefix + name
        self.address = f"{SUBNET}.{number}"
        self._programs: list[subprocess.Popen[str]] = []

    def url(self, port: int) -> str:
        return f"http://{self.address}:{port}"

    def start(self, *arguments: str, settings: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        """`python -m ARGUMENTS` here, once it says that it listens. `settings` go in by the environment."""
        given = {
            f"PREFIX_ROUTER_{name.upper().replace('.', '__')}": value if isinstance(value, str) else json.dumps(value)
            for name, value in (settings or {}).items()
        }
        return self.run(sys.executable, "-m", *arguments, until="listening on", environment=given)

    def run(self, *command: str, until: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Any program, once it has printed a line with these words."""
        program = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *command],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        self._programs.append(program)
        assert program.stdout is not None
        for line in program.stdout:
            if until in line:
                return program
        raise AssertionError(f"{command} did not start")

    def end(self, program: subprocess.Popen[str], sig: int = signal.SIGKILL) -> None:
        if program.poll() is None:
            program.send_signal(sig)
        program.wait(timeout=PATIENCE)
        if program.stdout is not None:
            program.stdout.close()
        self._programs.remove(program)

    def close(self) -> None:
        for program in list(self._programs):
            self.end(program)


class Network:
    """Places by name, each on the bridge."""

    def __init__(self) -> None:
        self.prefix = f"prnet-{os.getpid()}-{os.urandom(3).hex()}-"
        self.places: dict[str, Place] = {}
        self._hub = self.prefix + "hub"

    def open(self, *names: str) -> None:
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._hub, "link", "set", "bridge", "up")
        for number, name in enumerate(names, 1):
            place = self.places[name] = Place(self, name, number)
            ip("netns", "add", place.namespace)
            ip("-n", self._hub, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", place.namespace)
            ip("-n", self._hub, "link", "set", name, "master", "bridge", "up")
            ip("-n", place.namespace, "link", "set", "lo", "up")
            ip("-n", place.namespace, "addr", "add", f"{place.address}/24", "dev", "eth0")
            ip("-n", place.namespace, "link", "set", "eth0", "up")

    def close(self) -> None:
        for place in self.places.values():
            place.close()
        for name in (*(place.namespace for place in self.places.values()), self._hub):
            with suppress(subprocess.SubprocessError, OSError):
                ip("netns", "del", name)

    def part(self, *names: str) -> None:
        """These hear nothing of each other any more, and of all others as before. No one is told: frames are lost."""
        self._isolate("on", *names)

    def join(self, *names: str) -> None:
        self._isolate("off", *names)

    def _isolate(self, state: str, *names: str) -> None:
        for name in names:
            ip("-n", self._hub, "link", "set", "dev", name, "type", "bridge_slave", "isolated", state)


def remove_left_over() -> None:
    """Namespaces of test runs that were killed before they could clean up."""
    for line in ip("netns", "list").splitlines():
        name = line.split(" ")[0]
        made_by = NAMES.match(name)
        if made_by is not None and not Path(f"/proc/{made_by[1]}").exists():
            with suppress(subprocess.SubprocessError, OSError):
                ip("netns", "del", name)


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """A place for each name; all of it is gone when the block ends, however it ends."""
    remove_left_over()
    made = Network()
    try:
        made.open(*names)
        yield made
    finally:
        made.close()


class Inside:
    """A thread that lives in a place: sockets that it makes are the place's."""

    def __init__(self, place: Place) -> None:
        self._pool = ThreadPoolExecutor(1, initializer=enter, initargs=(place.namespace,))

    def __call__(self, do: Callable[..., Found], *arguments: Any, **more: Any) -> Found:
        return self._pool.submit(do, *arguments, **more).result()

    def close(self) -> None:
        self._pool.shutdown()


def enter(namespace: str) -> None:
    """This thread changes over to a namespace."""
    with Path(f"/run/netns/{namespace}").open() as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "setns")
