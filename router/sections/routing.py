"""How a worker is chosen."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from router.sections.part import Part


class Slo(Part):
    first_token_ms: float = Field(300, gt=0, description="for a prompt that is cached or short")
    per_uncached_token_ms: float = Field(0.5, ge=0, description="allowed on top for each token to compute")


OWN_PATHS = ("/admin", "/docs", "/healthz", "/metrics", "/openapi.json", "/ping", "/readyz", "/v1/models")


class Routing(Part):
    policy: str = "prefix_cost"
    options: dict[str, Any] = {}
    max_tries: int = Field(3, ge=1, le=100)
    shadow: str | None = Field(None, description="a second policy that only scores")
    replicas: int = Field(1, ge=1, description="gateways that send to these workers; more than one: set share too")
    table_hashes: int = Field(200_000, ge=1000, description="prefixes remembered; about 150 bytes each")
    slow_start_seconds: float = Field(30.0, ge=0, description="in which a new worker's share of the load grows")
    pass_through: tuple[Annotated[str, Field(pattern="^/")], ...] = ()
    resume: bool = Field(False, description="a stream whose worker died goes on at another one")
    slo: Slo = Slo()

    @field_validator("pass_through")
    @classmethod
    def _plain_paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if path == "/" or any(path == own or path.startswith(f"{own}/") for own in OWN_PATHS):
                raise ValueError(f"{path} is a path of the gateway's own")
            if any(mark in path for mark in "?#*{} "):
                raise ValueError(f"{path}: expected a plain path, without a query or a pattern")
        return paths


class Signals(Part):
    queue_seconds: float | None = Field(
        None,
        ge=0,
        le=60,
        description="between two looks at a worker's queue; 0: never; None: 0.1 where others send too",
    )
