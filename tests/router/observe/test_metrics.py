"""The metrics of the contract, counted of events and read from the fleet."""

import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.core.fleet import Fleet
from router.events import AttemptFailed, Event, Finished, FirstToken, Panicked, Queued, Resumed, Shadowed, WorkerLeft
from router.observe.bus import Bus
from router.observe.metrics import Metrics
from tests.support.client import post
from tests.support.deployment import COUNTERS_AND_GAUGES, HISTOGRAMS
from tests.support.fleets import fleet_of, worker
from tests.support.gateway import Stage, ask

CHAT = "/v1/chat/completions"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Meters:
    def __init__(self, *names: str) -> None:
        self.bus = Bus()
        self.fleet: Fleet = fleet_of(worker(name, models=("m", "n")) for name in names or ("a", "b"))
        self.waiting = 0
        self.heard: dict[str, dict[tuple[str, ...], float]] = {}
        self.metrics = Metrics(
            self.bus, self.fleet, [CHAT, "/v1/models"], lambda: self.waiting, "prefix_cost", lambda: self.heard
        )

    def tell(self, *events: Event) -> None:
        for event in events:
            self.bus.emit(event)

    def samples(self) -> Samples:
        found = {}
        for family in text_string_to_metric_families(self.metrics.scrape().decode()):
            for sample in family.samples:
                found[sample.name.removeprefix("prefix_router_"), frozenset(sample.labels.items())] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))


@pytest.fixture
def meters() -> Meters:
    return Meters()


def done(**fields: Any) -> Finished:
    given = {"request_id": "r", "path": CHAT, "model": "m", "status": 200, "worker": "a", "reason": "home"}
    more = {"tries": 1, "prompt_tokens": 100, "cached_tokens": 60, "usage_reported": True, "seconds": 1.0}
    return Finished(**{**given, **more, "predicted_cached_tokens": 64, "first_byte_seconds": 0.1,
                       "decision_seconds": 0.0002, **fields})  # fmt: skip


def refused(code: str = "no_ready_worker", status: int = 503, **fields: Any) -> Finished:
    return Finished(**{"request_id": "r", "path": CHAT, "model": "m", "status": status, "code": code, **fields})


EVERYTHING: list[Event] = [
    done(reason="spill"),
    done(status=499, cancelled_in="streaming"),
    done(usage_reported=False, cached_tokens=None),
    refused(),
    AttemptFailed("a", "refused", True, "home", "m", 10),
    FirstToken("m", 0.2, 0.3),
    Queued(0.5, True),
    Resumed("a", "went_on"),
    Shadowed("random", True, 300.0, 100.0),
]
HEARD: dict[str, dict[tuple[str, ...], float]] = {
    "shared": {("sent",): 3, ("received",): 2, ("dropped",): 0, ("garbage",): 0},
    "kv_matches": {("matched",): 5, ("fallback",): 1},
    "kv_events": {("a", "stored"): 7, ("b", "gap"): 1},
}


def test_every_metric_of_the_contract_is_there_with_its_labels(meters: Meters) -> None:
    meters.tell(*EVERYTHING)
    meters.heard = HEARD
    shown = {(name, frozenset(key for key, _ in labels)) for name, labels in meters.samples()}
    for name, labels in COUNTERS_AND_GAUGES.items():
        assert (name, frozenset(labels)) in shown
    for name, labels in HISTOGRAMS.items():
        assert (f"{name}_bucket", frozenset(labels | {"le"})) in shown
        assert (f"{name}_count", frozenset(labels)) in shown
    assert ("usage_unreported_total", frozenset({"model"})) in shown


@pytest.mark.system("promtool")
@pytest.mark.parametrize("events", [[], EVERYTHING], ids=["fresh", "after all kinds of events"])
def test_promtool_finds_no_fault_in_a_scrape(meters: Meters, events: list[Event]) -> None:
    meters.tell(*events)
    told = subprocess.run(["promtool", "check", "metrics"], input=meters.metrics.scrape(), capture_output=True)
    assert (told.returncode, told.stdout + told.stderr) == (0, b"")


def test_a_request_is_counted_by_path_model_and_code(meters: Meters) -> None:
    meters.tell(done(), done(), done(status=500))
    assert meters.value("requests_total", path=CHAT, model="m", code="200") == 2
    assert meters.value("requests_total", path=CHAT, model="m", code="500") == 1


