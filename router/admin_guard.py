"""Who may administer.

With `admin_token` set it must be shown, and it alone counts: no browser sends it by itself, so neither a page of
another site nor a name that was made to resolve to this machine can use it. Without one only a peer on the loopback
answers, and not one that speaks for somebody else: a proxy is asked whom it speaks for, where it is trusted, and a page
in a browser is found out by its `Origin` or by the name in `Host`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.requests import Request

from router.errors import AdminOnly
from router.house import House
from router.proxy.border import PEER

log = logging.getLogger("router")

FORWARDING = frozenset(("forwarded", "via", "x-real-ip", "true-client-ip", "x-client-ip", "cf-connecting-ip"))
FORWARDED = "x-forwarded-"
TELL_EVERY = 10.0  # seconds between two lines on wrong tokens


def build_guard(house: House) -> Callable[[Request], Awaitable[None]]:
    """What every admin route asks first. Raises AdminOnly."""
    wrong_tokens = WrongTokens()

    async def check(request: Request) -> None:
        token = house.settings.admin_token
        if token is None:
            if not is_local(request, house):
                raise AdminOnly(
                    "The admin routes answer loopback peers at a loopback name only, unless admin_token is set."
                )
        elif not _shows(request, token):
            if "authorization" in request.headers:
                wrong_tokens.note(request.client.host if request.client else "nowhere", house.clock())
            raise AdminOnly("The admin routes need `Authorization: Bearer ADMIN_TOKEN`.")

    return check


def _shows(request: Request, token: SecretStr) -> bool:
    """Compared in constant time; the scheme's name in any case, as HTTP has it."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    same = compare_digest(shown.strip().encode("utf-8", "replace"), token.get_secret_value().encode())
    return same and scheme.lower() == "bearer"


class WrongTokens:
    """Says in the log that somebody tries tokens, now and then and never which."""

    def __init__(self) -> None:
        self._count = 0
        self._next_at = 0.0

    def note(self, peer: str, now: float) -> None:
        self._count += 1
        if now >= self._next_at:
            log.warning("admin: %d requests with a wrong token, the latest from %s", self._count, peer)
            self._count, self._next_at = 0, now + TELL_EVERY


def is_local(request: Request, house: House) -> bool:
    """On the loopback, and for itself: neither for somebody behind a proxy nor for a page in a browser.

    A page of another site can make a browser send requests here, and with DNS rebinding even read the answers. Its
    Origin gives it away, or the Internet name in Host: loopback addresses and names without a dot are nobody's there.
    """
    headers = request.headers
    client = _client(request, house)
    if client is None:
        return False
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site")
    if site in ("cross-site", "same-site") or (origin is not None and not is_loopback(_name(origin))):
        return False
    host = _name(f"//{headers.get('host', '')}")
    return is_loopback(client) and ("." not in host or is_loopback(host))


def _client(request: Request, house: House) -> str | None:
    """Whose request this is; None where that cannot be told."""
    if request.client is None:
        return None
    peer: str = request.scope.get(PEER, request.client.host)
    names = request.headers.keys()
    if not any(name in FORWARDING or name.startswith(FORWARDED) for name in names):
        return peer
    if house.origins is None or not house.origins.trusts(peer) or "x-forwarded-for" not in names:
        return None
    client, certain = house.origins.told(peer, request.headers.raw)
    return client if certain else None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return "not.a.name"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
