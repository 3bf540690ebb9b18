"""What one caller may ask for in a minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.rates import Account, Accounts, Bucket, Rate
from router.errors import RateLimited


def refused_for(account: Account, now: float, tokens: float | None = None) -> float | None:
    """Ask once; the seconds to wait where it is refused."""
    try:
        account.request(now)
        if tokens is not None:
            account.prompt(tokens, now)
    except RateLimited as refusal:
        return refusal.retry_after
    return None


def test_a_minute_s_worth_may_come_at_once_and_then_one_at_a_time() -> None:
    account = Account(Rate(6.0))
    assert [refused_for(account, 100.0) for _ in range(6)] == [None] * 6
    assert refused_for(account, 100.0) == pytest.approx(10.0)
    assert refused_for(account, 104.0) == pytest.approx(6.0)
    assert refused_for(account, 110.0) is None
    assert refused_for(account, 110.0) == pytest.approx(10.0)


def test_the_refusal_says_which_rate_it_was() -> None:
    account = Account(Rate(1.0, 10.0))
    account.request(0.0)
    with pytest.raises(RateLimited, match="1 requests a minute") as refused:
        account.request(0.0)
    assert (refused.value.status, refused.value.code) == (429, "rate_limited")
    account.prompt(10.0, 0.0)
    with pytest.raises(RateLimited, match="10 prompt tokens a minute"):
        account.prompt(1.0, 0.0)


def test_the_time_to_come_back_after_is_exact() -> None:
    account = Account(Rate(7.0, 900.0))
    now = 5.0
    for _ in range(50):
        seconds = refused_for(account, now, 300.0)
        if seconds is not None:
            assert refused_for(account, now + seconds - 0.01, 300.0) is not None
            now += seconds
            assert refused_for(account, now, 300.0) is None


def test_whoever_is_refused_pays_nothing() -> None:
    account = Account(Rate(2.0, 100.0))
    assert refused_for(account, 0.0, 100.0) is None
    for _ in range(10):
        assert refused_for(account, 0.0, 10.0) == pytest.approx(6.0)
    assert refused_for(account, 6.0, 10.0) is None


def test_a_prompt_larger_than_a_minute_s_worth_goes_alone_and_is_paid_for_afterwards() -> None:
    account = Account(Rate(None, 100.0))
    assert refused_for(account, 0.0, 300.0) is None
    assert refused_for(account, 0.0, 1.0) == pytest.approx(120.6)
    assert refused_for(account, 120.7, 1.0) is None
    assert refused_for(account, 121.0, 300.0) == pytest.approx(59.6)


def test_what_the_worker_reported_corrects_the_estimate_both_ways() -> None:
    account = Account(Rate(None, 100.0))
    account.prompt(80.0, 0.0)
    account.correct(-60.0, 0.0)
    assert refused_for(account, 0.0, 80.0) is None
    account.correct(100.0, 0.0)
    assert refused_for(account, 0.0, 1.0) == pytest.approx(60.6)


def test_a_correction_never_makes_more_than_a_minute_s_worth() -> None:
    account = Account(Rate(None, 100.0))
    account.prompt(1.0, 0.0)
    account.correct(-1000.0, 0.0)
    assert refused_for(account, 0.0, 100.0) is None
    assert refused_for(account, 0.0, 1.0) == pytest.approx(0.6)


def test_less_than_one_a_minute_is_a_rate_too() -> None:
    account = Account(Rate(0.5))
    assert refused_for(account, 0.0) is None
    assert refused_for(account, 0.0) == pytest.approx(120.0)


def test_without_a_rate_nothing_is_refused() -> None:
    assert not Rate()
    assert [refused_for(Account(Rate()), 0.0, 1e9) for _ in range(100)] == [None] * 100


def test_callers_have_an_account_each_and_a_new_rate_begins_anew() -> None:
    accounts, rate = Accounts(), Rate(1.0)
    assert accounts.of("a", rate) is accounts.of("a", rate) is not accounts.of("b", rate)
    assert refused_for(accounts.of("a", rate), 0.0) is None
    assert refused_for(accounts.of("a", rate), 0.0)
    assert refused_for(accounts.of("a", Rate(2.0)), 0.0) is None


def test_the_table_is_bounded_and_forgets_who_asked_longest_ago() -> None:
    accounts, rate = Accounts(3), Rate(1.0)
    kept = accounts.of("a", rate)
    for name in "bcade":
        accounts.of(name, rate)
        assert len(accounts) <= 3
    assert accounts.of("a", rate) is kept


@given(
    st.floats(0.1, 1000.0),
    st.lists(st.tuples(st.floats(0.0, 90.0), st.floats(0.0, 2000.0)), max_size=60),
)
def test_no_rate_is_ever_exceeded_beyond_its_burst(per_minute: float, asked: list[tuple[float, float]]) -> None:
    """In any stretch of time: at most what fills in it, a full bucket, and the last prompt where that is larger."""
    bucket, now, taken = Bucket(per_minute), 0.0, []
    most = max(per_minute, 1.0)
    for seconds, amount in asked:
        now += seconds
        if not bucket.lacking(amount, now):
            bucket.take(amount, now)
            taken.append((now, amount))
    for first in range(len(taken)):
        total = 0.0
        for at in range(first, len(taken)):
            total += taken[at][1]
            filled = (taken[at][0] - taken[first][0]) * per_minute / 60.0
            beyond = max(0.0, taken[at][1] - most)
            assert total <= (filled + most + beyond) * (1 + 1e-6) + 1e-3


@given(st.floats(0.1, 1000.0), st.lists(st.floats(0.0, 2000.0), min_size=1, max_size=40))
def test_whoever_comes_back_when_told_is_let_in(per_minute: float, amounts: list[float]) -> None:
    bucket, now = Bucket(per_minute), 0.0
    for amount in amounts:
        now += bucket.lacking(amount, now)
        assert bucket.lacking(amount, now) == 0.0
        bucket.take(amount, now)