def test_a_request_whose_client_went_away_counts_as_499_and_by_its_phase(meters: Meters) -> None:
    meters.tell(done(status=499, cancelled_in="waiting"))
    assert meters.value("requests_total", path=CHAT, model="m", code="499") == 1
    assert meters.value("cancelled_total", phase="waiting") == 1


def test_unknown_models_and_paths_share_one_series(meters: Meters) -> None:
    meters.tell(done(path="/x", model="x"), done(path=CHAT, model="x"), done(path="/x"), *EVERYTHING)
    before = set(meters.samples())
    for at in range(1000):
        meters.tell(done(model=f"made-up-{at}"), done(path=f"/made-up/{at}"), FirstToken(f"made-up-{at}", 0.1),
                    refused(model=f"made-up-{at}", path=f"/{at}"),
                    AttemptFailed("a", "refused", True, "home", f"made-up-{at}", 1))  # fmt: skip
    fresh = set(meters.samples()) - before
    assert all("made-up" not in value for _, labels in meters.samples() for _, value in labels)
    assert {name for name, _ in fresh} <= {
        "requests_total", "request_seconds_bucket", "request_seconds_count", "request_seconds_sum",
        "first_token_seconds_bucket", "first_token_seconds_count", "first_token_seconds_sum", "slo_requests_total",
        "predicted_cached_tokens_total", "first_byte_seconds_bucket", "first_byte_seconds_count",
        "first_byte_seconds_sum",
    }  # fmt: skip
    assert len(fresh) < 120
    assert len(meters.metrics._rows) < 20
    assert meters.value("requests_total", path="other", model="other", code="200") == 1


def test_the_number_of_series_does_not_grow_with_more_of_the_same_strangers(meters: Meters) -> None:
    def strangers(start: int) -> None:
        for at in range(start, start + 500):
            meters.tell(done(model=f"x{at}", path=f"/{at}"), refused(model=f"x{at}"), FirstToken(f"x{at}", 9))

    strangers(0)
    before = set(meters.samples())
    strangers(500)
    assert set(meters.samples()) == before


def test_counters_never_go_down_over_scrapes_with_events_between(meters: Meters) -> None:
    seen: Samples = {}
    for turn in range(6):
        meters.tell(*EVERYTHING, done(worker="b", reason="warm"))
        if turn == 3:
            meters.tell(done(model="stranger", path="/strange"))
        now = meters.samples()
        counters = {key: value for key, value in seen.items() if key[0].endswith(("_total", "_count", "_bucket"))}
        assert all(now[key] >= value for key, value in counters.items())
        assert now["requests_total", frozenset({("path", CHAT), ("model", "m"), ("code", "200")})] == 3 * (turn + 1)
        seen = now
    assert meters.samples() == seen, "a scrape changes nothing"


def test_what_a_worker_that_left_had_is_dropped_and_totals_stay(meters: Meters) -> None:
    meters.tell(*EVERYTHING, done(worker="b"))
    before = meters.value("requests_total", path=CHAT, model="m", code="200")
    decisions = meters.value("decisions_total", policy="prefix_cost", reason="home")
    meters.tell(done())
    meters.fleet.reconcile([worker("b", models=("m", "n"))])
    meters.tell(WorkerLeft("a"), done(), AttemptFailed("a", "broken", False))
    after = meters.samples()
    assert not [key for key in after if ("worker", "a") in key[1]]
    assert [key for key in after if ("worker", "b") in key[1]]
    assert before is not None
    assert decisions is not None
    assert meters.value("requests_total", path=CHAT, model="m", code="200") == before + 2
    assert meters.value("decisions_total", policy="prefix_cost", reason="home") == decisions + 2


def test_a_choice_is_counted_once_with_and_without_a_retry(meters: Meters) -> None:
    meters.tell(AttemptFailed("a", "refused", True, "home", "m", 10), done(worker="b", reason="retry", tries=2))
    assert meters.value("decisions_total", policy="prefix_cost", reason="home") == 1
    assert meters.value("decisions_total", policy="prefix_cost", reason="retry") == 1
    assert meters.value("retries_total", kind="refused") == 1
    assert meters.value("worker_failures_total", worker="a", kind="refused") == 1
    assert meters.value("predicted_cached_tokens_total", model="m", worker="a") == 10
    meters.tell(
        AttemptFailed("b", "broken", False, "home", "m", 10), done(worker="b", status=502, code="worker_failed")
    )
    assert meters.value("decisions_total", policy="prefix_cost", reason="home") == 2
    assert meters.value("retries_total", kind="broken") is None


