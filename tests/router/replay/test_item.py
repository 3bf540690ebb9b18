"""A prompt is made once; a request belongs to one run."""

from router.replay.item import Item, Request
from router.replay.words import BlockWords
from router.types import Fingerprint
from tests.support.replays import LABELS, item


class Counting(BlockWords):
    """Counts how often it is hashed."""

    asked = 0

    def fingerprint(self) -> Fingerprint:
        self.asked += 1
        return super().fingerprint()


def test_a_prompt_is_hashed_once_and_only_if_somebody_asks() -> None:
    words = Counting([1], LABELS, 512)
    prompt = Item([1], [512], 512, 1, words)
    assert words.asked == 0
    assert prompt.prefix is prompt.prefix
    assert words.asked == 1


def test_time_to_first_token_counts_from_when_it_was_sent() -> None:
    late = Request(item([1]), due=1.0)
    late.first = 5.0
    assert late.ttft == 4.0
    late.at = 3.0
    assert late.ttft == 2.0
