"""Names of models in metrics: those that workers name, and a bounded number of them."""

from hypothesis import given
from hypothesis import strategies as st

from router.observe.model_names import MOST_MODELS, OTHER, ModelNames


def test_a_name_that_no_worker_bears_is_another() -> None:
    names = ModelNames({"m"}.__contains__)
    assert [names.shown(name) for name in ("m", "x", "", "m")] == ["m", OTHER, OTHER, "m"]


def test_a_name_that_no_worker_bears_any_more_is_another() -> None:
    known = {"m"}
    names = ModelNames(known.__contains__)
    assert names.shown("m") == "m"
    known.clear()
    assert names.shown("m") == OTHER


def test_names_beyond_the_most_are_another_and_those_before_stay() -> None:
    names = ModelNames(lambda _: True)
    given_out = [names.shown(f"adapter-{at}") for at in range(MOST_MODELS + 100)]
    assert given_out == [f"adapter-{at}" for at in range(MOST_MODELS)] + [OTHER] * 100
    assert names.shown("adapter-0") == "adapter-0"


@given(st.lists(st.text(max_size=3)), st.integers(0, 5))
def test_whatever_comes_the_names_are_bounded(asked: list[str], most: int) -> None:
    names = ModelNames(lambda name: not name.startswith("x"), most)
    assert len({names.shown(name) for name in asked} - {OTHER}) <= most
