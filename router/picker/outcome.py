"""How Envoy says a request went, as the gateway would have seen it. Pure."""

from __future__ import annotations

from router.errors import AttemptError, BrokenAnswer, ConnectTimeout, FirstByteTimeout, Unreachable

VIA_UPSTREAM = "via_upstream"
# Envoy's response code details, the most telling first. What is not here says nothing of the worker: no route, no host,
# a limit of Envoy's own.
FAILURES: tuple[tuple[str, type[AttemptError]], ...] = (
    ("connection_timeout", ConnectTimeout),
    ("connection_failure", Unreachable),
    ("response_timeout", FirstByteTimeout),
    ("per_try_timeout", FirstByteTimeout),
    ("overflow", AttemptError),
    ("upstream_reset_before_response_started", BrokenAnswer),
    ("protocol_error", BrokenAnswer),
)


class PassedOver(AttemptError):
    """Envoy had no answer from this worker and went on to the next that it was told."""

    kind, certainly_not_run = "passed_over", True


def failure_of(details: str) -> AttemptError | None:
    """What the worker did wrong by Envoy's response code details; None where it answered, or is not to blame."""
    if not details or details == VIA_UPSTREAM:
        return None
    for sign, kind in FAILURES:
        if sign in details:
            return kind(f"Envoy says {details}") if kind is not AttemptError else None
    return None
