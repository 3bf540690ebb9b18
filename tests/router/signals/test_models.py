"""The model list: joined, cached, answered at once."""

from typing import Any

import pytest

from router.core.fleet import Fleet
from router.signals.models import ModelCatalogue
from tests.support.client import get
from tests.support.fleets import down, fleet_of, ready, worker
from tests.support.gateway import Stage, ask, eventually


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", **more}


@pytest.fixture
def fleet() -> Fleet:
    return fleet_of(("a", "b"))


@pytest.fixture
def catalogue(fleet: Fleet) -> ModelCatalogue:
    return ModelCatalogue(fleet)


def test_the_list_is_the_union_one_entry_a_model_in_order(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    catalogue.learn(fleet.seats["a"], [entry("y"), entry("x")])
    catalogue.learn(fleet.seats["b"], [entry("z"), entry("y")])
    assert [each["id"] for each in catalogue.listed()] == ["x", "y", "z"]


def test_the_list_says_what_engine_a_worker_runs(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    seat = fleet.seats["a"]
    assert seat.engine is None
    catalogue.learn(seat, [entry("x", owned_by="vllm"), entry("y", owned_by="me")])
    assert seat.engine == "vllm"
    catalogue.learn(seat, [entry("x", owned_by=["odd"])])
    assert seat.engine is None


def test_the_workers_own_fields_are_kept_those_of_the_first_by_name(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    catalogue.learn(fleet.seats["b"], [entry("m", max_model_len=2, root="b", permission=[{"id": 1}])])
    catalogue.learn(fleet.seats["a"], [entry("m", max_model_len=1)])
    assert catalogue.listed() == [entry("m", max_model_len=1)]
    down(fleet, fleet.seats["a"])
    assert catalogue.listed() == [entry("m", max_model_len=2, root="b", permission=[{"id": 1}])]


def test_what_is_learnt_decides_who_serves_what(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    catalogue.learn(fleet.seats["a"], [entry("x")])
    catalogue.learn(fleet.seats["b"], [entry("y")])
    assert [seat.id for seat in fleet.candidates("x")] == ["a"]
    assert fleet.models() == ["x", "y"]


def test_an_empty_list_means_any_model(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    catalogue.learn(fleet.seats["a"], [])
    assert fleet.seats["a"].models is None
    assert fleet.served("whatever")
    assert catalogue.listed() == []


def test_configured_models_count_and_have_an_entry_even_unpublished() -> None:
    fleet = fleet_of([worker("a", models=("own", "published"))])
    catalogue = ModelCatalogue(fleet)
    catalogue.learn(fleet.seats["a"], [entry("published", max_model_len=1), entry("hidden")])
    own, published = catalogue.listed()
    assert (own["id"], own["object"]) == ("own", "model")
    assert published == entry("published", max_model_len=1)


def test_workers_that_are_not_ready_list_nothing(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    catalogue.learn(fleet.seats["a"], [entry("x")])
    down(fleet, fleet.seats["a"])
    assert catalogue.listed() == []


def test_a_worker_that_left_takes_its_entries_with_it(fleet: Fleet, catalogue: ModelCatalogue) -> None:
    catalogue.learn(fleet.seats["a"], [entry("x", note="old")])
    fleet.reconcile([worker("b")])
    catalogue.forget("a")
    assert catalogue.listed() == []
    fleet.reconcile([worker("a", models=("x",)), worker("b")])
    ready(fleet)
    assert "note" not in catalogue.listed()[0]
    catalogue.forget("never-there")


async def test_the_list_is_answered_at_once_while_a_worker_hangs(stage: Stage) -> None:
    one, other = await stage.worker(models=("x",)), await stage.worker(models=("y",))
    running = await stage.gateway(one, other)
    await eventually(lambda: running.house.fleet.models() == ["x", "y"])
    one.probe_delay, before = 60.0, len(one.probes)
    await eventually(lambda: len(one.probes) > before)
    listed = (await ask(running.port, get("/v1/models"))).json()
    assert listed["object"] == "list"
    assert {each["id"]: each["max_model_len"] for each in listed["data"]} == {"x": 4096, "y": 4096}


async def test_the_models_of_a_removed_worker_go(stage: Stage) -> None:
    one, other = await stage.worker(models=("x",)), await stage.worker(models=("y",))
    running = await stage.gateway(one, other)
    running.gateway.roster.remove(one.id)
    running.gateway.apply()
    assert [each["id"] for each in (await ask(running.port, get("/v1/models"))).json()["data"]] == ["y"]
