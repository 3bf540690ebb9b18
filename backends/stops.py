"""Strings that end an answer, found in text that comes in pieces.

What could still become a stop string is held back, so that no part of one is ever sent. Each string has its own
automaton (Knuth, Morris and Pratt 1977), one step a character: where the pieces are cut makes no difference.
"""

from collections.abc import Sequence


class Stops:
    """`found` is the stop string that came first; of several that end at once, the longest. None until then."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.found: str | None = None
        self._matchers = [Matcher(string) for string in sorted(strings, key=len, reverse=True)]
        self._held = ""

    def feed(self, piece: str) -> str:
        """The text that may be sent now. After the end that is nothing."""
        if not self._matchers:
            return piece
        if self.found is not None:
            return ""
        text = self._held + piece
        for end, character in enumerate(piece, len(self._held) + 1):
            complete = [matcher.string for matcher in self._matchers if matcher.step(character)]
            if complete:
                self.found, self._held = complete[0], ""
                return text[: end - len(complete[0])]
        safe = len(text) - max(matcher.matched for matcher in self._matchers)
        self._held = text[safe:]
        return text[:safe]

    def rest(self) -> str:
        """What was held back and turned out to be no stop string, once the answer has ended by itself."""
        held, self._held = self._held, ""
        return held


class Matcher:
    """One string: how much of its beginning the text so far ends with."""

    def __init__(self, string: str) -> None:
        self.string = string
        self.matched = 0
        self._borders = borders(string)

    def step(self, character: str) -> bool:
        """Whether this character completes the string. Not to be called again then."""
        while self.matched and self.string[self.matched] != character:
            self.matched = self._borders[self.matched - 1]
        if self.string[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.string)


def borders(string: str) -> list[int]:
    """For each beginning of the string, the length of the longest shorter beginning that it also ends with."""
    found = [0] * len(string)
    length = 0
    for at in range(1, len(string)):
        while length and string[at] != string[length]:
            length = found[length - 1]
        if string[at] == string[length]:
            length += 1
        found[at] = length
    return found
