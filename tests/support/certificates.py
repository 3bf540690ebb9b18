"""Certificates made on the spot: two authorities, a server's certificate of each, and a client's of the first."""

import atexit
import ssl
import subprocess
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Certificates:
    """Files in one folder: `ca.pem`, `server.pem`, `client.pem`, each `*.key`; those of a stranger; `not.pem`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for authority, names in (("ca", ("server", "client")), ("strange-ca", ("strange-server",))):
            self._key(authority)
            openssl("req", "-x509", "-new", "-key", self.file(f"{authority}.key"), "-days", "2", "-subj",
                    f"/CN={authority}", "-out", self.file(f"{authority}.pem"))  # fmt: skip
            for name in names:
                self._signed(name, authority)
        (folder / "not.pem").write_text("s3cret: this is no certificate\n")

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def server(self, name: str = "server", *, demanding: bool = False) -> ssl.SSLContext:
        """What a worker listens with; `demanding`: only clients of the authority come in."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file(f"{name}.pem"), self.file(f"{name}.key"))
        if demanding:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file("ca.pem"))
        return context

    def _key(self, name: str) -> None:
        openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", self.file(f"{name}.key"))

    def _signed(self, name: str, authority: str) -> None:
        self._key(name)
        extensions = self.folder / "extensions"
        extensions.write_text(NAMES)
        openssl("req", "-new", "-key", self.file(f"{name}.key"), "-subj", f"/CN={name}", "-out", self.file("request"))
        openssl("x509", "-req", "-in", self.file("request"), "-CA", self.file(f"{authority}.pem"), "-CAkey",
                self.file(f"{authority}.key"), "-CAcreateserial", "-days", "2", "-extfile", str(extensions),
                "-out", self.file(f"{name}.pem"))  # fmt: skip


@cache
def certificates() -> Certificates:
    """Made once a run."""
    folder = Path(mkdtemp(prefix="certificates-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return Certificates(folder)
