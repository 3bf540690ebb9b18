"""A peer whose machine is gone says nothing more: the kernel notices, and its calls end."""

from __future__ import annotations

import socket

IDLE, EVERY, TIMES = 20, 5, 3  # seconds of silence, between two questions, and questions without an answer


def watch(connection: socket.socket | None) -> None:
    """The kernel asks a silent peer whether it is there."""
    if connection is None or connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", EVERY), ("TCP_KEEPCNT", TIMES)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
