"""Settings: every fault at once, each with its path; every value knows where it came from."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from router.layers import SettingsError, effective, load
from router.settings import Settings
from router.types import KvSource

EXAMPLE = """
listen: {host: 127.0.0.1, port: 8080, processes: 1, tls: {certificate: null, key: null}}
workers:                                   # a plain URL, or
  - {url: "http://gpu-1:8000", id: null, dialect: auto, api_key: null, weight: 1, max_in_flight: null, models: null, labels: {}}
discovery: {static: {}, file: null, dns: null, kubernetes: null}
models: {}                                 # aliases, fallbacks, per-model policy
routing: {policy: prefix_cost, options: {}, max_tries: 3, shadow: null, pass_through: [], resume: false, slo: {first_token_ms: 300}}
timeouts: {connect_seconds: 2, first_byte_seconds: 600, idle_seconds: 300, client_read_seconds: 30, client_write_seconds: 60}
limits: {body_bytes: 67108864, header_bytes: 65536, in_flight: null}
queue: {max: 1000, wait_seconds: 30}
health: {interval_seconds: 1, timeout_seconds: 2, unhealthy_after: 3, healthy_after: 2, path: null}
auth: {api_keys: [], tenant_salt: true}
admin_token: null
shutdown: {grace_seconds: 3, drain_seconds: 600}
share: null                                # redis://…
log: {access: stderr, level: info}
"""  # noqa: E501 - as it stands in the contract, so that it can be compared with it


def read(text: str = "", environment: dict[str, str] | None = None) -> Settings:
    return load([("file", yaml.safe_load(text) or {})], environment or {})[0]


def faults(text: str, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read(text, environment)
    return refused.value.faults


# What is accepted.


def test_an_empty_file_is_valid() -> None:
    assert read("") == Settings()


def test_the_contract_s_whole_example_is_accepted_as_it_stands() -> None:
    settings = read(EXAMPLE)
    assert settings.model_dump(exclude={"workers"}) == Settings().model_dump(exclude={"workers"})
    worker = settings.workers[0].worker()
    assert (worker.id, worker.weight, worker.models, worker.labels) == ("gpu-1:8000", 1.0, None, {})


def test_every_setting_of_the_contract_s_example_exists() -> None:
    shown = yaml.safe_load(EXAMPLE)

    def paths(value: Any, path: str) -> set[str]:
        if isinstance(value, dict) and value:
            return {found for key, below in value.items() for found in paths(below, f"{path}.{key}")}
        return {path}

    ours = paths(Settings().model_dump(exclude={"workers"}), "")
    theirs = paths({key: value for key, value in shown.items() if key != "workers"}, "")
    assert theirs - ours == set()


def test_a_worker_may_be_a_plain_url() -> None:
    settings = read("workers: [http://a:1, {url: 'http://b:2', weight: 2, models: [m]}]")
    assert [worker.worker().id for worker in settings.workers] == ["a:1", "b:2"]
    assert settings.workers[1].worker().models == ("m",)


def test_a_key_may_be_plain_or_have_a_tenant() -> None:
    keys = read("auth: {api_keys: [sk-1, {tenant: red, key: sk-2}]}").auth.api_keys
    assert [(key.tenant, key.key.get_secret_value()) for key in keys] == [("default", "sk-1"), ("red", "sk-2")]


def test_a_worker_s_empty_api_key_is_none() -> None:
    assert read("workers: [{url: 'http://a:1', api_key: ''}]").workers[0].worker().api_key is None
    assert read("workers: [{url: 'http://a:1', api_key: k}]").workers[0].worker().api_key == "k"


def test_an_empty_section_is_a_section_of_defaults() -> None:
    """`listen:` with every line beneath it commented out is null in YAML."""
    assert read("listen:\nworkers:\nlimits:\nrouting:\n") == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().listen.port = 1  # type: ignore[misc]


# Faults.


def test_every_fault_is_told_at_once_with_its_path() -> None:
    found = faults("""
        listen: {port: 99999}
        workers: [http://ok:1, "ftp://bad", {url: "http://c:1", weight: 0}]
        routing: {max_tries: 0, colour: red}
        timeouts: {connect_seconds: -1}
        nonsense: 1
        auth: {api_keys: [{key: ""}]}
        admin_token: ""
        health: {path: no-slash}
    """)
    told = {fault.split(": ")[0] for fault in found}
    assert told >= {
        "listen.port", "workers[1].url", "workers[2].weight", "routing.max_tries", "routing.colour",
        "timeouts.connect_seconds", "nonsense", "auth.api_keys[0]", "admin_token", "health.path",
    }  # fmt: skip
    assert all(len(fault.split(": ", 1)[1]) > 5 for fault in found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("listen: {hots: x}", "listen.hots: there is no such setting"),
        ("workers: 'http://a:1'", "workers: expected a list"),
        ("auth: {api_keys: a-secret}", "auth.api_keys: expected a list"),
        ("workers: [{url: 'http://a:1', wieght: 2}]", "workers[0].wieght: there is no such setting"),
        ("workers: [nonsense]", "workers[0].url: expected a URL that begins with http"),
        ("workers: [http://a:1, 'http://A:1/v1']", "workers: a:1 is there more than once"),
        (
            "workers: [{url: 'http://a:1', id: x}, {url: 'http://A:1/', id: y}]",
            "workers: http://a:1 is there under several",
        ),
        ("workers: [{url: 'http://a:1', id: 'a b'}]", "workers[0].id"),
        ("workers: [{url: 'http://a:1', id: ''}]", "workers[0].id"),
        ("workers: http://a:1", "workers"),
        ("workers: [{weight: 1}]", "workers[0].url"),
        ("admin_token: ''", "admin_token: an empty token would let everybody in"),
        ("auth: {api_keys: ['']}", "auth.api_keys[0]: an empty key would let everybody in"),
        ("routing: {pass_through: [x]}", "routing.pass_through[0]"),
        ("timeouts: {idle_seconds: 0}", "timeouts.idle_seconds"),
        ("timeouts: {idle_seconds: .nan}", "timeouts.idle_seconds"),
        ("timeouts: {idle_seconds: .inf}", "timeouts.idle_seconds"),
        ("shutdown: {drain_seconds: .nan}", "shutdown.drain_seconds"),
        ("log: {level: loud}", "log.level"),
        ("queue: {max: -1}", "queue.max"),
        ("listen: {processes: -1}", "listen.processes: "),
        ("listen: {processes: 257}", "listen.processes: "),
        ("listen: {processes: many}", "listen.processes: "),
        ("routing: {shadow: [random]}", "routing.shadow: "),
        ("routing: {replicas: 0}", "routing.replicas: "),
        ("routing: {table_hashes: 10}", "routing.table_hashes: "),
        ("routing: {slow_start_seconds: -1}", "routing.slow_start_seconds: "),
        ("routing: {slow_start_seconds: .nan}", "routing.slow_start_seconds: "),
        ("routing: {slo: {first_token_ms: 0}}", "routing.slo.first_token_ms: "),
        ("routing: {slo: {per_uncached_token_ms: -1}}", "routing.slo.per_uncached_token_ms: "),
        ("signals: {queue_seconds: -0.1}", "signals.queue_seconds: "),
        ("signals: {queue_seconds: 61}", "signals.queue_seconds: "),
        ("signals: {queue_second: 1}", "signals.queue_second: there is no such setting"),
        ("share: 7", "share: "),
        ("share: redis", "share: "),
        ("share: redis://", "share: "),
        ("share: http://cache:6379", "share: "),
        ("workers: [{url: 'http://a:1', kv_events: a:5557}]", "workers[0].kv_events.endpoint: "),
        ("workers: [{url: 'http://a:1', kv_events: 'http://a:5557'}]", "workers[0].kv_events.endpoint: "),
        ("workers: [{url: 'http://a:1', kv_events: {bind: true}}]", "workers[0].kv_events.endpoint: "),
        ("workers: [{url: 'http://a:1', kv_events: {endpoint: 'tcp://a:1', tpic: x}}]", "workers[0].kv_events.tpic: "),
        ("workers: [{url: 'http://a:1', kv_events: {endpoint: 'tcp://a:1', bind: 7}}]", "workers[0].kv_events.bind: "),
    ],
)
def test_a_fault_names_its_setting_and_what_was_expected(text: str, fault: str) -> None:
    found = faults(text)
    assert len(found) == 1
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("models: {a: {}}", "models"),
        ("discovery: {file: workers.yaml}", "discovery.file"),
        ("discovery: {dns: x}", "discovery.dns"),
    ],
)
def test_reserved_names_take_no_value_yet_and_say_so(text: str, path: str) -> None:
    assert faults(text) == [f"{path}: this is not supported yet; leave it empty"]


def test_where_a_worker_publishes_its_events_may_be_plain_or_told_in_full() -> None:
    settings = read("""
        workers:
          - {url: 'http://a:1', kv_events: 'tcp://a:5557'}
          - {url: 'http://b:1', kv_events: {endpoint: 'ipc:///run/kv', bind: true, topic: kv-events}}
          - http://c:1
    """)
    sources = [worker.worker().kv_events for worker in settings.workers]
    assert sources == [KvSource("tcp://a:5557"), KvSource("ipc:///run/kv", bind=True, topic="kv-events"), None]


@pytest.mark.parametrize("url", ["redis://cache:6379/0", "rediss://user:word@cache/1", "unix:///run/redis.sock"])
def test_replicas_share_over_any_address_that_redis_knows(url: str) -> None:
    assert read(f"share: {url}").share == url


def test_a_shared_secret_in_an_address_is_masked() -> None:
    settings, origins = load([("file", {"share": "redis://:s3cret@cache:6379"})], {})
    shown = {path: value for path, value, _ in effective(settings, origins)}["share"]
    assert "s3cret" not in shown
    assert "cache:6379" in shown


def test_a_setting_that_nothing_reads_is_refused_like_the_reserved_ones() -> None:
    """`auth.tenant_salt: false` says that tenants may share prefixes; to take it in silence would be a lie."""
    router = Path(__file__).parents[2] / "router"
    files = [path for path in router.rglob("*.py") if path.name != "settings.py"]
    if not any(re.search(r"\btenant_salt\b", path.read_text()) for path in files):
        assert faults("auth: {tenant_salt: false}")


def test_a_secret_is_never_part_of_a_fault() -> None:
    said = " ".join(faults("admin_token: [sk-secret]\nauth: {api_keys: [{key: [sk-secret]}]}\nlisten: {port: x}"))
    assert "sk-secret" not in said


def test_a_repr_of_the_settings_shows_no_secret() -> None:
    settings = read(
        "admin_token: sk-secret\nauth: {api_keys: [sk-secret]}\nworkers: [{url: 'http://a:1', api_key: sk-secret}]"
    )
    assert "sk-secret" not in repr(settings)
    assert "sk-secret" not in str(settings.model_dump(mode="json"))
