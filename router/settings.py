"""The settings, one frozen model. Unknown keys are errors; `layers.py` merges where they come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from router.sections.auth import Auth
from router.sections.discovery import Discovery
from router.sections.limits import HealthSettings, Limits, Queue, Timeouts
from router.sections.listen import Listen
from router.sections.part import Later, Part
from router.sections.picker import Picker
from router.sections.routing import Routing, Signals
from router.sections.workers import Connections, WorkerSettings


def _with_port(url: str) -> str:
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise ValueError(f"expected redis://HOST:PORT/DB, found {url.rpartition('@')[2]}") from None
    return url


def _plain_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class Shutdown(Part):
    grace_seconds: float = Field(3.0, ge=0)
    drain_seconds: float = Field(600.0, ge=0)


class Log(Part):
    access: str = Field("stderr", description="stderr, stdout, none, or a file's path")
    level: Literal["debug", "info", "warning", "error"] = "info"
    hashes: bool = Field(False, description="also log the prefix's chained hashes, so that the log can be replayed")


class Settings(Part):
    listen: Listen = Listen()
    picker: Picker = Picker()
    connections: Connections = Connections()
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
        places = [worker.worker().address.url for worker in self.workers]
        shared = sorted({place for place in places if places.count(place) > 1})
        if shared:  # its load would be counted twice over, each time as if there were no other
            raise ValueError(f"workers: {', '.join(shared)} is there under several ids")
        return self
