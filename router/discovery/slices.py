"""EndpointSlices as the Kubernetes API tells them: a list, then lines of changes. Pure.

The API numbers every state of the cluster. A list says of which state it is, and a watch goes on from there; when that
state is too old to go on from, all is listed anew. The shapes are those of discovery.k8s.io/v1 and of the API's
"Efficient detection of changes": https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import re
from collections.abc import ValuesView

import msgspec

WORD = re.compile(r"[A-Za-z]{1,64}")
GONE = 410


class Trouble(Exception):
    """What went wrong, in words fit for a log.

    gone: what is known is no state to go on from: list anew
    wait: seconds that the API asks to be left alone
    """

    def __init__(self, words: str, *, gone: bool = False, wait: float = 0.0) -> None:
        super().__init__(words)
        self.gone, self.wait = gone, wait


class Camel(msgspec.Struct, rename="camel"):
    """In the API's spelling; what is not named here is left out."""


class Conditions(Camel):
    """None: not known, which stands for well."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Target(Camel):
    kind: str = ""
    name: str = ""


class Endpoint(Camel):
    """addresses: they lead to the same place; the first is used."""

    addresses: list[str] = []
    conditions: Conditions | None = None
    target_ref: Target | None = None
    zone: str | None = None
    node_name: str | None = None


class Port(Camel):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Meta(Camel):
    name: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None


class Slice(Camel):
    metadata: Meta
    address_type: str
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class SliceList(Camel):
    metadata: Meta
    items: list[Slice]
    kind: str = "EndpointSliceList"


class Line(Camel):
    """One line of a watch. `object`: a slice, the number of a state (BOOKMARK), or what went wrong (ERROR)."""

    type: str
    object: msgspec.Raw


class Bookmark(Camel):
    metadata: Meta


class Status(Camel):
    code: int = 0
    reason: str | None = None


_read_list = msgspec.json.Decoder(SliceList).decode
_read_line = msgspec.json.Decoder(Line).decode
_read_slice = msgspec.json.Decoder(Slice).decode
_read_bookmark = msgspec.json.Decoder(Bookmark).decode
_read_status = msgspec.json.Decoder(Status).decode
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)  # a wrong shape is a DecodeError too


class Slices:
    """The slices by name, kept equal to what the API says. `version`: the state they are of; None: list first."""

    def __init__(self) -> None:
        self.version: str | None = None
        self._known: dict[str, Slice] = {}

    def __repr__(self) -> str:
        return f"<Slices {', '.join(self._known)} of {self.version}>"

    def all(self) -> ValuesView[Slice]:
        return self._known.values()

    def replace(self, listed: bytes) -> None:
        """Take this list for the whole. Raises Trouble for what is none, and changes nothing then."""
        try:
            read = _read_list(listed)
        except UNREADABLE:
            raise Trouble("its list cannot be read") from None
        if read.kind != "EndpointSliceList" or not read.metadata.resource_version:
            raise Trouble("its list is none of EndpointSlices")
        self._known = {each.metadata.name: each for each in read.items}
        self.version = read.metadata.resource_version

    def apply(self, line: bytes) -> bool:
        """Take one line of a watch; whether slices changed. Raises Trouble for an error that the API tells, and for
        what is no such line: all must be listed anew then."""
        try:
            read = _read_line(line)
            if read.type == "ERROR":
                raise _trouble(_read_status(read.object))
            if read.type == "BOOKMARK":
                self.version = _read_bookmark(read.object).metadata.resource_version or self.version
                return False
            changed = _read_slice(read.object)
        except UNREADABLE:
            raise Trouble("a change cannot be read", gone=True) from None
        if read.type in ("ADDED", "MODIFIED"):
            self._known[changed.metadata.name] = changed
        elif read.type == "DELETED":
            self._known.pop(changed.metadata.name, None)
        else:
            raise Trouble("a change is of an unknown type", gone=True)
        self.version = changed.metadata.resource_version or self.version
        return True


def _trouble(status: Status) -> Trouble:
    """Only the error's name is told: its text may be anything."""
    if status.code == GONE:
        return Trouble("the state that was known is gone", gone=True)
    name = status.reason if status.reason and WORD.fullmatch(status.reason) else "an error"
    return Trouble(f"the watch ended with {name} ({status.code})", gone=True)
