"""Who the client is, where others speak for it.

A peer that is trusted names the one before it in `X-Forwarded-For`. The list is read from its right end, where the
nearest proxy wrote: the first address that is no trusted proxy's is the client's. What stands to the left of it,
anybody may have written. An untrusted peer is the client itself, whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

MOST_HOPS = 32  # proxies in a row that are believed
MOST_PEERS = 4096  # whose trust is remembered
FORWARDED_FOR = b"x-forwarded-for"


class Origins:
    """The trusted proxies."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ip_network(network, strict=False) for network in networks]
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, peer: str) -> bool:
        known = self._known.get(peer)
        if known is None:
            if len(self._known) >= MOST_PEERS:
                self._known.clear()
            address = _address(peer)
            known = self._known[peer] = address is not None and any(address in each for each in self._networks)
        return known

    def client_of(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The client's address; the names of headers are in lower case."""
        return self.told(peer, headers)[0]

    def told(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, bool]:
        """The same, and whether it is certain: a trusted proxy that writes no address speaks for nobody knows whom."""
        if not self.trusts(peer):
            return peer, True
        lines = [value for name, value in headers if name == FORWARDED_FOR]
        named = b",".join(lines)
        client = peer
        for hop in reversed(named.decode("latin-1").rsplit(",", MOST_HOPS)[-MOST_HOPS:] if lines else ()):
            address = _address(_without_port(hop.strip()))
            if address is None:
                return client, False  # no address: who wrote it is the last that is known
            client = str(address)
            if not self.trusts(client):
                break
        return client, True


def network_of(client: str) -> str:
    """What counts as one client: an address of version 4, or of version 6 its /64, all of which one machine has."""
    if ":" not in client:
        return client
    address = _address(client)
    if not isinstance(address, IPv6Address):
        return client if address is None else str(address)
    return str(IPv6Address(int(address) >> 64 << 64))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _without_port(hop: str) -> str:
    """`1.2.3.4:5`, `[::1]:5` and `[::1]` are written too."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    host, colon, _ = hop.partition(":")
    return host if colon and hop.count(":") == 1 else hop