def test_a_spill_is_counted_at_the_worker_it_went_to(meters: Meters) -> None:
    meters.tell(done(reason="spill", worker="b"), done(reason="home", worker="b"))
    assert meters.value("spills_total", worker="b") == 1


def test_tokens_are_those_of_answers_that_went_well(meters: Meters) -> None:
    meters.tell(done(), done(status=500, prompt_tokens=1000, cached_tokens=500))
    assert meters.value("prompt_tokens_total", model="m") == 100
    assert meters.value("cached_tokens_total", model="m", worker="a") == 60
    assert meters.value("usage_unreported_total", model="m") == 0


def test_cached_tokens_are_counted_only_where_they_were_reported(meters: Meters) -> None:
    meters.tell(done(usage_reported=False, cached_tokens=None, prompt_tokens=40))
    assert meters.value("prompt_tokens_total", model="m") == 40
    assert meters.value("cached_tokens_total", model="m", worker="a") == 0
    assert meters.value("usage_unreported_total", model="m") == 1


def test_first_tokens_in_time_meet_the_target(meters: Meters) -> None:
    """Each request has its own allowance: a long prompt that nobody holds may take longer."""
    meters.tell(FirstToken("m", 0.3, 0.3), FirstToken("m", 0.31, 0.3), FirstToken("m", 0.31, 0.8))
    assert meters.value("slo_requests_total", model="m", met="true") == 2
    assert meters.value("slo_requests_total", model="m", met="false") == 1


def test_predictions_are_compared_with_what_was_delivered_only_where_usage_came(meters: Meters) -> None:
    meters.tell(done(), done(predicted_cached_tokens=36), done(cached_tokens=None, predicted_cached_tokens=1000),
                done(usage_reported=False, cached_tokens=None, predicted_cached_tokens=1000))  # fmt: skip
    assert meters.value("predicted_cached_tokens_total", model="m", worker="a") == 2100
    assert meters.value("reported_predicted_cached_tokens_total", model="m", worker="a") == 100
    assert meters.value("cached_prediction_ratio", model="m", worker="a") == 1.2


def test_a_worker_of_which_nothing_was_predicted_has_no_ratio(meters: Meters) -> None:
    meters.tell(done(predicted_cached_tokens=0))
    assert meters.value("cached_prediction_ratio", model="m", worker="a") is None


def test_affinity_saved_what_was_cached_beyond_chance_and_never_less_than_nothing(meters: Meters) -> None:
    meters.tell(done(chance_cached_tokens=20), done(chance_cached_tokens=1000), done(cached_tokens=None),
                done(status=500, chance_cached_tokens=0))  # fmt: skip
    assert meters.value("affinity_saved_tokens_total", model="m") == 40


def test_what_the_shadow_would_have_done_is_counted_by_whether_it_differs(meters: Meters) -> None:
    meters.tell(Shadowed("random", True, 300.0, 100.0), Shadowed("random", False, 50.0, 50.0))
    assert meters.value("shadow_decisions_total", policy="random", differs="true") == 1
    assert meters.value("shadow_decisions_total", policy="random", differs="false") == 1
    assert meters.value("shadow_cost_tokens_total", policy="random") == 350
    assert meters.value("shadow_made_tokens_total", policy="random") == 150


def test_counts_that_others_keep_show_as_they_stand_and_go_with_their_worker(meters: Meters) -> None:
    meters.heard = HEARD
    for _ in range(2):
        assert meters.value("kv_matches_total", result="matched") == 5, "a scrape does not add to them"
        assert meters.value("shared_total", kind="sent") == 3
        assert meters.value("kv_events_total", worker="a", kind="stored") == 7
    meters.fleet.reconcile([worker("b", models=("m", "n"))])
    meters.tell(WorkerLeft("a"))
    meters.heard = {**HEARD, "kv_events": {("b", "gap"): 1}}
    assert meters.value("kv_events_total", worker="a", kind="stored") is None
    assert meters.value("kv_events_total", worker="b", kind="gap") == 1


def test_buckets_reach_ten_minutes(meters: Meters) -> None:
    meters.tell(done(seconds=599.0, first_byte_seconds=599.0), FirstToken("m", 599.0), Queued(599.0, False))
    for name, labels in (("request_seconds", {"path": CHAT, "model": "m"}), ("first_token_seconds", {"model": "m"}),
                         ("first_byte_seconds", {"path": CHAT, "model": "m"}), ("queue_seconds", {})):  # fmt: skip
        assert meters.value(f"{name}_bucket", le="600.0", **labels) == 1
        assert meters.value(f"{name}_bucket", le="300.0", **labels) == 0


