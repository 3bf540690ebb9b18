"""Client keys: whose a key is, and what it may.

Keys are kept and compared as SHA-256 digests, so that neither a dump of this table nor the time of a look-up tells one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

import msgspec

from router.core.rates import Rate
from router.errors import InvalidApiKey

BEARER: Final = b"bearer "


class Key(msgspec.Struct, frozen=True):
    """priority: it may set that of its requests; weight: its tenant's share; rate: its own instead of everybody's."""

    tenant: str
    digest: bytes
    priority: bool = False
    weight: float = 1.0
    rate: Rate | None = None


class Keys:
    """Empty: open to all, and everybody is the tenant None. A tenant weighs as much as the weightiest of its keys."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        keys = tuple(keys)
        weights: dict[str, float] = {}
        for key in keys:
            weights[key.tenant] = max(key.weight, weights.get(key.tenant, 0.0))
        self._keys = {key.digest: msgspec.structs.replace(key, weight=weights[key.tenant]) for key in keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def tenant(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The caller's tenant. Raises InvalidApiKey."""
        key = self.find(headers)
        return key.tenant if key is not None else None

    def find(self, headers: Iterable[tuple[bytes, bytes]]) -> Key | None:
        """The caller's key, from `Authorization: Bearer`, `x-api-key` or `api-key`; None where none is asked for.
        Raises InvalidApiKey."""
        if not self._keys:
            return None
        shown = False
        for name, value in headers:
            if name == b"authorization":
                secret = value[len(BEARER) :] if value[: len(BEARER)].lower() == BEARER else b""
            elif name in (b"x-api-key", b"api-key"):
                secret = value
            else:
                continue
            shown = True
            key = self._keys.get(sha256(secret.strip()).digest())
            if key is not None:
                return key
        if shown:
            raise InvalidApiKey("This API key is not known here.")
        raise InvalidApiKey("An API key is needed: send it as `Authorization: Bearer KEY`.")
