"""Where a worker lives: one URL in all its spellings becomes one address, and so one worker id.

`http://w:1`, `http://W:1/` and `http://w:1/v1` are the same worker. A base path before `/v1` is kept.
"""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(msgspec.Struct, frozen=True):
    """A normalised worker URL: lower case, port filled in, no trailing slash and no `/v1` at the end."""

    scheme: str
    host: str
    port: int
    base_path: str
    credentials: str | None = None

    def __repr__(self) -> str:
        return f"<Address {self.url}>"

    @property
    def netloc(self) -> str:
        """`host:port`, IPv6 in brackets: the worker's id unless one is given, and its `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL without credentials, fit for logs and answers."""
        return f"{self.scheme}://{self.netloc}{self.base_path}"


def parse_address(url: str) -> Address:
    """Read a worker URL; spaces around it do not matter.

    Raises ValueError with a sentence that says what is wrong and what was expected.
    """
    url = url.strip(" \t\r\n")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text may quote a password
        raise ValueError("not a URL; expected http://HOST:PORT") from None
    _refuse(parts, url)
    host = (parts.hostname or "").lower()
    path = parts.path.rstrip("/")
    if path == "/v1" or path.endswith("/v1"):
        path = path[: -len("/v1")].rstrip("/")
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Address(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], path, credentials)


def _refuse(parts: SplitResult, url: str) -> None:
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("expected a URL that begins with http:// or https://")
    if not parts.hostname:
        raise ValueError("the URL names no host; expected http://HOST:PORT")
    if parts.port == 0:
        raise ValueError("port 0 is no address; expected a port from 1 to 65535")
    if parts.query or parts.fragment:
        raise ValueError("a worker URL has no query and no fragment")
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise ValueError("the URL holds a space, a control character or one outside ASCII")
