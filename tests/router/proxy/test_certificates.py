"""A certificate whose files change."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from router.proxy.certificates import Certificates, context
from tests.support.certificates import Certificates as Made

pytestmark = pytest.mark.system("openssl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("certificates"))


def served(tls: ssl.SSLContext) -> bytes:
    """The certificate that a client is shown."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    server = tls.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True) or b""


async def test_changed_files_count_for_the_next_handshake(made: Made, tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "a.pem"), str(tmp_path / "a.key")
    shutil.copy(made.file("server.pem"), certificate)
    shutil.copy(made.file("server.key"), key)
    tls = context(certificate, key)
    watch = Certificates(tls, certificate, key, every=60)
    first = served(tls)
    watch.look()
    assert served(tls) == first
    shutil.copy(made.file("client.pem"), certificate)
    watch.look()
    assert served(tls) == first, "half a pair is none"
    shutil.copy(made.file("client.key"), key)
    watch.look()
    assert served(tls) not in (first, b"")
    watch.close()
    await watch.wait_closed()


async def test_a_bad_pair_is_told_once(made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate = str(tmp_path / "a.pem")
    shutil.copy(made.file("server.pem"), certificate)
    tls = context(certificate, made.file("server.key"))
    watch = Certificates(tls, certificate, made.file("server.key"), every=0.01)
    shutil.copy(made.file("not.pem"), certificate)
    await asyncio.sleep(0.1)
    watch.close()
    assert caplog.text.count("the old one stays") == 1
    assert "s3cret" not in caplog.text
    assert served(tls)


def test_old_versions_are_not_spoken(made: Made) -> None:
    tls = context(made.file("server.pem"), made.file("server.key"))
    assert tls.minimum_version == ssl.TLSVersion.TLSv1_2
