"""The listening sockets: one a process on Linux, where the kernel spreads connections over them; elsewhere one for all.

The parent holds all of them open and listening, so that connections to a process that died wait for its successor and
are not refused.
"""

from __future__ import annotations

import contextlib
import socket
import sys

BACKLOG = 4096  # connections that wait to be taken


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket, not listening yet; `shared`: others of this user may be bound there too. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def bind_all(host: str, port: int, count: int, *, one_each: bool = sys.platform == "linux") -> list[socket.socket]:
    """A listening socket for each of so many processes; all the same one unless `one_each`. Raises OSError."""
    if not one_each:
        listener = bind(host, port)
        listener.listen(BACKLOG)
        return [listener] * count
    if port:
        bind(host, port).close()  # a shared bind would join another gateway there without a word
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            listeners.append(bind(host, port, shared=True))
            port = port or listeners[0].getsockname()[1]
        for listener in listeners:
            listener.listen(BACKLOG)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def cannot_listen(host: str, port: int, wrong: OSError) -> int:
    """Say so in one line; the exit status."""
    sys.stderr.write(f"prefix-router: cannot listen on {host}:{port}: {wrong.strerror or wrong}\n")
    return 1


def announce(listener: socket.socket, *, tls: bool) -> None:
    """The one line that says where the gateway listens."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody need be listening to us
        sys.stdout.write(f"prefix-router listening on {'https' if tls else 'http'}://{shown}:{port}\n")
        sys.stdout.flush()
