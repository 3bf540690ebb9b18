"""What the deployment files are and what their queries may name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE_FILE = ROOT / "docker-compose.yml"
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARDS = sorted((DEPLOY / "grafana/dashboards").glob("*.json"))

HISTOGRAM = ("_bucket", "_sum", "_count")
# The gateway's public metrics with their labels; a histogram stands here without its endings.
COUNTERS_AND_GAUGES: dict[str, set[str]] = {
    "requests_total": {"path", "model", "code"},
    "decisions_total": {"policy", "reason"},
    "prompt_tokens_total": {"model"},
    "cached_tokens_total": {"model", "worker"},
    "predicted_cached_tokens_total": {"model", "worker"},
    "reported_predicted_cached_tokens_total": {"model", "worker"},
    "cached_prediction_ratio": {"model", "worker"},
    "affinity_saved_tokens_total": {"model"},
    "resumed_total": {"result"},
    "usage_unreported_total": {"model"},
    "in_flight": {"worker"},
    "outstanding_tokens": {"worker"},
    "worker_state": {"worker", "state"},
    "worker_failures_total": {"worker", "kind"},
    "retries_total": {"kind"},
    "spills_total": {"worker"},
    "cancelled_total": {"phase"},
    "queued": set(),
    "rejected_total": {"code"},
    "slo_requests_total": {"model", "met"},
    "shadow_decisions_total": {"policy", "differs"},
    "shadow_cost_tokens_total": {"policy"},
    "shadow_made_tokens_total": {"policy"},
    "kv_matches_total": {"result"},
    "kv_events_total": {"worker", "kind"},
    "shared_total": {"kind"},
    "config_reload_failed": set(),
    "build_info": {"version"},
}
HISTOGRAMS: dict[str, set[str]] = {
    "request_seconds": {"path", "model"},
    "first_byte_seconds": {"path", "model"},
    "first_token_seconds": {"model"},
    "decision_seconds": set(),
    "queue_seconds": set(),
}
METRICS = {f"prefix_router_{name}": labels for name, labels in COUNTERS_AND_GAUGES.items()} | {
    f"prefix_router_{name}{ending}": labels | {"le"} for name, labels in HISTOGRAMS.items() for ending in HISTOGRAM
}
# What the worker with a real model says of its decoding; a mock has none of these.
DECODING: dict[str, set[str]] = {
    "vllm:spec_decode_num_drafts_total": set(),
    "vllm:spec_decode_num_draft_tokens_total": set(),
    "vllm:spec_decode_num_accepted_tokens_total": set(),
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": {"position"},
    "prefix_worker_steps_total": {"rows"},
    "prefix_worker_row_steps_total": {"rows"},
    "prefix_worker_step_nodes_total": {"rows"},
    "prefix_worker_step_tokens_total": {"rows"},
    "prefix_worker_step_seconds_total": {"rows"},
    "prefix_worker_drafts_total": {"rows"},
    "prefix_worker_draft_seconds_total": {"rows"},
    "prefix_worker_guesses_tried_total": {"source", "depth"},
    "prefix_worker_guesses_right_total": {"source", "depth"},
    "prefix_worker_drafting_gain": {"rows"},
}
NAMED = METRICS | {name: labels | {"model_name", "worker"} for name, labels in DECODING.items()}
ADDED_BY_PROMETHEUS = {"job", "instance"}

SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
WORDS = {"and", "or", "unless", "bool", "offset"}


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric that a PromQL expression names, with the labels asked of it."""
    bare = re.sub(r"\[[^\]]*\]", "", GROUPING.sub("", expression))
    for match in SELECTOR.finditer(bare):
        name, labels = match.groups()
        is_call = bare[match.end() :].lstrip().startswith("(") and labels is None
        if not is_call and name not in WORDS and not name.startswith("__"):
            yield name, set(LABEL.findall(labels or ""))


def unknown_in(expression: str) -> list[str]:
    """What is wrong with an expression's names: metrics that nobody exports, labels that they do not carry."""
    faults = []
    for name, labels in selectors(expression):
        if name == "up":
            allowed: set[str] | None = ADDED_BY_PROMETHEUS
        else:
            allowed = NAMED[name] | ADDED_BY_PROMETHEUS if name in NAMED else None
        if allowed is None:
            faults.append(f"no metric {name}")
        else:
            faults += [f"{name} has no label {label}" for label in sorted(labels - allowed)]
    return faults


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return loaded


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            yield f"{path.stem}: {panel['title']}", panel


def panel_queries() -> Iterator[tuple[str, str]]:
    """Every query of every panel, as Grafana sends it with all models chosen."""
    for title, panel in panels():
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
            yield f"{title} {target['refId']}", query
