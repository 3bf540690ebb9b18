"""What Envoy is to do with a request: the worker's address, and what the gateway would have changed on its way there.

That is the caller's key, which goes no further, the worker's own key, its base path, a tenant's salt in the body, and
the time that is left. A worker that would need other changes than the one chosen is no fallback for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Final

from router import deadline
from router.core.fleet import Seat
from router.house import House
from router.picker.messages import Order
from router.proxy.headers import CREDENTIALS, NOT_PLAIN

if TYPE_CHECKING:
    from router.picker.pick import Pick

CREDENTIAL_NAMES: Final = tuple(sorted(name.decode() for name in CREDENTIALS))


def endpoint_of(house: House, seat: Seat) -> str:
    """The worker's `ip:port`. One whose name is not looked up yet is named by it, and Envoy cannot go there."""
    name = house.pool(seat).name
    address = seat.worker.address
    if name is None or not name.addresses:
        return address.netloc
    host = name.preferred or name.addresses[0]
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"


def alike(house: House, seat: Seat, other: Seat) -> bool:
    """The same request may go to both, unchanged."""
    one, two = house.pool(seat), house.pool(other)
    return one.base_path == two.base_path and _keys(one.greeting) == _keys(two.greeting)


def order_for(pick: Pick, seats: Iterable[Seat], now: float) -> Order:
    """Envoy's order: these workers, the one chosen first."""
    house = pick.house
    first, *_ = chosen = list(seats)
    endpoints = ",".join([endpoint_of(house, seat) for seat in chosen])
    pool = house.pool(first)
    put: list[tuple[str, bytes]] = []
    drop: list[str] = []
    if house.checks_keys or pool.has_credentials:
        drop = _dropped(pick) if house.checks_keys else list(CREDENTIAL_NAMES)
        put = _keys(pool.greeting)
        drop = [name for name in drop if all(name != each for each, _ in put)]
    target = pool.base_path + pick.target
    if target != pick.given_target:
        put.append((":path", target))
    if pick.deadline != inf:
        put.append(("x-request-timeout", b"%.3f" % deadline.left(pick, now)))
    return Order(endpoints, tuple(put), tuple(drop), None if pick.body is pick.given_body else pick.body)


def _dropped(pick: Pick) -> list[str]:
    """The headers that show the caller's key, in whatever form."""
    kept = pick.intake.lines
    return [
        name.decode("latin-1")
        for name, value in pick.given
        if name in CREDENTIALS or (name not in NOT_PLAIN and b"%s: %s\r\n" % (name, value) not in kept)
    ]


def _keys(greeting: bytes) -> list[tuple[str, bytes]]:
    """What a pool says to its worker besides the host's name."""
    lines = greeting.split(b"\r\n")[2:]
    parted = [line.partition(b": ") for line in lines if line]
    return [(name.decode("latin-1").lower(), value) for name, _, value in parted]
