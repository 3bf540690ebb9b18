"""What the kernel is told to do about a silent peer."""

import socket

from router.rpc.keepalive import IDLE, watch


def test_a_silent_peer_is_asked_whether_it_is_there() -> None:
    with socket.socket() as connection:
        watch(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE


def test_a_peer_on_this_machine_s_own_socket_needs_no_asking() -> None:
    watch(None)
    one, two = socket.socketpair()
    with one, two:
        watch(one)
        assert not one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
