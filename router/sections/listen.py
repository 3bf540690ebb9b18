"""Where clients come in."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from router.sections.part import Part


def _is_network(text: str) -> str:
    try:
        ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"expected an address or a network such as 10.0.0.0/8, found {text!r}") from None
    return text


def _is_origin(text: str) -> str:
    found = urlsplit(text)
    whole = f"{found.scheme}://{found.netloc}".lower()
    if text != "*" and (found.scheme not in ("http", "https") or not found.hostname or "*" in text or text != whole):
        raise ValueError(f"expected * or an origin such as https://app.example, as browsers write it, found {text!r}")
    return text


class Tls(Part):
    certificate: str | None = None
    key: str | None = None


class Listen(Part):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65_535)
    processes: int = Field(1, ge=0, le=256, description="0: one a core")
    tls: Tls = Tls()
    trusted_proxies: tuple[Annotated[str, AfterValidator(_is_network)], ...] = Field(
        (), description="peers whose X-Forwarded-For is believed"
    )
    proxy_protocol: bool = Field(False, description="trusted peers begin each connection with a PROXY header")
    cors_origins: tuple[Annotated[str, AfterValidator(_is_origin)], ...] = Field(
        (), description="origins whose pages may call the API from a browser"
    )

    @model_validator(mode="after")
    def _someone_is_trusted(self) -> Listen:
        if self.proxy_protocol and not self.trusted_proxies:
            raise ValueError("proxy_protocol needs trusted_proxies: whoever may name the client's address")
        return self
