"""Scrape configuration and alerts: they load, they name real metrics, and every alert is proven to fire."""

import subprocess
from typing import Any

import pytest
import yaml

from tests.support.deployment import PROMETHEUS, alerts, selectors, unknown_in

each_alert = pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
UNIT_TESTS = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@each_alert
def test_an_alert_names_only_metrics_and_labels_that_exist(alert: dict[str, Any]) -> None:
    assert list(selectors(alert["expr"]))
    assert unknown_in(alert["expr"]) == []


@pytest.mark.parametrize(
    ("expression", "faults"),
    [
        ("sum by (worker) (rate(prefix_router_spills_total[5m]))", []),
        ('prefix_router_worker_state{state="ready", worker=~".*"} == 1 and on () up{job="x"} == 1', []),
        ("rate(prefix_router_spills[5m])", ["no metric prefix_router_spills"]),
        ("prefix_router_first_token_seconds", ["no metric prefix_router_first_token_seconds"]),
        ('prefix_router_queued{worker="w"} or prefix_router_qeued', None),
    ],
)
def test_a_misspelt_metric_or_label_is_found(expression: str, faults: list[str] | None) -> None:
    found = ["prefix_router_queued has no label worker", "no metric prefix_router_qeued"]
    assert unknown_in(expression) == (found if faults is None else faults)


@each_alert
def test_an_alert_says_what_is_wrong_and_what_to_do(alert: dict[str, Any]) -> None:
    assert set(alert["annotations"]) == {"summary", "description"}
    assert len(alert["annotations"]["summary"]) < 120
    assert len(alert["annotations"]["description"]) > 100
    assert alert["labels"]["severity"] in {"page", "ticket"}


@each_alert
def test_an_alert_has_a_unit_test_in_which_it_fires(alert: dict[str, Any]) -> None:
    fires = [
        sample["labels"] for test in UNIT_TESTS for query in test["promql_expr_test"] for sample in query["exp_samples"]
    ]
    assert any(f'alertname="{alert["alert"]}"' in labels for labels in fires)


@pytest.mark.system("promtool")
def test_prometheus_accepts_the_configuration_and_the_rules() -> None:
    promtool("check", "config", "prometheus.yml")
    assert f"{len(alerts())} rules found" in promtool("check", "rules", "rules.yml")


@pytest.mark.system("promtool")
def test_the_rules_pass_their_unit_tests() -> None:
    promtool("test", "rules", "rules_test.yml")
