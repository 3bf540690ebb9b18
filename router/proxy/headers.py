"""The hop-by-hop law, both ways: what belongs to one connection does not cross to the other (RFC 9110, section 7.6.1).

A request's headers are read once (`take_in`): most become lines for the worker, a few say something to the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from secrets import token_hex
from typing import Final

from router.core.mind import Caller

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))  # fmt: skip
AWS_SIGNATURE: Final = frozenset((b"x-amz-date", b"x-amz-security-token", b"x-amz-content-sha256", b"x-amz-signature"))
OWN: Final = frozenset(
    (b"x-request-id", b"x-router-worker", b"x-router-reason", b"x-router-policy", b"x-router-resumable")
)
CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key", b"api-key"))
READ_HERE: Final = frozenset((b"x-session-id", b"x-amzn-sagemaker-prefix-aware-id", b"cookie", b"x-priority"))
NOT_PLAIN: Final = HOP_BY_HOP | AWS_SIGNATURE | OWN | CREDENTIALS | READ_HERE | {
    b"host", b"content-length", b"expect", b"x-request-timeout"}  # fmt: skip
CORS: Final = frozenset(b"access-control-" + name for name in (
    b"allow-origin", b"allow-credentials", b"expose-headers", b"allow-methods", b"allow-headers", b"max-age",
    b"allow-private-network",
))  # fmt: skip
NOT_TO_CLIENTS: Final = HOP_BY_HOP | OWN | CREDENTIALS | CORS | {b"content-length"}
PLAIN_CONNECTION: Final = frozenset((b"keep-alive", b"close", b""))
AWS_SCHEME: Final = b"aws4-"
SESSION_COOKIE: Final = b"session_id"
# Names that most messages have, in the spellings that are sent: found once, their hashes need not be made again.
SPELLED: Final = {
    spelling: name
    for name in (
        b"accept", b"accept-encoding", b"accept-language", b"api-key", b"authorization", b"cache-control",
        b"connection", b"content-encoding", b"content-length", b"content-type", b"cookie", b"date", b"host",
        b"keep-alive", b"origin",
        b"server", b"transfer-encoding", b"user-agent", b"vary", b"x-api-key", b"x-request-id", b"x-session-id",
        b"x-stainless-arch", b"x-stainless-async", b"x-stainless-lang", b"x-stainless-os",
        b"x-stainless-package-version", b"x-stainless-read-timeout", b"x-stainless-retry-count", b"x-stainless-runtime",
        b"x-stainless-runtime-version", b"x-stainless-timeout",
    )
    for spelling in (name, name.title())
}  # fmt: skip
DIGITS: Final = [f"{number:02x}" for number in range(256)]
SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Intake(Caller):
    """A request's headers, read. `lines` go to any worker; `credentials` only where they are not used up here."""

    lines = b""
    credentials = b""
    given_id: bytes | None = None
    length: int | None = None
    timeout: bytes | None = None
    priority: bytes | None = None


def take_in(headers: Headers) -> Intake:
    """Read a request's headers; names are lower case already."""
    taken = Intake()
    lines = []
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name not in NOT_PLAIN:
            lines.append(b"%s: %s\r\n" % (name, value))
        elif name == b"content-length":
            taken.length = int(value)
        elif name == b"connection" and value.lower() not in PLAIN_CONNECTION:
            named |= named_in_connection(value)
        elif name == b"x-request-id":
            taken.given_id = value
        elif name == b"x-request-timeout":
            taken.timeout = value if taken.timeout is None else taken.timeout + b", " + value  # two are no number
        elif name in CREDENTIALS:
            if value[:5].lower() != AWS_SCHEME:
                taken.credentials += b"%s: %s\r\n" % (name, value)
        elif name in READ_HERE:
            lines.append(b"%s: %s\r\n" % (name, value))
            _read_here(taken, name, value)
    if named:
        lines = _without(lines, named)
        taken.credentials = b"".join(_without(taken.credentials.splitlines(keepends=True), named))
    taken.lines = b"".join(lines)
    return taken


def _read_here(taken: Intake, name: bytes, value: bytes) -> None:
    if name == b"x-amzn-sagemaker-prefix-aware-id":
        taken.prefix_id = value.decode("latin-1")
    elif name == b"x-session-id":
        taken.session = value.decode("latin-1") or None
    elif name == b"x-priority":
        taken.priority = value
    elif taken.session is None:
        taken.session = cookie(value, SESSION_COOKIE)


def _without(lines: list[bytes], named: frozenset[bytes]) -> list[bytes]:
    return [line for line in lines if line.partition(b":")[0] not in named]


class Ids:
    """New request ids: 64 random bits of this process and a count, in hexadecimal digits."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._count = 0
        self._begin = ""

    def new(self) -> str:
        self._count = count = self._count + 1
        low = count & 0xFFFF
        if low <= 1:  # the upper digits change once in 65,536
            self._begin = f"{self._process}{count >> 16:012x}"
        return self._begin + DIGITS[low >> 8] + DIGITS[low & 0xFF]


IDS: Final = Ids(token_hex(8))


def request_id(given: bytes | None) -> str:
    """The caller's id when it is short and safe to log, else a new one."""
    if given is not None and SAFE_ID.fullmatch(given):
        return given.decode("ascii")
    return IDS.new()


def lowered(name: bytes) -> bytes:
    """A header's name in lower case."""
    return SPELLED.get(name) or name.lower()


def named_in_connection(value: bytes) -> frozenset[bytes]:
    """The header names that a `Connection` header makes hop-by-hop."""
    return frozenset(name.strip().lower() for name in value.split(b","))


def to_client(headers: Headers) -> Headers:
    """The worker's headers that go on to the client; names are lower case already."""
    passed = [header for header in headers if header[0] not in NOT_TO_CLIENTS]
    if len(passed) == len(headers):
        return passed
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name == b"connection" and value.lower() not in PLAIN_CONNECTION:
            named |= named_in_connection(value)
    if named:
        passed = [header for header in passed if header[0] not in named]
    return passed


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of a header; the name is given in lower case."""
    for key, value in headers:
        if key == name:
            return value
    return None


def cookie(header: bytes, name: bytes) -> str | None:
    """The value of one cookie in a `Cookie` header, by RFC 6265's own simple grammar."""
    for pair in header.split(b";"):
        left, equals, right = pair.strip().partition(b"=")
        if equals and left == name:
            return right.strip(b'"').decode("latin-1") or None
    return None


def retry_after(headers: Headers) -> float | None:
    """The seconds of a `Retry-After`; its date form is not worth a calendar here."""
    value = find(headers, b"retry-after")
    return float(value) if value is not None and value.isdigit() and len(value) < 9 else None
