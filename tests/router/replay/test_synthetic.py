"""The made trace."""

from collections import Counter

from router.replay.synthetic import GROUPS, PREFIX, shared_prefixes
from tests.support.replays import dice


def test_the_same_dice_make_the_same_trace() -> None:
    one, other = (list(shared_prefixes(dice()("trace"), 50)) for _ in range(2))
    assert one == other
    assert list(shared_prefixes(dice(1)("trace"), 50)) != one


def test_the_hottest_group_has_a_fifth_and_every_question_is_its_own() -> None:
    lines = list(shared_prefixes(dice()("trace"), 4000))
    groups = Counter(line.hash_ids[0] for line in lines)
    assert 0.17 < groups.most_common(1)[0][1] / len(lines) < 0.26
    assert len(groups) == GROUPS
    assert len({line.hash_ids[-1] for line in lines}) == len(lines)
    assert all(line.input_length > PREFIX for line in lines)


def test_ten_come_in_a_second() -> None:
    lines = list(shared_prefixes(dice()("trace"), 4000))
    assert 370_000 < lines[-1].timestamp < 430_000
