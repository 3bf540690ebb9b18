"""The settings, one frozen model a section. Unknown keys are errors; `layers.py` merges where they come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from router.address import parse_address
from router.types import KvSource, Worker, worker_from_url

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, given: Any) -> Any:
        """A known name without a value, as in an empty section, is one left out."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None or name not in cls.model_fields}


def _with_port(url: str) -> str:
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise ValueError(f"expected redis://HOST:PORT/DB, found {url.rpartition('@')[2]}") from None
    return url


def _not_yet(value: Any) -> Any:
    if value:
        raise ValueError("this is not supported yet; leave it empty")
    return value


Later = Annotated[Any, BeforeValidator(_not_yet)]  # names that the contract reserves; only empty values are taken


class Tls(Part):
    certificate: str | None = None
    key: str | None = None


class Listen(Part):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65_535)
    processes: int = Field(1, ge=0, le=256, description="0: one a core")
    tls: Tls = Tls()


class KvEvents(Part):
    """Where an engine publishes its KV cache's events over ZMQ. `bind`: the engine connects to us."""

    endpoint: str = Field(pattern=r"^(tcp|ipc)://.+")
    bind: bool = False
    topic: str = ""


def _plain_endpoint(value: Any) -> Any:
    return {"endpoint": value} if isinstance(value, str) else value


class WorkerSettings(Part):
    url: str
    id: str | None = Field(None, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:\[\]-]+$")
    dialect: str = "auto"
    api_key: SecretStr | None = None
    weight: float = Field(1.0, gt=0, le=100)
    max_in_flight: int | None = Field(None, ge=1)
    models: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    kv_events: Annotated[KvEvents, BeforeValidator(_plain_endpoint)] | None = None

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parse_address(url)
        return url

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr | None) -> SecretStr | None:
        secret = key.get_secret_value() if key else ""
        if not (secret.isascii() and secret.isprintable()):
            raise ValueError("expected printable ASCII without line ends")
        return key

    def worker(self) -> Worker:
        secret = self.api_key.get_secret_value() if self.api_key else None
        fields = self.model_dump(exclude={"url", "api_key", "kv_events"})
        events = KvSource(**self.kv_events.model_dump()) if self.kv_events else None
        return worker_from_url(self.url, api_key=secret or None, kv_events=events, **fields)


def _plain_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


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
    resume: Later = False
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


class Timeouts(Part):
    connect_seconds: Seconds = 2.0
    first_byte_seconds: Seconds = 600.0
    idle_seconds: Seconds = 300.0
    client_read_seconds: Seconds = 30.0
    client_write_seconds: Seconds = 60.0


class Limits(Part):
    body_bytes: int = Field(67_108_864, ge=1)
    header_bytes: int = Field(65_536, ge=256)
    in_flight: int | None = Field(None, ge=1)


class Queue(Part):
    max: int = Field(1000, ge=0)
    wait_seconds: Seconds = 30.0


class HealthSettings(Part):
    interval_seconds: Seconds = 1.0
    timeout_seconds: Seconds = 2.0
    unhealthy_after: int = Field(3, ge=1)
    healthy_after: int = Field(2, ge=1)
    path: str | None = Field(None, pattern="^/")


class Signals(Part):
    queue_seconds: float | None = Field(
        None,
        ge=0,
        le=60,
        description="between two looks at a worker's queue; 0: never; None: 0.1 where others send too",
    )


class ApiKey(Part):
    tenant: str = Field("default", min_length=1, max_length=128)
    key: SecretStr


class Auth(Part):
    tenant_salt: bool = True
    api_keys: tuple[Annotated[ApiKey, BeforeValidator(lambda v: {"key": v} if isinstance(v, str) else v)], ...] = ()

    @field_validator("api_keys")
    @classmethod
    def _not_empty(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        if any(not key.key.get_secret_value() for key in keys):
            raise ValueError("an empty key would let everybody in")
        secrets = [key.key.get_secret_value() for key in keys]
        if len(set(secrets)) < len(secrets):
            raise ValueError("two tenants have the same key")
        return keys


class Discovery(Part):
    static: Later = {}
    file: Later = None
    dns: Later = None
    kubernetes: Later = None


class Shutdown(Part):
    grace_seconds: float = Field(3.0, ge=0)
    drain_seconds: float = Field(600.0, ge=0)


class Log(Part):
    access: str = Field("stderr", description="stderr, stdout, none, or a file's path")
    level: Literal["debug", "info", "warning", "error"] = "info"
    hashes: bool = Field(False, description="also log the prefix's chained hashes, so that the log can be replayed")


class Settings(Part):
    listen: Listen = Listen()
    workers: tuple[Annotated[WorkerSettings, BeforeValidator(_plain_url)], ...] = ()
    discovery: Discovery = Discovery()
    models: Later = {}
    routing: Routing = Routing()
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    queue: Queue = Queue()
    health: HealthSettings = HealthSettings()
    signals: Signals = Signals()
    auth: Auth = Auth()
    admin_token: SecretStr | None = None
    shutdown: Shutdown = Shutdown()
    share: Annotated[str, AfterValidator(_with_port), Field(pattern=r"^(redis|rediss|unix)://.+")] | None = None
    log: Log = Log()

    @field_validator("admin_token")
    @classmethod
    def _no_empty_token(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not token.get_secret_value():
            raise ValueError("an empty token would let everybody in; leave it out to admit loopback peers only")
        return token

    @model_validator(mode="after")
    def _ids_differ(self) -> Settings:
        ids = [worker.worker().id for worker in self.workers]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"workers: {', '.join(twice)} is there more than once")
        return self
