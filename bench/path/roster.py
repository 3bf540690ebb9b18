"""All that can be measured, in the order of the tables."""

from __future__ import annotations

from bench.path.peer import Peer
from bench.path.peers.envoy import ENVOY
from bench.path.peers.gateway import LOG, OURS, PLAIN, TWO
from bench.path.peers.haproxy import HAPROXY
from bench.path.peers.nginx import NGINX
from bench.path.peers.production_stack import PRODUCTION_STACK
from bench.path.peers.rust_routers import SGLANG_ROUTER, SMG, VLLM_ROUTER

BASE = OURS.name  # what the others are compared with
ROSTER: tuple[Peer, ...] = (
    OURS, LOG, PLAIN, TWO, NGINX, HAPROXY, ENVOY, VLLM_ROUTER, SGLANG_ROUTER, SMG, PRODUCTION_STACK,
)  # fmt: skip
BY_NAME = {peer.name: peer for peer in ROSTER}
DIRECT = "direct"  # no proxy at all
