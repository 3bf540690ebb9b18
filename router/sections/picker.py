"""Where Envoy asks for a worker, and what it is told when none is well."""

from __future__ import annotations

from pydantic import Field

from router.sections.listen import Tls
from router.sections.part import Part


class Picker(Part):
    host: str = "127.0.0.1"
    port: int = Field(9002, ge=0, le=65_535, description="0: any free one")
    http_port: int | None = Field(None, ge=0, le=65_535, description="health, metrics and /admin, on listen.host")
    tls: Tls = Tls()
    fail_open: bool = Field(False, description="with no worker known to be well, name one all the same")
    fallbacks: int = Field(1, ge=0, le=8, description="further workers that Envoy may try, behind the one chosen")
