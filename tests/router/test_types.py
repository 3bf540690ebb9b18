"""The nouns are frozen and say what they mean."""

import pytest

from router.types import News, Reason, Worker, WorkerState, worker_from_url


def test_a_worker_is_named_after_its_address() -> None:
    assert worker_from_url("http://W:1/v1").id == "w:1"


def test_a_given_id_wins() -> None:
    assert worker_from_url("http://w:1", id="gpu").id == "gpu"


def test_fields_that_are_none_take_the_default() -> None:
    made = worker_from_url("http://w:1", id=None, weight=None, labels=None, models=("m",))
    assert (made.id, made.weight, made.labels, made.models) == ("w:1", 1.0, {}, ("m",))


def test_a_bad_url_makes_no_worker() -> None:
    with pytest.raises(ValueError, match="http"):
        worker_from_url("nonsense")


def test_an_unknown_field_makes_no_worker() -> None:
    with pytest.raises(TypeError):
        worker_from_url("http://w:1", colour="red")


def test_two_workers_of_the_same_facts_are_equal() -> None:
    assert worker_from_url("http://w:1/") == worker_from_url("http://W:1/v1")
    assert worker_from_url("http://w:1") != worker_from_url("http://w:1", weight=2.0)


@pytest.mark.parametrize("noun", [worker_from_url("http://w:1"), News("w", 1.0, 1.0, [])])
def test_nouns_cannot_be_changed(noun: object) -> None:
    field = noun.__struct_fields__[0]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        setattr(noun, field, 1)


def test_the_labels_of_two_workers_are_not_one_mapping() -> None:
    first, second = worker_from_url("http://a:1"), worker_from_url("http://b:1")
    assert isinstance(first, Worker)
    assert first.labels is not second.labels


def test_the_contract_names_the_reasons_and_the_states() -> None:
    reasons = {str(value) for name, value in vars(Reason).items() if name.isupper()}
    assert reasons == {"home", "warm", "spill", "cold", "session", "load", "retry"}
    assert {str(state) for state in WorkerState} == {"ready", "suspect", "down", "trial", "draining", "starting"}


def test_a_workers_text_shows_no_secret() -> None:
    assert repr(worker_from_url("http://u:s3cret@w:1", api_key="s3cret")) == "<Worker w:1 at http://w:1>"
