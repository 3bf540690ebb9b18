"""What is too long, too much, too many, and when a worker is not well."""

from __future__ import annotations

from pydantic import Field

from router.sections.part import Part, Seconds


class Timeouts(Part):
    connect_seconds: Seconds = 2.0
    first_byte_seconds: Seconds = 600.0
    idle_seconds: Seconds = 300.0
    total_seconds: Seconds | None = Field(None, description="for the whole of a request; none by default")
    client_read_seconds: Seconds = 30.0
    client_write_seconds: Seconds = 60.0


class Rates(Part):
    """Of one caller: a key, or a client's address where no keys are asked for; of IPv6 its /64."""

    requests_per_minute: float | None = Field(None, gt=0)
    prompt_tokens_per_minute: float | None = Field(None, gt=0)


class Limits(Part):
    body_bytes: int = Field(67_108_864, ge=1)
    body_parts: int = Field(500_000, ge=10_000, description="objects and lists in a large body, or ten times the items")
    header_bytes: int = Field(65_536, ge=256)
    in_flight: int | None = Field(None, ge=1)
    worker_in_flight: int | None = Field(None, ge=1, description="where workers[].max_in_flight says nothing")
    caller: Rates = Rates()


class Queue(Part):
    max: int = Field(1000, ge=0)
    wait_seconds: Seconds = 30.0
    open_priorities: bool = Field(False, description="without keys, everybody may set a priority")


class Outliers(Part):
    """A worker that does badly while others do well is left out for a while, longer each time."""

    error_share: float = Field(0.5, gt=0, le=1, description="of its requests in the window")
    latency_factor: float = Field(5.0, gt=1, description="times the fleet's median time for a token of prefill")
    least_requests: int = Field(10, ge=1, description="in the window, before a share means anything")
    window_seconds: Seconds = 30.0
    eject_seconds: Seconds = 5.0
    eject_most_seconds: Seconds = 300.0
    most_ejected: float = Field(0.5, ge=0, le=1, description="of the fleet, at one time")


class HealthSettings(Part):
    interval_seconds: Seconds = 1.0
    timeout_seconds: Seconds = 2.0
    unhealthy_after: int = Field(3, ge=1)
    healthy_after: int = Field(2, ge=1)
    path: str | None = Field(None, pattern="^/")
    stall_seconds: float = Field(30.0, ge=0, description="without a byte while requests wait; 0: never")
    outliers: Outliers = Outliers()
