"""Pages of these origins may call the API from a browser (`listen.cors_origins`); none may otherwise.

Credentials that a browser adds by itself, cookies, are never allowed: a page must send the key it knows. Workers' own
words on the matter are dropped, since the gateway is who the browser talks to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from router.proxy.headers import Headers, find

EXPOSED = b"x-request-id, x-router-worker, x-router-reason, x-router-policy, retry-after"
METHODS = b"GET, POST"
REQUESTED = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1024}")
SECONDS = b"600"  # that a browser may remember a preflight's answer
NO_HEADERS: Headers = []


class Cors:
    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = {origin.encode() for origin in origins}
        self._all = b"*" in self._origins

    def headers(self, headers: Headers) -> Headers:
        """What an answer to a request with these headers says; names are in lower case."""
        origin = find(headers, b"origin")
        if origin is None:
            return NO_HEADERS if self._all else [(b"vary", b"origin")]
        if self._all:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSED)]
        if origin not in self._origins:
            return [(b"vary", b"origin")]
        return [
            (b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]  # fmt: skip

    def preflight(self, headers: Headers) -> Headers | None:
        """The answer's headers to a browser that asks whether it may; None: this is no such question, or it may not."""
        allowed = self.headers(headers)
        if len(allowed) < 2 or find(headers, b"access-control-request-method") is None:
            return None
        said = [each for each in allowed if each[0] != b"access-control-expose-headers"]
        said += [(b"access-control-allow-methods", METHODS), (b"access-control-max-age", SECONDS)]
        wanted = find(headers, b"access-control-request-headers")
        if wanted is not None and REQUESTED.fullmatch(wanted):
            said.append((b"access-control-allow-headers", wanted))
        return said
