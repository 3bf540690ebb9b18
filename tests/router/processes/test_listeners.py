"""The listening sockets: bound, taken, shared, and announced."""

import socket
import sys

import pytest

from router.processes.listeners import announce, bind, bind_all, cannot_listen

BOTH = [pytest.param(False, id="one for all"), pytest.param(True, id="one each", marks=pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the kernel does not spread connections over them"))]  # fmt: skip


def close(*listeners: socket.socket) -> None:
    for listener in listeners:
        listener.close()


def test_a_bound_port_is_not_listening_and_may_not_be_bound_again() -> None:
    with bind("127.0.0.1", 0) as listener, socket.socket() as client:
        with pytest.raises(ConnectionRefusedError):
            client.connect(listener.getsockname())
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            bind(*listener.getsockname())


@pytest.mark.parametrize("one_each", BOTH)
def test_all_processes_listen_on_one_port(one_each: bool) -> None:
    listeners = bind_all("127.0.0.1", 0, 3, one_each=one_each)
    assert len({listener.getsockname() for listener in listeners}) == 1
    assert len({listener.fileno() for listener in listeners}) == (3 if one_each else 1)
    clients = [socket.create_connection(listeners[0].getsockname()) for _ in range(30)]
    taken = 0
    for listener in listeners:
        while True:
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                break
            taken += 1
            accepted.close()
    assert taken == 30
    close(*clients, *listeners)


@pytest.mark.parametrize("one_each", BOTH)
def test_a_port_that_another_gateway_has_is_taken_though_it_too_could_be_shared(one_each: bool) -> None:
    listeners = bind_all("127.0.0.1", 0, 2, one_each=one_each)
    with pytest.raises(OSError, match="in use"):
        bind_all("127.0.0.1", listeners[0].getsockname()[1], 2, one_each=one_each)
    close(*listeners)


@pytest.mark.parametrize("one_each", BOTH)
def test_the_port_asked_for_is_the_port(one_each: bool) -> None:
    with bind("127.0.0.1", 0) as found:
        port = found.getsockname()[1]
    listeners = bind_all("127.0.0.1", port, 2, one_each=one_each)
    assert {listener.getsockname()[1] for listener in listeners} == {port}
    close(*listeners)


def test_the_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        announce(listener, tls=False)
        announce(listener, tls=True)
    assert capsys.readouterr().out.splitlines() == [
        f"prefix-router listening on http://127.0.0.1:{port}", f"prefix-router listening on https://127.0.0.1:{port}"
    ]  # fmt: skip


def test_that_it_cannot_listen_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cannot_listen("h", 1, OSError(98, "Address already in use")) == 1
    assert capsys.readouterr().err == "prefix-router: cannot listen on h:1: Address already in use\n"
