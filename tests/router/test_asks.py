"""What is asked of a policy: with nothing known it is a request that any worker may get."""

import ast
import inspect
import textwrap

import pytest

from router.asks import Ask, Fingerprint, Key, Ranked, Usage


def test_an_ask_begins_with_nobody_known_to_hold_it() -> None:
    ask = Ask(Fingerprint((), [], 0, 0.0), Key(0, 0, 0), {}, 0)
    assert (ask.held, ask.hashes, ask.lease, ask.turn) == ({}, [], None, 0)


def test_two_asks_share_nothing_that_can_change() -> None:
    one, other = (Ask(Fingerprint((), [], 0, 0.0), Key(0, 0, 0), {}, 0) for _ in range(2))
    one.hashes.append(1)
    assert other.hashes == []


@pytest.mark.parametrize("kind", [Fingerprint, Key, Ranked, Usage])
def test_whoever_holds_one_may_keep_it(kind: type) -> None:
    """Every field is final, so that the type checker refuses whoever would change it."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__))).body  # type: ignore[misc]
    assert isinstance(made, ast.FunctionDef)
    fields = [
        each for each in made.body if not isinstance(each, ast.AnnAssign) or ast.unparse(each.annotation) != "Final"
    ]
    assert fields == []
    assert len(made.body) == len(kind.__slots__)  # type: ignore[attr-defined]


def test_two_of_the_same_facts_are_equal_and_say_what_they_are() -> None:
    for one, same, other in (
        (Ranked("w", "home", 0.0, 1.0), Ranked("w", "home", 0.0, 1.0), Ranked("w", "home", 0.0, 2.0)),
        (Key(1, 2, 3), Key(1, 2, 3), Key(1, 2, 4)),
        (Usage(1, None, 0), Usage(1, None, 0), Usage(1, 0, 0)),
        (Fingerprint((64,), [7], 0, 16.0), Fingerprint((64,), [7], 0, 16.0), Fingerprint((64,), [8], 0, 16.0)),
    ):
        assert one == same
        assert one != other
        assert one != "something else"
        assert repr(one).startswith(type(one).__name__ + "(")
