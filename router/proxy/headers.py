"""The hop-by-hop law, both ways: what belongs to one connection does not cross to the other (RFC 9110, section 7.6.1)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))  # fmt: skip
AWS_SIGNATURE = frozenset((b"x-amz-date", b"x-amz-security-token", b"x-amz-content-sha256", b"x-amz-signature"))
OWN = frozenset((b"x-request-id", b"x-router-worker", b"x-router-reason", b"x-router-policy"))
NOT_TO_WORKERS = HOP_BY_HOP | AWS_SIGNATURE | OWN | {b"host", b"content-length", b"expect"}
NOT_TO_CLIENTS = HOP_BY_HOP | OWN | {b"content-length"}
CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key"))
PLAIN_CONNECTION = frozenset((b"keep-alive", b"close", b""))
AWS_SCHEME = b"aws4-"
SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def request_id(given: bytes | None) -> str:
    """The caller's id when it is short and safe to log, else a new one of 128 random bits."""
    if given is not None and SAFE_ID.fullmatch(given):
        return given.decode("ascii")
    return os.urandom(16).hex()


def named_in_connection(value: bytes) -> frozenset[bytes]:
    """The header names that a `Connection` header makes hop-by-hop."""
    return frozenset(name.strip().lower() for name in value.split(b","))


def to_worker(headers: Headers, *, drop_credentials: bool) -> bytes:
    """The client's header lines that go on to the worker; names are lower case already."""
    lines = []
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name in NOT_TO_WORKERS:
            if name == b"connection" and value.lower() not in PLAIN_CONNECTION:
                named |= named_in_connection(value)
            continue
        if name in CREDENTIALS and (drop_credentials or value[:5].lower() == AWS_SCHEME):
            continue
        lines.append(b"%s: %s\r\n" % (name, value))
    if named:
        lines = [line for line in lines if line.partition(b":")[0] not in named]
    return b"".join(lines)


def to_client(headers: Headers) -> Headers:
    """The worker's headers that go on to the client; names are lower case already."""
    passed = [header for header in headers if header[0] not in NOT_TO_CLIENTS]
    for name, value in headers:
        if name == b"connection" and value.lower() not in PLAIN_CONNECTION:
            named = named_in_connection(value)
            passed = [header for header in passed if header[0] not in named]
    return passed


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of a header; the name is given in lower case."""
    for key, value in headers:
        if key == name:
            return value
    return None


def cookie(headers: Headers, name: bytes) -> str | None:
    """The value of a cookie, by RFC 6265's own simple grammar."""
    for key, value in headers:
        if key == b"cookie":
            for pair in value.split(b";"):
                left, equals, right = pair.strip().partition(b"=")
                if equals and left == name:
                    return right.strip(b'"').decode("latin-1")
    return None


def retry_after(headers: Headers) -> float | None:
    """The seconds of a `Retry-After`; its date form is not worth a calendar here."""
    value = find(headers, b"retry-after")
    return float(value) if value is not None and value.isdigit() and len(value) < 9 else None
