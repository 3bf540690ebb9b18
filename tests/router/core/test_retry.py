"""The retry law, as a table."""

import pytest

from router import errors
from router.core.retry import is_fault, may_retry, may_retry_status

SURE = [errors.Unreachable, errors.ConnectTimeout, errors.LocalTrouble, errors.StaleConnection]
UNSURE = [errors.BrokenAnswer, errors.FirstByteTimeout, errors.IdleTimeout, errors.AttemptError]


@pytest.mark.parametrize("kind", SURE)
@pytest.mark.parametrize(("counted", "most", "expected"), [(0, 3, True), (2, 3, True), (3, 3, False), (1, 1, False)])
def test_what_certainly_did_not_run_is_tried_again_within_the_limit(
    kind: type[errors.AttemptError], counted: int, most: int, expected: bool
) -> None:
    assert may_retry(kind(), counted=counted, max_tries=most, answered=False) is expected


@pytest.mark.parametrize("kind", UNSURE)
def test_what_may_have_run_is_never_tried_again(kind: type[errors.AttemptError]) -> None:
    assert not may_retry(kind(), counted=0, max_tries=100, answered=False)


@pytest.mark.parametrize("kind", SURE + UNSURE)
def test_nothing_is_tried_again_after_the_first_byte(kind: type[errors.AttemptError]) -> None:
    assert not may_retry(kind(), counted=0, max_tries=100, answered=True)


@pytest.mark.parametrize(
    ("status", "again", "fault"),
    [
        (200, False, False),
        (204, False, False),
        (302, False, False),
        (400, False, False),
        (401, False, False),
        (404, False, False),
        (413, False, False),
        (422, False, False),
        (429, True, False),
        (499, False, False),
        (500, False, True),
        (501, False, True),
        (502, False, True),
        (503, True, False),
        (504, False, True),
        (599, False, True),
    ],
)
def test_only_back_pressure_is_tried_elsewhere_and_only_other_server_errors_are_faults(
    status: int, again: bool, fault: bool
) -> None:
    assert may_retry_status(status, counted=1, max_tries=3) is again
    assert is_fault(status) is fault


@pytest.mark.parametrize(("counted", "expected"), [(1, True), (2, True), (3, False), (4, False)])
def test_back_pressure_is_passed_on_when_the_tries_are_used_up(counted: int, expected: bool) -> None:
    assert may_retry_status(503, counted=counted, max_tries=3) is expected
