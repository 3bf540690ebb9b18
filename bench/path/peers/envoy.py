"""Envoy, ring hash on the session's header."""

from __future__ import annotations

import json
from typing import Any

from bench.path.peer import Peer, Place, in_environment, in_path

TYPES = "type.googleapis.com/envoy.extensions.filters"
MOST = 100_000  # Envoy's own limits, of 1,024 each, would refuse some of many connections


def address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def configuration(place: Place) -> dict[str, Any]:
    route = {"cluster": "workers", "timeout": "0s", "hash_policy": [{"header": {"header_name": "x-session-id"}}]}
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{TYPES}.http.router.v3.Router"}}
        ],
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
        },
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    limits = {"max_connections": MOST, "max_requests": MOST, "max_pending_requests": MOST}
    workers = [{"endpoint": {"address": address(port)}} for port in place.workers]
    cluster = {
        "name": "workers",
        "lb_policy": "RING_HASH",
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {"cluster_name": "workers", "endpoints": [{"lb_endpoints": workers}]},
    }
    listener = {"address": address(place.port), "filter_chains": [{"filters": filters}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def command(program: str, place: Place) -> list[str]:
    path = place.folder / "envoy.json"
    path.write_text(json.dumps(configuration(place), indent=2))
    return [program, "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]


ENVOY = Peer(
    name="envoy",
    what="Envoy, ring hash of a header",
    get="make bench-peers",
    find=lambda: in_environment("envoy", "envoy")() or in_path("envoy")(),
    command=command,
)
