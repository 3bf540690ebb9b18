"""Workers: a plain URL and a few words become a place that serves tokens."""

import pytest
from pydantic import ValidationError

from router.sections.workers import ClientTls, WorkerSettings
from router.types import WorkerTls


def test_a_worker_may_have_certificates_of_its_own() -> None:
    given = {"url": "https://w:1", "tls": {"ca": "ca.pem", "certificate": "c.pem", "key": "k.pem"}}
    assert WorkerSettings.model_validate(given).worker().tls == WorkerTls("ca.pem", "c.pem", "k.pem")


def test_a_certificate_comes_with_its_key() -> None:
    with pytest.raises(ValidationError, match="certificate and key: set both or neither"):
        ClientTls(certificate="c.pem")


def test_connections_are_unlimited_unless_told() -> None:
    assert WorkerSettings(url="http://w:1").worker().max_connections is None
    assert WorkerSettings(url="http://w:1", max_connections=4).worker().max_connections == 4
