"""Fault rules: how they are written, which requests they meet, and how often."""

import random
from typing import Any

import msgspec
import pytest

from backends.mock import faults
from backends.mock.faults import Effects, Faults, Rule, RuleError, breaking, rule_from_text, rules_from

GENERATING = {"path": "/v1/completions", "generates": True}


def faults_of(*rules: Any) -> Faults:
    return Faults(rules_from(list(rules)), random.Random(0))


def test_the_command_lines_form_and_json_mean_the_same() -> None:
    assert rule_from_text("status=503,retry_after=2,times=3") == rule_from_text(
        '{"status": 503, "retry_after": 2, "times": 3}'
    )
    assert rule_from_text("hang").hang is True
    assert rule_from_text("cut=done,path=/x").cut == "done"
    assert rule_from_text("reset=2.5").reset == 2.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown field"),
        ("nonsense", "nonsense"),
        ("times=3", "no effect"),
        ("status=99", "`status`"),
        ("hang,share=2", "`share`"),
        ("delay=-1", "`delay`"),
        ("split=0", "`split`"),
        ("cut=sideways", "cut"),
        ("{", "Expecting"),
        ("delay=x", "delay"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(RuleError, match=said):
        rule_from_text(text)


def test_all_faults_of_all_rules_are_told_together() -> None:
    with pytest.raises(RuleError, match=r"rule 0: .*`share`.*rule 2: .*no effect"):
        rules_from([{"hang": True, "share": 3}, {"hang": True}, {"times": 1}])


def test_empty_rules_are_none() -> None:
    assert rules_from({}) == rules_from([]) == rules_from([{}]) == []


def test_a_rule_meets_the_generating_paths_unless_it_names_others() -> None:
    assert faults_of({"hang": True}).choose(**GENERATING) == Effects(hang=True)
    assert faults_of({"hang": True}).choose("/health", generates=False) is None
    assert faults_of({"hang": True, "path": "/health"}).choose("/health", generates=False) is not None
    assert faults_of({"hang": True, "paths": ["/health"]}).choose(**GENERATING) is None
    assert faults_of({"hang": True, "path": "*"}).choose("/metrics", generates=False) is not None


def test_not_ready_is_about_health() -> None:
    rules = faults_of({"not_ready": True})
    assert rules.choose("/ping", generates=False) is not None
    assert rules.choose(**GENERATING) is None


def test_times_counts_down_and_shows_what_is_left() -> None:
    rules = faults_of({"status": 500, "times": 2})
    assert rules.choose(**GENERATING) is not None
    assert rules.shown() == [{"status": 500, "times": 1}]
    assert rules.choose(**GENERATING) is not None
    assert rules.choose(**GENERATING) is None


def test_a_share_is_drawn_with_the_seeded_dice() -> None:
    one, other = (faults_of({"hang": True, "share": 0.2}) for _ in range(2))
    met = [one.choose(**GENERATING) is not None for _ in range(400)]
    assert met == [other.choose(**GENERATING) is not None for _ in range(400)]
    assert 40 < sum(met) < 120


def test_the_first_rule_that_has_an_effect_decides_it_and_others_add_theirs() -> None:
    rules = faults_of({"delay": 1, "status": 500}, {"status": 503, "gzip": True})
    assert rules.choose(**GENERATING) == Effects(delay=1, status=500, gzip=True)


def test_refusing_and_closing_are_no_matter_of_requests() -> None:
    rules = faults_of({"refuse": 2.5, "close_idle": 1})
    assert rules.choose(**GENERATING) is None
    assert (rules.refuse, rules.close_idle) == (2.5, 1)
    assert (faults_of().refuse, faults_of().close_idle) == (None, None)


def test_true_means_before_anything_is_sent() -> None:
    assert breaking(Effects(hang=True)) == ("hang", "before")
    assert breaking(Effects(reset=0)) == ("reset", 0)
    assert breaking(Effects(cut=False)) is None


def test_every_effect_is_in_the_table_that_help_shows() -> None:
    names = {field.name for field in msgspec.structs.fields(Rule)}
    assert faults.__doc__ is not None
    assert [name for name in names if name not in faults.__doc__] == []
