"""A plug's file name is its registration."""

import sys
from pathlib import Path
from random import Random

import pytest

from router import dialects, policies
from router.contracts import PolicyTools
from router.core.cheapest import Cheapest
from router.core.ring import Ring
from router.discovery.kubernetes import KubernetesSource
from router.plugins import (
    build_dialects,
    build_policy,
    build_source,
    dialect_names,
    missing_extras,
    policy_faults,
    policy_names,
)
from router.settings import Settings

TOOLS = PolicyTools(Ring(), Random(1))
OUTSIDER = '''
"""An outsider's policy."""
from pydantic import BaseModel, ConfigDict

class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    size: int = 1

class Mine:
    def __init__(self, size): self.size = size
    def order(self, ask, candidates, now): return iter(())

def build(options, tools): return Mine(options.size)
'''


def files_in(package: object) -> list[str]:
    folder = Path(package.__path__[0])  # type: ignore[attr-defined]
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def test_every_file_in_the_room_is_a_policy() -> None:
    assert policy_names() == files_in(policies)


def test_every_file_in_the_room_is_a_dialect() -> None:
    assert dialect_names() == files_in(dialects)
    assert [dialect.name for dialect in build_dialects()] == dialect_names()


def test_a_policy_is_built_by_its_name_with_its_options() -> None:
    policy = build_policy("prefix_cost", {"factor": 2}, TOOLS)
    assert isinstance(policy, Cheapest)
    assert policy.weights.factor == 2


@pytest.fixture
def outsider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "outside_house"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mine.py").write_text(OUTSIDER)
    (package / "broken.py").write_text("import a_library_that_is_not_installed")
    (package / "empty.py").write_text('"""Neither Options nor build."""')
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "outside_house.mine"
    for name in [name for name in sys.modules if name.startswith("outside_house")]:
        del sys.modules[name]


def test_a_dotted_name_is_an_outsider_s_module(outsider: str) -> None:
    assert policy_faults(outsider, {"size": 3}) == []
    assert build_policy(outsider, {"size": 3}, TOOLS).size == 3  # type: ignore[attr-defined]


def test_an_outsider_s_options_are_checked_too(outsider: str) -> None:
    assert policy_faults(outsider, {"sise": 3}) == ["routing.options.sise: there is no such option"]


def test_good_names_and_options_have_no_fault() -> None:
    assert all(policy_faults(name, {}) == [] for name in policy_names())


def test_an_unknown_policy_is_a_fault_that_names_the_known_ones() -> None:
    (fault,) = policy_faults("prefix_cots", {})
    assert fault.startswith("routing.policy: 'prefix_cots' is no policy")
    assert all(name in fault for name in policy_names())


NO_POLICIES = [
    "", ".", "..", "a.b.c", "./x", "../x", "router", "os.path", "prefix_cost.", ".prefix_cost", "__init__",
    "router.policies", "router.settings", "json.decoder", "\x00", "a b", "é",
]  # fmt: skip


@pytest.mark.parametrize("name", NO_POLICIES)
def test_any_name_that_is_no_policy_is_a_fault(name: str) -> None:
    (fault,) = policy_faults(name, {})
    assert fault.startswith(f"routing.policy: {name!r} is no policy")
    assert all(known in fault for known in policy_names())


@pytest.mark.parametrize("name", ["broken", "empty"])
def test_an_outsider_s_broken_module_is_a_fault(outsider: str, name: str) -> None:
    (fault,) = policy_faults(f"outside_house.{name}", {})
    assert fault.startswith("routing.policy: ")
    assert "a_library_that_is_not_installed" in fault or name != "broken"


def test_all_faulty_options_are_told_at_once_with_their_paths() -> None:
    found = policy_faults("prefix_aware", {"prefix_length": 1, "concurrency_threshold": 5000, "colour": 1})
    assert [fault.split(": ")[0] for fault in found] == [
        "routing.options.prefix_length", "routing.options.concurrency_threshold", "routing.options.colour",
    ]  # fmt: skip
    assert found[2].endswith("there is no such option")


@pytest.mark.parametrize(
    ("option", "least", "most"), [("prefix_length", 1024, 65536), ("concurrency_threshold", 1, 1024)]
)
def test_sagemaker_s_two_knobs_have_sagemaker_s_limits(option: str, least: int, most: int) -> None:
    assert policy_faults("prefix_aware", {option: least}) == policy_faults("prefix_aware", {option: most}) == []
    assert policy_faults("prefix_aware", {option: least - 1})
    assert policy_faults("prefix_aware", {option: most + 1})


WANTING = Settings.model_validate(
    {
        "share": "redis://cache",
        "workers": ["http://a:1", {"url": "http://b:1", "kv_events": "tcp://b:5557"}],
        "discovery": {"kubernetes": {"service": "vllm", "worker": {"kv_events": {"port": 5557}}}},
    }
)


def test_with_every_library_installed_nothing_is_missing() -> None:
    assert missing_extras(WANTING) == []


def test_a_setting_whose_library_is_missing_is_a_fault_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.plugins.find_spec", lambda name: None)
    wanted = {
        "share": "redis",
        "workers[1].kv_events": "events",
        "discovery.kubernetes": "kubernetes",
        "discovery.kubernetes.worker.kv_events": "events",
    }
    assert missing_extras(WANTING) == [
        f"{path}: needs a library that is not installed: pip install 'prefix-router[{extra}]'"
        for path, extra in wanted.items()
    ]


def test_a_source_is_built_by_its_name_in_the_settings_with_them() -> None:
    source = build_source("kubernetes", WANTING.discovery.kubernetes)
    assert isinstance(source, KubernetesSource)


def test_who_asks_for_no_extra_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.plugins.find_spec", lambda name: None)
    assert missing_extras(Settings()) == []
