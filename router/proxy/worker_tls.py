"""TLS to workers: whom their certificates are checked against, and what the gateway shows of itself.

A context is built once for each distinct setting, and used for requests, probes, queue polls and every other question.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from router.types import Worker, WorkerTls

log = logging.getLogger("router")

NOTHING = WorkerTls()

Looks = tuple[tuple[int, int, int] | None, ...]
"""Of each file its inode, its time and its size; None for one that is not there."""


class WorkerContexts:
    """`usual`: for workers of which the settings say nothing; it trusts the system's authorities."""

    def __init__(self, usual: ssl.SSLContext) -> None:
        self._usual = usual
        self._common = NOTHING
        self._made: dict[WorkerTls, ssl.SSLContext] = {}
        self._seen: dict[WorkerTls, Looks] = {}
        self.renewed = False  # files had changed when it was asked last

    def adopt(self, common: WorkerTls) -> None:
        """What holds where a worker says nothing of its own. Changed files are read anew for connections to come."""
        self._common = common
        changed = [each for each, seen in self._seen.items() if _look(each) != seen]
        self.renewed = bool(changed)
        for each in changed:
            del self._made[each], self._seen[each]

    def context(self, worker: Worker) -> ssl.SSLContext:
        """Files that cannot be read any more are logged, and make the worker unreachable: nobody is trusted instead."""
        wanted = merged(worker.tls, self._common)
        if wanted == NOTHING:
            return self._usual
        found = self._made.get(wanted)
        if found is None:
            self._seen[wanted] = _look(wanted)
            try:
                found = build(wanted)
            except (OSError, ValueError) as wrong:
                log.error("worker %s: its TLS files cannot be used (%s)", worker.id, reason(wrong))
                found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._made[wanted] = found
        return found


def _look(tls: WorkerTls) -> Looks:
    looks: list[tuple[int, int, int] | None] = []
    for file in (tls.ca, tls.certificate, tls.key):
        try:
            found = Path(file).stat() if file is not None else None
        except OSError:
            found = None
        looks.append(None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(looks)


def merged(own: WorkerTls | None, common: WorkerTls) -> WorkerTls:
    """What a worker sets stands instead of what holds for all; certificate and key go together."""
    if own is None:
        return common
    shown = own if own.certificate is not None else common
    return WorkerTls(own.ca or common.ca, shown.certificate, shown.key)


def build(tls: WorkerTls) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError too) or ValueError for files that are none, or not what they should be."""
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password="")  # none: asking for one would hang
    return context


def tls_faults(tls: WorkerTls, path: str) -> list[str]:
    """What is wrong with these files, each with its setting's path."""
    files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
    faults = [
        f"{path}.{name}: there is no file {file}"
        for name, file in files.items()
        if file is not None and not Path(file).is_file()
    ]
    if faults:
        return faults
    for part, what in (
        (WorkerTls(ca=tls.ca), f"{path}.ca: expected certificates in PEM"),
        (
            WorkerTls(certificate=tls.certificate, key=tls.key),
            f"{path}: expected a certificate with its key, in PEM and without a password",
        ),
    ):
        try:
            if part != NOTHING:
                build(part)
        except (OSError, ValueError) as wrong:
            faults.append(f"{what} ({reason(wrong)})")
    return faults


def reason(wrong: Exception) -> str:
    """What OpenSSL or the system says of it, which is never the files' content."""
    return getattr(wrong, "reason", None) or getattr(wrong, "strerror", None) or type(wrong).__name__
