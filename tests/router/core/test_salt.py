"""What stands for a tenant's salt."""

import json

from hypothesis import given
from hypothesis import strategies as st

from router.core.salt import salt


def test_it_is_the_same_everywhere() -> None:
    """Engines keep blocks for longer than a gateway lives, and replicas send to the same engines."""
    assert salt("red", None) == b'"6db31743525b5d4a62209738bd4a1732"'


def test_absent_and_empty_differ_and_null_is_absent() -> None:
    assert salt("red", b'""') != salt("red", None) == salt("red", b"null")


def test_one_that_is_no_text_counts_as_absent() -> None:
    for given_value in (b"7", b"[]", b"{}", b"NaN", b"not JSON", b"[" * 100_000):
        assert salt("red", given_value) == salt("red", None)


def test_the_spelling_does_not_matter() -> None:
    assert salt("red", b'"a\\u0062"') == salt("red", b'"ab"')


@given(st.text(), st.text(), st.none() | st.text(), st.none() | st.text())
def test_no_two_callers_share_one(one: str, other: str, mine: str | None, theirs: str | None) -> None:
    """Whatever a client sends, it stays within its tenant."""
    first = salt(one, None if mine is None else json.dumps(mine).encode())
    second = salt(other, None if theirs is None else json.dumps(theirs).encode())
    assert (first == second) is ((one, mine) == (other, theirs))
    assert len(json.loads(first)) == 32
