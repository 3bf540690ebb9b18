"""Envoy's words for what went wrong, and who is to blame."""

import pytest

from router.errors import BrokenAnswer, ConnectTimeout, FirstByteTimeout, Unreachable
from router.picker.outcome import failure_of


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ("upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error}", Unreachable),
        ("upstream_reset_before_response_started{local_connection_failure}", Unreachable),
        ("upstream_reset_before_response_started{connection_timeout}", ConnectTimeout),
        ("upstream_reset_before_response_started{remote_reset}", BrokenAnswer),
        ("upstream_per_try_timeout", FirstByteTimeout),
        ("response_timeout", FirstByteTimeout),
    ],
)
def test_a_failure_is_the_one_that_the_gateway_would_have_seen(details: str, kind: type[Exception]) -> None:
    assert type(failure_of(details)) is kind


@pytest.mark.parametrize(
    "details",
    ["", "via_upstream", "no_healthy_upstream", "direct_response", "cluster_not_found",
     "upstream_reset_before_response_started{overflow}"],
)  # fmt: skip
def test_what_is_no_worker_s_fault_blames_none(details: str) -> None:
    assert failure_of(details) is None
