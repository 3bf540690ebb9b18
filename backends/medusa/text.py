"""Tokens to text, one after the other.

In a byte-level vocabulary a character may be split over several tokens. Half a one is never shown: it is held back
until it is whole, and dropped where the text ends before that.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Collection

UTF8 = getincrementaldecoder("utf-8")


class Detokenizer:
    """One sequence's text. `token_bytes`: what a token stands for; `hidden`: tokens that are not shown."""

    def __init__(self, token_bytes: Callable[[int], bytes], hidden: Collection[int] = ()) -> None:
        self._token_bytes, self._hidden = token_bytes, hidden
        self._decoder = UTF8("replace")

    def feed(self, token: int) -> str:
        """The text that is certain with this token and was not before: empty while a character is incomplete. Bytes
        that cannot be UTF-8 become U+FFFD, one for each longest beginning of a character (Unicode 16, section 3.9)."""
        if token in self._hidden:
            return ""
        return self._decoder.decode(self._token_bytes(token))
