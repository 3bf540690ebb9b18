"""nginx, consistent hashing on the session's header."""

from __future__ import annotations

import os
from pathlib import Path

from bench.path.peer import Peer, Place, in_path

CONFIGURATION = """\
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_buffer_size 512k;
    client_max_body_size 64m;
{temporary}
    upstream workers {{
        hash $http_x_session_id consistent;
{workers}
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://workers;
            proxy_http_version 1.1;
            proxy_set_header connection "";
            proxy_buffering off;
        }}
    }}
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def configuration(place: Place) -> str:
    return CONFIGURATION.format(
        user="user root root;" if os.geteuid() == 0 else "",  # else another user, who may not enter the folder
        folder=place.folder,
        temporary="\n".join(f"    {name}_temp_path {place.folder}/{name};" for name in TEMPORARY),
        workers="\n".join(f"        server 127.0.0.1:{port};" for port in place.workers),
        port=place.port,
    )


def command(program: str, place: Place) -> list[str]:
    path: Path = place.folder / "nginx.conf"
    path.write_text(configuration(place))
    return [program, "-p", str(place.folder), "-e", "stderr", "-c", str(path)]


NGINX = Peer(
    name="nginx",
    what="nginx, consistent hash of a header",
    get="apt install nginx-light",
    find=in_path("nginx"),
    command=command,
)
