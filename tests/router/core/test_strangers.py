"""What is learnt of other gateways that share nothing."""

from hypothesis import given
from hypothesis import strategies as st

from router.core.strangers import FIRST_TRUST, FIRST_WORK, Strangers


def test_the_home_is_trusted_a_little_before_anything_is_known() -> None:
    assert Strangers().trust == FIRST_TRUST


def test_trust_grows_while_the_home_holds_what_nobody_here_sent_it() -> None:
    strangers = Strangers()
    for _ in range(300):
        strangers.sent(home=True)
        strangers.found(0.9)
    assert 0.85 < strangers.trust < 0.95


def test_trust_goes_where_nothing_is_ever_found() -> None:
    strangers = Strangers()
    for _ in range(1000):
        strangers.sent(home=True)
        strangers.found(0.0)
    assert strangers.trust < 0.02


def test_little_found_by_those_who_seldom_go_home_is_no_sign_that_going_home_is_no_use() -> None:
    seldom, always = Strangers(), Strangers()
    for at in range(1000):
        seldom.sent(home=at % 4 == 0)
        always.sent(home=True)
        for each in (seldom, always):
            each.found(0.2)
    assert seldom.trust > 3 * always.trust


def test_a_strangers_waiting_request_counts_as_our_own_waiting_ones_do() -> None:
    strangers = Strangers()
    assert strangers.looked(0, 0.0) == FIRST_WORK
    for _ in range(10):
        work = strangers.looked(2, 9000.0)
    assert abs(work - 4500.0) < 1e-6


@given(st.lists(st.tuples(st.booleans(), st.floats(-10, 10))))
def test_trust_is_always_a_share(seen: list[tuple[bool, float]]) -> None:
    strangers = Strangers()
    for home, share in seen:
        strangers.sent(home=home)
        strangers.found(share)
        assert 0.0 < strangers.trust <= 1.0


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 1e6))))
def test_the_work_of_a_stranger_is_never_negative(looks: list[tuple[int, float]]) -> None:
    strangers = Strangers()
    assert all(strangers.looked(waiting, charged) >= 0.0 for waiting, charged in looks)
