"""What drafting does, as a dashboard reads it."""

import re

from prometheus_client.parser import text_string_to_metric_families

from backends.contract import Stats
from backends.medusa.metrics import Acceptance, acceptance_of, bucket, decoding_text
from backends.medusa.tally import Tally
from backends.metrics import metrics_text
from tests.support.deployment import DECODING
from tests.support.tiny_worker import run_of, running_of, told


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name and the values of all labels but the model's."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for name, value in sample.labels.items() if name != "model_name")
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def seen() -> Acceptance:
    tally = Tally(guessed=5, guesses=20)
    for rows, nodes, tokens, drafted in ((1, 6, 3, 0.5), (3, 9, 5, 0.25), (4, 8, 4, 0.0)):
        tally.step(rows, nodes, tokens, drafted, 2.0)
    tally.tried.update({("heads", 1): 6, ("heads", 2): 3, ("lookup", 1): 4})
    tally.right.update({("heads", 1): 3, ("heads", 2): 1, ("lookup", 1): 2})
    return Acceptance(tally, {1: 1.4})


def test_every_name_and_label_that_a_dashboard_may_use_is_exported_and_no_other() -> None:
    families = text_string_to_metric_families(decoding_text("m", seen()))
    labels = {sample.name: set(sample.labels) - {"model_name"} for family in families for sample in family.samples}
    assert labels == DECODING


def test_what_vllm_has_a_name_for_has_that_name() -> None:
    found = samples(decoding_text("m", seen()))
    assert found["vllm:spec_decode_num_drafts_total"] == {(): 5}
    assert found["vllm:spec_decode_num_draft_tokens_total"] == {(): 20}
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == {(): 6}
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {("0",): 5, ("1",): 1}


def test_tokens_a_step_and_the_cost_of_drafts_can_be_told_by_the_number_of_rows() -> None:
    found = samples(decoding_text("m", seen()))
    assert found["prefix_worker_steps_total"] == {("1",): 1, ("4",): 2}
    assert found["prefix_worker_row_steps_total"] == {("1",): 1, ("4",): 7}
    assert found["prefix_worker_step_nodes_total"] == {("1",): 6, ("4",): 17}
    assert found["prefix_worker_step_tokens_total"] == {("1",): 3, ("4",): 9}
    assert found["prefix_worker_step_seconds_total"] == {("1",): 2, ("4",): 4}
    assert found["prefix_worker_drafts_total"] == {("1",): 1, ("4",): 1}
    assert found["prefix_worker_draft_seconds_total"] == {("1",): 0.5, ("4",): 0.25}
    assert found["prefix_worker_drafting_gain"] == {("1",): 1.4}


def test_each_heads_acceptance_can_be_told() -> None:
    found = samples(decoding_text("m", seen()))
    assert found["prefix_worker_guesses_tried_total"] == {("heads", "1"): 6, ("heads", "2"): 3, ("lookup", "1"): 4}
    assert found["prefix_worker_guesses_right_total"] == {("heads", "1"): 3, ("heads", "2"): 1, ("lookup", "1"): 2}


def test_both_parts_make_one_page_without_a_family_twice_and_the_models_name_is_escaped() -> None:
    page = metrics_text('a"b', Stats()) + decoding_text('a"b', seen())
    families = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    assert len(families) == len(set(families))
    assert 'model_name="a\\"b"' in page
    assert samples(page)


def test_buckets_are_powers_of_two() -> None:
    assert [bucket(rows) for rows in (1, 2, 3, 4, 5, 8, 9, 16)] == [1, 2, 4, 4, 8, 8, 16, 16]


def test_a_copy_stays_as_it_is_and_gains_are_told_where_drafts_were_tried() -> None:
    running = running_of()
    before = acceptance_of(running.batch)
    told(running, run_of([1, 2, 3] * 5, 20))
    after = acceptance_of(running.batch)
    assert before.tally == Tally()
    assert sum(after.tally.steps.values()) > 0
    assert after.gains == {}
    running.batch.tally.drafts[3] += 1
    assert list(acceptance_of(running.batch).gains) == [4]
