"""How a worker's answer may be framed. What can be read in two ways is a broken answer.

llhttp refuses conflicting and malformed lengths; it takes codings in a response as they come, and knows no bounds.
"""

from __future__ import annotations

from typing import Final

from router.errors import BrokenAnswer

NO_BODY: Final = frozenset((204, 304))
MOST_HEAD: Final = 262_144  # bytes before an answer begins: of its head, and of interim answers before it


def framing(status: int, headers: list[tuple[bytes, bytes]]) -> tuple[int | None, bool]:
    """The declared length, and whether only the connection's end ends the body. Names are in lower case.

    Raises BrokenAnswer.
    """
    length, coded = None, False
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            if coded or value.strip().lower() != b"chunked":
                raise BrokenAnswer("its coding is not chunked, or twice")
            coded = True
    if not 100 <= status <= 599:
        raise BrokenAnswer("its status is none")
    return length, length is None and not coded and status not in NO_BODY
