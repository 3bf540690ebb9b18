"""What must not cross: the caller's key to a worker once it has opened this gateway, a worker's key to the caller."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from router.proxy.headers import Headers, Intake
from router.types import Worker

MASK = b"********"
WHOLE_ONLY = 6  # bytes; a shorter key counts only where it stands alone: it may be a word
WORDS = re.compile(rb"""[\s;,:/?&="']+""")
USERINFO = re.compile(rb"//[^/@?#\s]*@")
REDIRECTS = frozenset((b"location", b"content-location", b"refresh"))
KEPT = (b"content-type: ", b"accept: ")  # where a worker would fail without them


def use_up(taken: Intake, target: bytes) -> bytes:
    """The key that let the caller in goes no further in any of its forms: gives the target without it.

    The headers that may carry a key are `taken.credentials`, and are not sent anyway. A header that repeats it, a
    cookie too, is left out whole; of the query the parameters that hold it are; and it is no request id.
    """
    for line in taken.credentials.splitlines():
        key = _key(line.partition(b": ")[2])
        if not key:
            continue
        if _holds_somehow(taken.lines, key):
            lines = taken.lines.splitlines(keepends=True)
            taken.lines = b"".join(each for each in lines if each.startswith(KEPT) or not _holds_somehow(each, key))
        if b"?" in target and key in unquote_to_bytes(target):
            target = _without(target, key)
        if taken.given_id is not None and _holds(taken.given_id, key):
            taken.given_id = None
    return target


def _key(shown: bytes) -> bytes:
    scheme, space, rest = shown.strip().partition(b" ")
    return rest.strip() if space and scheme.lower() in (b"bearer", b"basic") else shown.strip()


def _holds(text: bytes, key: bytes) -> bool:
    return key in text and (len(key) >= WHOLE_ONLY or key in WORDS.split(text))


def _holds_somehow(text: bytes, key: bytes) -> bool:
    """As it is or in a URL's escapes, as pages write what they put into a cookie."""
    return _holds(text, key) or (b"%" in text and _holds(unquote_to_bytes(text), key))


def _without(target: bytes, key: bytes) -> bytes:
    path, _, query = target.partition(b"?")
    kept = [each for each in query.split(b"&") if not _holds(unquote_to_bytes(each), key)]
    return path + b"?" + b"&".join(kept) if kept else path


def without_userinfo(headers: Headers) -> Headers:
    """A redirect is passed on, never followed, and without the name and password that a worker may have put into it."""
    return [(name, USERINFO.sub(b"//", value) if name in REDIRECTS else value) for name, value in headers]


def veiled(headers: Headers, worker: Worker) -> Headers:
    """A worker's answer that repeats what the gateway showed it does not tell the client."""
    secrets = _secrets(worker.api_key, worker.address.credentials)
    return [(name, _veil(value, secrets)) for name, value in headers]


def _veil(value: bytes, secrets: tuple[bytes, ...]) -> bytes:
    for secret in secrets:
        if secret in value and (len(secret) >= WHOLE_ONLY or secret in WORDS.split(value)):
            value = value.replace(secret, MASK)
    return value


@lru_cache(1024)
def _secrets(api_key: str | None, credentials: str | None) -> tuple[bytes, ...]:
    if api_key:
        return (api_key.encode(),)
    if not credentials:
        return ()
    password = credentials.partition(":")[2].encode()
    return tuple(each for each in (b64encode(credentials.encode()), password) if each)
