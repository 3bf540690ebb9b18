"""A tenant's cache salt: what an engine mixes into its blocks' names, so that no tenant meets another's cache.

It is a digest of the tenant and of the salt the client gave itself, so nobody can ask with another tenant's salt, and a
tenant's own salts still part what they parted. The same in every process and after every restart.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256

FIELD = "cache_salt"
OPENING = b"prefix-router tenant salt\0"


def salt(tenant: str, given: bytes | None) -> bytes:
    """The JSON that stands for `given`, the client's own value in JSON. One that is no text counts as absent."""
    if given is None:
        return _salt(tenant)
    try:
        value = json.loads(given.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        value = None
    return _salt(tenant) if not isinstance(value, str) else _digest(tenant, value)


@lru_cache(4096)
def _salt(tenant: str) -> bytes:
    return _digest(tenant, None)


def _digest(tenant: str, value: str | None) -> bytes:
    name = tenant.encode("utf-8", "surrogatepass")
    own = b"" if value is None else b"=" + value.encode("utf-8", "surrogatepass")
    return b'"%s"' % sha256(OPENING + len(name).to_bytes(4, "big") + name + own).hexdigest()[:32].encode()
