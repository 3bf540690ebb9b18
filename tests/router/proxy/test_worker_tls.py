"""What workers at https:// are reached with: one context a setting, faults found before."""

import logging
import ssl
from pathlib import Path

import pytest

from router.proxy.worker_tls import NOTHING, WorkerContexts, build, merged, tls_faults
from router.types import WorkerTls, worker_from_url
from tests.support.certificates import Certificates, certificates

pytestmark = pytest.mark.system("openssl")


@pytest.fixture
def files() -> Certificates:
    return certificates()


def test_what_a_worker_sets_stands_instead_of_what_holds_for_all() -> None:
    common = WorkerTls("ca", "cert", "key")
    assert merged(None, common) == common
    assert merged(WorkerTls(ca="own"), common) == WorkerTls("own", "cert", "key")
    assert merged(WorkerTls(certificate="own", key="its"), common) == WorkerTls("ca", "own", "its")
    assert merged(WorkerTls("a", "b", "c"), NOTHING) == WorkerTls("a", "b", "c")


def test_workers_of_one_setting_share_a_context(files: Certificates) -> None:
    usual = ssl.create_default_context()
    contexts = WorkerContexts(usual)
    plain = [worker_from_url(f"https://w{at}:1") for at in range(2)]
    own = [worker_from_url(f"https://o{at}:1", tls=WorkerTls(ca=files.file("ca.pem"))) for at in range(2)]
    assert contexts.context(plain[0]) is contexts.context(plain[1]) is usual
    assert contexts.context(own[0]) is contexts.context(own[1]) is not usual


def test_new_settings_make_new_contexts(files: Certificates) -> None:
    usual = ssl.create_default_context()
    contexts, worker = WorkerContexts(usual), worker_from_url("https://w:1")
    contexts.adopt(WorkerTls(ca=files.file("ca.pem")))
    made = contexts.context(worker)
    assert made is contexts.context(worker) is not usual
    contexts.adopt(WorkerTls(ca=files.file("ca.pem")))
    assert contexts.context(worker) is made
    assert not contexts.renewed
    contexts.adopt(NOTHING)
    assert contexts.context(worker) is usual


def test_files_that_changed_are_read_anew_and_others_are_not(files: Certificates, tmp_path: Path) -> None:
    rotated = tmp_path / "ca.pem"
    rotated.write_bytes(Path(files.file("ca.pem")).read_bytes())
    contexts = WorkerContexts(ssl.create_default_context())
    worker = worker_from_url("https://w:1", tls=WorkerTls(ca=str(rotated)))
    other = worker_from_url("https://o:1", tls=WorkerTls(ca=files.file("ca.pem")))
    made, kept = contexts.context(worker), contexts.context(other)
    rotated.write_bytes(rotated.read_bytes() + b"\n")
    contexts.adopt(NOTHING)
    assert contexts.renewed
    assert contexts.context(worker) is not made
    assert contexts.context(other) is kept
    contexts.adopt(NOTHING)
    assert not contexts.renewed


def test_every_context_asks_for_a_certificate_of_the_workers_name(files: Certificates) -> None:
    built = build(WorkerTls(files.file("ca.pem"), files.file("client.pem"), files.file("client.key")))
    assert (built.verify_mode, built.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_files_that_went_away_leave_nobody_trusted(files: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    contexts = WorkerContexts(ssl.create_default_context())
    worker = worker_from_url("https://w:1", tls=WorkerTls(ca="/no/such/file"))
    with caplog.at_level(logging.ERROR, "router"):
        context = contexts.context(worker)
        assert contexts.context(worker) is context
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.get_ca_certs() == []
    assert [record.getMessage() for record in caplog.records] == [
        "worker w:1: its TLS files cannot be used (No such file or directory)"
    ]


def test_good_files_have_no_faults(files: Certificates) -> None:
    tls = WorkerTls(files.file("ca.pem"), files.file("client.pem"), files.file("client.key"))
    assert tls_faults(tls, "tls") == tls_faults(NOTHING, "tls") == []


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "said"),
    [
        ("nowhere.pem", None, None, ["tls.ca: there is no file"]),
        ("not.pem", None, None, ["tls.ca: expected certificates in PEM"]),
        (None, "nowhere.pem", "nothing.key", ["tls.certificate: there is no file", "tls.key: there is no file"]),
        (None, "client.pem", "not.pem", ["tls: expected a certificate with its key"]),
        (None, "client.pem", "server.key", ["tls: expected a certificate with its key"]),
        ("not.pem", "not.pem", "not.pem", ["tls.ca: expected certificates", "tls: expected a certificate"]),
    ],
)
def test_every_fault_is_told_and_no_file_is_quoted(
    files: Certificates, ca: str | None, certificate: str | None, key: str | None, said: list[str]
) -> None:
    given = [None if name is None else files.file(name) for name in (ca, certificate, key)]
    faults = tls_faults(WorkerTls(*given), "tls")
    assert len(faults) == len(said)
    for fault, expected in zip(faults, said, strict=True):
        assert fault.startswith(expected)
        assert "s3cret" not in fault
