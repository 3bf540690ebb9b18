"""Each error fixes its status, its code and whether the request certainly did not run."""

import pytest

from router import errors
from router.errors import AttemptError, Refusal, RouterError


def everything_below(root: type) -> list[type]:
    return [kind for child in root.__subclasses__() for kind in (child, *everything_below(child))]


REFUSALS = everything_below(Refusal)
ATTEMPTS = [each for each in everything_below(AttemptError) if each.__module__ == errors.__name__]

CONTRACT = {
    "invalid_json": 400,
    "invalid_request": 400,
    "invalid_api_key": 401,
    "admin_only": 403,
    "model_not_found": 404,
    "unknown_path": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "request_too_large": 413,
    "headers_too_large": 431,
    "overloaded": 429,
    "worker_failed": 502,
    "no_ready_worker": 503,
    "worker_timeout": 504,
}


def test_statuses_and_codes_are_those_of_the_contract() -> None:
    ours = {refusal.code: refusal.status for refusal in REFUSALS}
    assert {code: ours.get(code) for code in CONTRACT} == CONTRACT


def test_no_two_refusals_share_a_code() -> None:
    codes = [refusal.code for refusal in REFUSALS]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_keeps_what_it_was_told(refusal: type[Refusal]) -> None:
    said = refusal("why", param="model", retry_after=2.0)
    assert (str(said), said.message, said.param, said.retry_after) == ("why", "why", "model", 2.0)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_s_kind_follows_its_status(refusal: type[Refusal]) -> None:
    assert (refusal.kind == "server_error") == (refusal.status >= 500)


@pytest.mark.parametrize("failure", ATTEMPTS)
def test_a_failed_attempt_turns_into_a_server_side_refusal(failure: type[AttemptError]) -> None:
    assert issubclass(failure.answer, Refusal)
    assert failure.answer.status in (502, 503, 504)


@pytest.mark.parametrize("failure", ATTEMPTS)
def test_every_failure_has_a_kind_of_its_own(failure: type[AttemptError]) -> None:
    assert [other.kind for other in [*ATTEMPTS, AttemptError]].count(failure.kind) == 1


def test_only_what_never_reached_an_engine_certainly_did_not_run() -> None:
    sure = {failure.__name__ for failure in ATTEMPTS if failure.certainly_not_run}
    assert sure == {"Unreachable", "ConnectTimeout", "LocalTrouble", "NotSent", "StaleConnection"}


def test_only_refused_and_stale_connections_are_free_of_charge() -> None:
    assert {failure.__name__ for failure in ATTEMPTS if not failure.counts} == {
        "Unreachable", "ConnectTimeout", "NotSent", "StaleConnection",
    }  # fmt: skip


def test_a_timeout_is_a_504_and_a_refused_connection_a_503() -> None:
    assert errors.Unreachable.answer is errors.NoReadyWorker
    for late in (errors.ConnectTimeout, errors.FirstByteTimeout, errors.IdleTimeout):
        assert late.answer is errors.WorkerTimeout


def test_one_except_holds_the_border() -> None:
    for kind in (*REFUSALS, *ATTEMPTS):
        assert issubclass(kind, RouterError)
