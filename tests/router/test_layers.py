"""Layers of settings: merged from the weakest to the strongest, and every value knows where it came from."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from router.layers import SettingsError, effective, from_environment, load, yaml_trouble
from router.settings import Settings
from tests.support.strategies import json_values


def read(text: str = "", environment: dict[str, str] | None = None) -> Settings:
    return load([("file", yaml.safe_load(text) or {})], environment or {})[0]


def faults(text: str, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read(text, environment)
    return refused.value.faults


def rows(*layers: tuple[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    settings, origins = load(layers, {})
    return {path: (value, origin) for path, value, origin in effective(settings, origins)}


def test_checks_of_others_are_told_with_the_rest() -> None:
    with pytest.raises(SettingsError) as refused:
        load([("file", {})], {}, [lambda settings: ["a: one"], lambda settings: ["b: two"]])
    assert refused.value.faults == ["a: one", "b: two"]
    assert str(refused.value) == "a: one; b: two"


@given(st.dictionaries(st.sampled_from([*Settings.model_fields, "other"]), json_values, max_size=5))
def test_any_mapping_is_settings_or_a_list_of_faults(layer: dict[str, Any]) -> None:
    try:
        settings, origins = load([("file", layer)], {})
    except SettingsError as refused:
        told = refused.faults
    else:
        told = [path for path, _, _ in effective(settings, origins)]
    assert told
    assert all(isinstance(line, str) and line for line in told)


# Variables.


def test_a_value_may_be_read_from_the_environment() -> None:
    environment = {"TOKEN": "t-1", "HOST": "gpu", "PORT": "9"}
    settings = read("admin_token: '${TOKEN}'\nworkers: ['http://${HOST}:${PORT}']", environment)
    assert settings.admin_token is not None
    assert settings.admin_token.get_secret_value() == "t-1"
    assert settings.workers[0].url == "http://gpu:9"


def test_missing_variables_are_faults_with_paths_beside_the_others() -> None:
    found = faults(
        "workers: ['http://a:1', {url: 'http://b:1', api_key: '${KEY}'}]\nadmin_token: '${T}'\nlisten: {x: 1}"
    )
    assert "workers[1].api_key: the environment has no variable KEY" in found
    assert "admin_token: the environment has no variable T" in found
    assert "listen.x: there is no such setting" in found


@pytest.mark.parametrize("text", ["$HOME", "${}", "${1A}", "$${", "{HOME}", "${A-b}"])
def test_what_is_no_variable_stays_as_it_is(text: str) -> None:
    assert read(f"log: {{access: '{text}'}}").log.access == text


def test_a_variable_s_value_is_not_read_again() -> None:
    assert read("log: {access: '${A}'}", {"A": "${B}", "B": "x"}).log.access == "${B}"


# The environment's own layer.


def test_the_environment_names_settings_by_their_paths() -> None:
    layer = from_environment(
        {
            "PREFIX_ROUTER_LIMITS__BODY_BYTES": "1",
            "PREFIX_ROUTER_LISTEN__HOST": "0.0.0.0",
            "PREFIX_ROUTER_WORKERS": "[http://a:1, {url: http://b:1, weight: 2}]",
            "PREFIX_ROUTER_ROUTING__SLO__FIRST_TOKEN_MS": "250",
            "HOME": "/home/me",
        },
        yaml.safe_load,
    )
    assert layer == {
        "limits": {"body_bytes": 1},
        "listen": {"host": "0.0.0.0"},
        "workers": ["http://a:1", {"url": "http://b:1", "weight": 2}],
        "routing": {"slo": {"first_token_ms": 250}},
    }
    assert load([("environment", layer)], {})[0].limits.body_bytes == 1


def test_a_token_of_digits_stays_text() -> None:
    layer = from_environment({"PREFIX_ROUTER_ADMIN_TOKEN": "0123"}, yaml.safe_load)
    settings = load([("environment", layer)], {})[0]
    assert settings.admin_token is not None
    assert settings.admin_token.get_secret_value() == "0123"


@pytest.mark.parametrize("value", ['["sk-1", "sk-2"]', "[{tenant: default, key: sk-1}, sk-2]"])
def test_the_environment_can_give_the_clients_keys(value: str) -> None:
    layer = from_environment({"PREFIX_ROUTER_AUTH__API_KEYS": value}, yaml.safe_load)
    keys = load([("environment", layer)], {})[0].auth.api_keys
    assert [key.key.get_secret_value() for key in keys] == ["sk-1", "sk-2"]


def test_an_unknown_name_in_the_environment_is_a_fault_like_any_other() -> None:
    layer = from_environment({"PREFIX_ROUTER_LISTEN__PRT": "1"}, yaml.safe_load)
    with pytest.raises(SettingsError, match=r"listen\.prt: there is no such setting"):
        load([("environment", layer)], {})


# Layers and origins.


def test_the_stronger_layer_wins_and_every_value_knows_its_layer() -> None:
    shown = rows(
        ("file", {"listen": {"host": "a", "port": 1}, "limits": {"body_bytes": 5}, "workers": ["http://f:1"]}),
        ("environment", {"listen": {"port": 2}, "limits": {"body_bytes": 6}}),
        ("command line", {"listen": {"port": 3}}),
    )
    assert shown["listen.host"] == ("a", "file")
    assert shown["listen.port"] == (3, "command line")
    assert shown["limits.body_bytes"] == (6, "environment")
    assert shown["limits.header_bytes"] == (65536, "default")
    assert shown["workers[0].url"] == ("http://f:1", "file")


def test_a_stronger_list_replaces_a_weaker_one() -> None:
    settings, _ = load([("file", {"workers": ["http://a:1"]}), ("flags", {"workers": ["http://b:1"]})], {})
    assert [worker.url for worker in settings.workers] == ["http://b:1"]


def test_policy_options_are_replaced_as_a_whole() -> None:
    """The options of one policy are not those of another."""
    settings, origins = load(
        [("file", {"routing": {"policy": "prefix_cost", "options": {"factor": 2}}}),
         ("flags", {"routing": {"policy": "prefix_aware", "options": {"prefix_length": 2048}}})], {}
    )  # fmt: skip
    assert settings.routing.options == {"prefix_length": 2048}
    assert origins["routing.options"] == "flags"


def test_null_in_a_stronger_layer_leaves_the_weaker_value() -> None:
    settings, _ = load([("file", {"listen": {"port": 1}}), ("flags", {"listen": {"port": None}})], {})
    assert settings.listen.port == 1


def test_no_layer_is_changed_by_merging() -> None:
    file, flags = {"listen": {"port": 1}}, {"listen": {"port": 2}}
    load([("file", file), ("flags", flags)], {})
    assert (file, flags) == ({"listen": {"port": 1}}, {"listen": {"port": 2}})


def test_every_setting_is_shown_with_its_origin() -> None:
    shown = rows(("file", {"listen": {"port": 1}, "workers": ["http://a:1"]}))
    assert set(shown) >= {"listen.port", "routing.slo.first_token_ms", "shutdown.drain_seconds", "log.level"}
    assert {origin for _, origin in shown.values()} <= {"file", "default"}


def test_secrets_are_masked() -> None:
    shown = rows(
        (
            "file",
            {
                "admin_token": "sk-secret",
                "auth": {"api_keys": ["sk-secret-one", {"tenant": "red", "key": "sk-secret-two"}]},
                "workers": [{"url": "http://a:1", "api_key": "sk-secret"}],
            },
        )
    )
    assert "sk-secret" not in str(shown)
    assert "***" in shown["admin_token"][0]
    assert "***" in shown["auth.api_keys[0].key"][0]
    assert "***" in shown["auth.api_keys[1].key"][0]
    assert "***" in shown["workers[0].api_key"][0]


def test_what_is_not_set_is_not_masked() -> None:
    shown = rows(("file", {"workers": ["http://a:1"]}))
    assert shown["admin_token"][0] is None
    assert shown["workers[0].api_key"][0] is None


def test_credentials_in_a_worker_s_url_are_masked() -> None:
    shown = rows(("file", {"workers": ["http://user:sk-secret@a:1/base"]}))
    assert "sk-secret" not in str(shown)
    assert "a:1/base" in shown["workers[0].url"][0]


def test_what_the_checks_find_is_told_with_the_other_faults() -> None:
    given = {"workerz": [], "routing": {"policy": "nope", "max_tries": -1}, "workers": ["ftp://x"]}
    with pytest.raises(SettingsError) as caught:
        load([("file", given)], {}, [lambda settings: [f"routing.policy: no {settings.routing.policy}"]])
    faults = "\n".join(caught.value.faults)
    for path in ("workerz", "routing.max_tries", "workers[0].url", "routing.policy: no nope"):
        assert path in faults


def test_a_value_in_the_environment_that_is_no_yaml_is_told_of_by_its_name_only() -> None:
    with pytest.raises(SettingsError) as wrong:
        from_environment({"PREFIX_ROUTER_AUTH__API_KEYS": "[s3cret"}, yaml.safe_load)
    assert wrong.value.faults[0].startswith("PREFIX_ROUTER_AUTH__API_KEYS: not YAML")
    assert "s3cret" not in str(wrong.value)


@pytest.mark.parametrize("text", ["[s3cret", "a: 's3cret", "a: s3cret\n\tb: 1", "*s3cret", "!s3cret x", "a: @s3cret"])
def test_trouble_with_yaml_says_where_and_never_what(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as wrong:
        yaml.safe_load(text)
    assert "s3cret" not in yaml_trouble(wrong.value)
    assert "(line " in yaml_trouble(wrong.value)
