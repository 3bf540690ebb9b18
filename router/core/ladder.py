"""Which depth of the prefix is the key: the shallowest rung that is not hot.

A fixed depth is a trap. Every request of some workloads begins with the same thousands of tokens, and a key that
short would send all of them to one worker; a key that long would scatter the rest. A prefix is hot while it has more
than `share / workers` of the recent requests. Once a prompt's first rung is half way to hot all its rungs are counted,
so a long hot head is passed soon after it has been seen often enough; counts halve every `window` requests and are
dropped below one.
"""

from __future__ import annotations

from router.types import Fingerprint, Key


class Ladder:
    """Counts recent prefixes. Bounded: at most `window * 2` requests' rungs are remembered.

    share: the part of an equal split of the traffic above which a prefix is hot
    least: no prefix is hot before it was seen this often
    """

    def __init__(self, share: float = 0.25, window: int = 1000, least: int = 8) -> None:
        self.share, self.window, self.least = share, window, least
        self._seen: dict[int, float] = {}
        self._total = 0.0
        self._since = 0

    def __len__(self) -> int:
        return len(self._seen)

    def note(self, prompt: Fingerprint, workers: int, known: int = -1) -> Key:
        """Count this prompt and give its key. `known`: the index of its deepest rung that was certainly seen before."""
        self._total += 1
        self._since += 1
        key = self._count(prompt, workers, known)
        if self._since >= self.window:
            self._age()
        return key

    def _count(self, prompt: Fingerprint, workers: int, known: int) -> Key:
        hashes = prompt.hashes
        if not hashes:
            return Key(prompt.whole, 0, 0)
        bar = self.share / (workers or 1) * self._total
        if bar < self.least:
            bar = float(self.least)
        seen = self._seen
        head = hashes[0]
        count = seen[head] = seen.get(head, 0.0) + 1.0
        if count <= bar / 2:  # deeper rungs were seen no more often: they are counted once this one is half way to hot
            return Key(head, prompt.depths[0], 0)
        depths, key, hot_depth = prompt.depths, None, 0
        if count <= bar:
            key = Key(head, depths[0], 0)
        else:
            hot_depth = depths[0]
        for at in range(1, len(hashes)):
            value = hashes[at]
            count = seen[value] = seen.get(value, 0.0) + 1.0
            if key is None:
                if count <= bar:
                    key = Key(value, depths[at], hot_depth)
                hot_depth = depths[at]
            if count < 2 and at > known:
                break  # new here, so new further down too
        return key or self._key(prompt, bar, 0)

    def look(self, prompt: Fingerprint, workers: int) -> Key:
        """The key this prompt would get, without counting it."""
        bar = max(self.least, self.share / max(1, workers) * (self._total + 1))
        return self._key(prompt, bar, 1)

    def _key(self, prompt: Fingerprint, bar: float, more: int) -> Key:
        """The shallowest rung that was seen at most `bar` times, with `more` on top of what was counted."""
        if not prompt.hashes:
            return Key(prompt.whole, 0, 0)
        hot_depth = 0
        for value, depth in zip(prompt.hashes, prompt.depths, strict=True):
            if self._seen.get(value, 0) + more <= bar:
                return Key(value, depth, hot_depth)
            hot_depth = depth
        return Key(prompt.hashes[-1], prompt.depths[-1], hot_depth)

    def _age(self) -> None:
        self._since = 0
        self._total /= 2
        self._seen = {value: count / 2 for value, count in self._seen.items() if count >= 2}
