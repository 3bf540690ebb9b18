"""The mock's vectors."""

import pytest

from backends.mock.vector import vector_of


def dot(one: list[float], other: list[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))


def test_vectors_are_unit_and_deterministic() -> None:
    assert dot(vector_of([1, 2], 0), vector_of([1, 2], 0)) == pytest.approx(1.0)


def test_vectors_of_alike_texts_are_nearer() -> None:
    one, near, far = (vector_of(ids, 0) for ids in (range(50), range(2, 52), range(900, 950)))
    assert dot(one, near) > dot(one, far)


def test_nothing_has_a_vector_too() -> None:
    assert set(vector_of([], 0)) == {0.0}
