"""Client keys: which tenant a key belongs to.

Keys are kept and compared as SHA-256 digests, so that neither a dump of this table nor the time of a look-up tells one.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from router.errors import InvalidApiKey

BEARER = b"bearer "


class Keys:
    """Empty: open to all, and everybody is the tenant None."""

    def __init__(self, pairs: Iterable[tuple[str, bytes]] = ()) -> None:
        self._tenants = {digest: tenant for tenant, digest in pairs}

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def tenant(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The caller's tenant, from `Authorization: Bearer`, `x-api-key` or `api-key`. Raises InvalidApiKey."""
        if not self._tenants:
            return None
        shown = False
        for name, value in headers:
            if name == b"authorization":
                key = value[len(BEARER) :] if value[: len(BEARER)].lower() == BEARER else b""
            elif name in (b"x-api-key", b"api-key"):
                key = value
            else:
                continue
            shown = True
            tenant = self._tenants.get(sha256(key.strip()).digest())
            if tenant is not None:
                return tenant
        if shown:
            raise InvalidApiKey("This API key is not known here.")
        raise InvalidApiKey("An API key is needed: send it as `Authorization: Bearer KEY`.")
