"""The workers, and the connections to them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from router.address import parse_address
from router.sections.part import Part, Seconds
from router.types import KvSource, Worker, WorkerTls, worker_from_url


class ClientTls(Part):
    """PEM files: whom a worker's certificate is checked against (the system's authorities unless given), and what
    the gateway shows of itself where workers ask for it."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> ClientTls:
        if (self.certificate is None) is not (self.key is None):
            raise ValueError("certificate and key: set both or neither")
        return self


class Connections(Part):
    per_worker: int | None = Field(None, ge=1, description="open connections at most; further requests wait")
    resolve_seconds: Seconds = Field(5.0, description="a worker's name is looked up again after so long")
    tls: ClientTls = ClientTls()


class KvEvents(Part):
    """Where an engine publishes its KV cache's events over ZMQ. `bind`: the engine connects to us."""

    endpoint: str = Field(pattern=r"^(tcp|ipc)://.+")
    bind: bool = False
    topic: str = ""


def _fits_a_header(key: SecretStr) -> SecretStr:
    secret = key.get_secret_value()
    if not (secret.isascii() and secret.isprintable()):
        raise ValueError("expected printable ASCII without line ends")
    return key


HeaderKey = Annotated[SecretStr, AfterValidator(_fits_a_header)]


def _plain_endpoint(value: Any) -> Any:
    return {"endpoint": value} if isinstance(value, str) else value


class WorkerSettings(Part):
    url: str
    id: str | None = Field(None, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:\[\]-]+$")
    dialect: str = "auto"
    api_key: HeaderKey | None = None
    weight: float = Field(1.0, gt=0, le=100)
    max_in_flight: int | None = Field(None, ge=1)
    max_connections: int | None = Field(None, ge=1, description="instead of connections.per_worker")
    tls: ClientTls = Field(ClientTls(), description="what it sets stands instead of connections.tls")
    models: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    kv_events: Annotated[KvEvents, BeforeValidator(_plain_endpoint)] | None = None

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parse_address(url)
        return url

    def worker(self) -> Worker:
        secret = self.api_key.get_secret_value() if self.api_key else None
        fields = self.model_dump(exclude={"url", "api_key", "kv_events", "tls"})
        events = KvSource(**self.kv_events.model_dump()) if self.kv_events else None
        tls = WorkerTls(**self.tls.model_dump()) if self.tls != ClientTls() else None
        return worker_from_url(self.url, api_key=secret or None, kv_events=events, tls=tls, **fields)
