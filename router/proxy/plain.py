"""uvicorn's own protocol for the ASGI endpoints, where the fast lane does not fit.

No trailer is taken for a header, and a target is a path. What else a head may not have, `border.py` refuses; heads have
no limit of time here.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.errors import InvalidRequest
from router.proxy.head_law import TARGET


class Plain(HttpToolsProtocol):
    def on_header(self, name: bytes, value: bytes) -> None:
        scope: Any = self.scope
        if "method" not in scope:  # set once the head is whole
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if b"#" in self.url or not TARGET.match(self.url):
            raise InvalidRequest("A target is a path, or http://HOST/PATH.")  # uvicorn answers in its own words
        super().on_headers_complete()
