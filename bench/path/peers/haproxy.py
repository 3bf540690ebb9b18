"""HAProxy, consistent hashing on the session's header."""

from __future__ import annotations

from bench.path.peer import Peer, Place, in_path

CONFIGURATION = """\
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 2s
    timeout client 300s
    timeout server 300s
frontend clients
    bind 127.0.0.1:{port} backlog 4096
    default_backend workers
backend workers
    balance hdr(x-session-id)
    hash-type consistent
    http-reuse always
{workers}
"""


def configuration(place: Place) -> str:
    workers = "\n".join(f"    server worker-{at} 127.0.0.1:{port}" for at, port in enumerate(place.workers))
    return CONFIGURATION.format(port=place.port, workers=workers)


def command(program: str, place: Place) -> list[str]:
    path = place.folder / "haproxy.cfg"
    path.write_text(configuration(place))
    return [program, "-db", "-f", str(path)]


HAPROXY = Peer(
    name="haproxy",
    what="HAProxy, consistent hash of a header",
    get="apt install haproxy",
    find=in_path("haproxy"),
    command=command,
)
