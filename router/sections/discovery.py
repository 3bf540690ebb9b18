"""Where workers are learned from, besides those of the settings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from router.sections.part import Later, Part
from router.sections.workers import ClientTls, HeaderKey
from router.types import WorkerTls

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
KEY = rf"(?:{NAME}/)?{NAME}"
VALUE = rf"(?:{NAME})?"
VALUES = rf"\(\s*{VALUE}(?:\s*,\s*{VALUE})*\s*\)"
TERM = rf"\s*(?:!\s*{KEY}|{KEY}(?:\s*(?:==?|!=)\s*{VALUE}|\s+(?:in|notin)\s*{VALUES})?)\s*"
SELECTOR = re.compile(rf"{TERM}(?:,{TERM})*")
LABEL = r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$"  # RFC 1123: what namespaces and Services are called
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*")  # RFC 6335


def _port(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65_535:
        return value
    if isinstance(value, str) and len(value) <= 63 and PORT_NAME.fullmatch(value):
        return value
    raise ValueError("expected a port's name, or a number from 1 to 65535")


def _selector(value: str) -> str:
    if not SELECTOR.fullmatch(value):
        raise ValueError("expected a label selector, such as app=vllm,tier in (a, b)")
    return value


class PodEvents(Part):
    """Where each pod publishes its KV cache's events over ZMQ."""

    port: int = Field(ge=1, le=65_535)
    topic: str = ""


class FoundWorker(Part):
    """What every worker found has, as in `workers`. `labels` are joined by `zone` and `node`, where those are known."""

    dialect: str = "auto"
    api_key: HeaderKey | None = None
    weight: float = Field(1.0, gt=0, le=100)
    max_in_flight: int | None = Field(None, ge=1)
    max_connections: int | None = Field(None, ge=1)
    tls: ClientTls = ClientTls()
    models: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    kv_events: PodEvents | None = None

    def fields(self) -> dict[str, Any]:
        """Those that each worker found has as they stand here; its key in plain words."""
        secret = self.api_key.get_secret_value() if self.api_key else None
        tls = WorkerTls(**self.tls.model_dump()) if self.tls != ClientTls() else None
        own = self.model_dump(exclude={"api_key", "tls", "labels", "kv_events"})
        return {**own, "api_key": secret or None, "tls": tls}


class Kubernetes(Part):
    """The endpoints of a Service, or of all that a label selector finds, in one namespace.

    namespace: None for that of the gateway's own pod, or of the kubeconfig's context
    port: None for the only one that there is
    kubeconfig: a file's path; None for the service account of the gateway's own pod
    """

    namespace: str | None = Field(None, pattern=LABEL, max_length=63)
    service: str | None = Field(None, pattern=LABEL, max_length=63)
    selector: Annotated[str, Field(max_length=1024), AfterValidator(_selector)] | None = None
    port: Annotated[int | str, BeforeValidator(_port)] | None = None
    scheme: Literal["http", "https"] = "http"
    kubeconfig: str | None = Field(None, min_length=1)
    context: str | None = Field(None, min_length=1)
    worker: FoundWorker = FoundWorker()

    @model_validator(mode="after")
    def _one_of_two(self) -> Kubernetes:
        if (self.service is None) is (self.selector is None):
            raise ValueError("service and selector: set one of the two")
        if self.context is not None and self.kubeconfig is None:
            raise ValueError("context: it is one of a kubeconfig; set kubeconfig too")
        return self


class Discovery(Part):
    static: Later = {}
    file: Later = None
    dns: Later = None
    kubernetes: Kubernetes | None = None