def test_a_refusal_is_counted_by_its_code_and_chooses_nobody(meters: Meters) -> None:
    meters.tell(refused("overloaded", 429))
    assert meters.value("rejected_total", code="overloaded") == 1
    assert not [name for name, _ in meters.samples() if name == "decisions_total"]


def test_gauges_are_read_from_the_fleet_at_the_scrape(meters: Meters) -> None:
    seat = meters.fleet.seats["a"]
    lease = seat.load.charge(50.0, 0.0, streaming=False)
    meters.waiting = 7
    assert meters.value("in_flight", worker="a") == 1
    assert meters.value("outstanding_tokens", worker="a") == 50
    assert meters.value("queued") == 7
    lease.release()
    assert meters.value("in_flight", worker="a") == 0


def test_a_worker_is_in_exactly_one_state(meters: Meters) -> None:
    states = {labels: value for (name, labels), value in meters.samples().items() if name == "worker_state"}
    assert sum(states.values()) == len(meters.fleet.seats)
    assert meters.value("worker_state", worker="a", state="ready") == 1
    assert meters.value("worker_state", worker="a", state="down") == 0


def test_a_panic_and_a_refused_reload_show(meters: Meters) -> None:
    assert (meters.value("panic"), meters.value("config_reload_failed")) == (0, 0)
    meters.tell(Panicked(True))
    meters.metrics.reload_failed = True
    assert (meters.value("panic"), meters.value("config_reload_failed")) == (1, 1)
    meters.tell(Panicked(False))
    assert meters.value("panic") == 0


async def test_choices_and_further_attempts_are_counted_as_they_were_made(stage: Stage) -> None:
    """Two workers refuse: two choices, one of them a further attempt, one request."""
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers, health={"interval_seconds": 3600})
    for each in workers:
        await each.refuse()
    assert (await ask(running.port, post())).status == 503
    shown = await running.metrics()
    assert sum(value for name, value in shown.items() if "_decisions_total" in name) == 2
    assert [value for name, value in shown.items() if "_retries_total" in name] == [1]
    assert [value for name, value in shown.items() if "_requests_total{" in name and "503" in name] == [1]
    assert sum(value for name, value in shown.items() if "_worker_failures_total" in name) == 2


def test_a_snapshot_has_every_counter_and_histogram_and_says_where_workers_stand(meters: Meters) -> None:
    meters.tell(*EVERYTHING)
    seat = meters.fleet.seats["a"]
    seat.load.charge(50.0, 0.0, streaming=False)
    meters.waiting = 2
    taken = meters.metrics.snapshot()
    shown = {name for name, _ in meters.samples()}
    assert {f"{each.removeprefix('prefix_router_')}_total" for each in taken.sums} & shown
    for name, series in taken.sums.items():
        plain = name.removeprefix("prefix_router_")
        assert {f"{plain}_total", f"{plain}_sum"} & shown or not series
    assert taken.gauges["in_flight"] == {("a",): [1], ("b",): [0]}
    assert (taken.total("queued"), taken.total("outstanding_tokens")) == (2, 50.0)
    assert taken.worker_at["prefix_router_cached_tokens"] == 1
    assert taken.worker_at["prefix_router_worker_failures"] == 0


def test_a_scrape_may_show_the_numbers_of_all_processes_and_then_its_own_again(meters: Meters) -> None:
    other = Meters("a", "b", "c")
    for each in (meters, other):
        each.tell(*EVERYTHING)
        each.heard = HEARD
        each.fleet.seats["a"].load.charge(50.0, 0.0, streaming=False)
    whole = meters.metrics.snapshot()
    whole.add(other.metrics.snapshot())
    own = meters.samples()
    shown = {}
    for family in text_string_to_metric_families(meters.metrics.scrape(whole).decode()):
        shown.update({(each.name.removeprefix("prefix_router_"), frozenset(each.labels.items())): each.value
                      for each in family.samples})  # fmt: skip
    for key, value in own.items():
        name = key[0]
        once = name.startswith(
            ("worker_state", "build_info", "panic", "config_reload_failed", "queued", "cached_prediction_ratio")
        )
        assert shown[key] == (value if once else 2 * value), key
    assert shown["in_flight", frozenset({("worker", "c")})] == 0
    assert shown["build_info", next(labels for name, labels in own if name == "build_info")] == 1
    assert meters.samples() == own
