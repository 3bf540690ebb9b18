"""Reloading told without a gateway: what is read, what is refused, what is told apart, and what is taken."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router import reload
from router.layers import SettingsError, load
from router.reload import (
    RESTART,
    WHOLE,
    Loaded,
    Outcome,
    Reloader,
    SettingsSource,
    differences,
    kept,
    origins_kept,
    sorted_out,
    trial,
)
from router.settings import Settings
from tests.support.gateway import eventually

SMALL = {
    "listen": st.fixed_dictionaries({}, optional={"port": st.integers(1, 9), "host": st.sampled_from(["a", "b"])}),
    "queue": st.fixed_dictionaries({}, optional={"max": st.integers(0, 9)}),
    "workers": st.lists(st.sampled_from(["http://a:1", "http://b:1"]), unique=True),
    "share": st.sampled_from(["redis://a:1", "redis://b:1"]),
    "admin_token": st.sampled_from(["one", "two"]),
}
SETTINGS = st.fixed_dictionaries({}, optional=SMALL).map(lambda given: load([("file", given)], {})[0])


def loaded(**given: Any) -> Loaded:
    return load([("file", given)], {})


class Stand:
    """A reloader whose source and whose gateway are the test's."""

    def __init__(self, read: Callable[[], Loaded], path: Path | None = None) -> None:
        self.taken: list[Loaded] = []
        self.marks: list[bool] = []
        self.fails: list[Exception] = []
        self.source = SettingsSource(lambda: self.read(), path)
        self.read = read
        self.reloader = Reloader(self.source, loaded(), self._take, self.marks.append)

    async def _take(self, *new: Any) -> None:
        if self.fails:
            raise self.fails.pop()
        self.taken.append(new)  # type: ignore[arg-type]


# What differs.


@given(SETTINGS, SETTINGS)
def test_settings_differ_at_the_paths_that_are_named_and_nowhere_else(before: Settings, after: Settings) -> None:
    paths = differences(before, after)
    assert (paths == []) is (before == after)
    assert kept(after, before, paths) == before


@given(SETTINGS, SETTINGS)
def test_what_needs_a_restart_stays_and_the_rest_is_taken(before: Settings, after: Settings) -> None:
    changed, restart = sorted_out(before, after)
    assert sorted(changed + restart) == sorted(differences(before, after))
    running = kept(after, before, restart)
    assert sorted_out(before, running) == (changed, [])
    assert sorted_out(running, after) == ([], restart)


def test_a_list_counts_as_one_and_secrets_are_compared() -> None:
    before = loaded(workers=["http://a"], admin_token="x", auth={"api_keys": ["k"]})[0]
    after = loaded(workers=["http://a", "http://b"], admin_token="y", auth={"api_keys": ["l"]})[0]
    assert differences(before, after) == ["workers", "auth.api_keys", "admin_token"]


@pytest.mark.parametrize("path", RESTART)
def test_every_setting_that_needs_a_restart_is_one(path: str) -> None:
    settings: Any = Settings()
    for step in path.split("."):
        settings = getattr(settings, step)


def test_what_keeps_its_value_keeps_its_origin() -> None:
    after = origins_kept({"a": "file", "b": "file"}, {"b": "environment", "c": "file"}, ["b", "c", "d"])
    assert after == {"a": "file", "b": "environment", "c": "file"}
    assert origins_kept({"b": "file"}, {}, ["b"]) == {}


def test_an_outsiders_policy_is_built_to_see_whether_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial(loaded(routing={"shadow": "random"})[0]) == []

    def fails(*_: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr("router.policies.random.build", fails)
    faults = trial(loaded(routing={"policy": "random", "shadow": "random"})[0])
    assert faults == [f"routing.{each}: random cannot be built: RuntimeError('oh')" for each in ("policy", "shadow")]


# A reload.


async def test_what_is_good_is_taken_and_told() -> None:
    stand = Stand(lambda: loaded(queue={"max": 1}, listen={"port": 1}, share="redis://a:1"))
    outcome = await stand.reloader.reload("test")
    assert outcome == Outcome(("queue.max",), ("listen.port", "share"))
    ((settings, origins),) = stand.taken
    assert (settings.queue.max, settings.listen.port) == (1, 8080)
    assert origins == {"queue.max": "file", "share": "file"}
    assert stand.marks == [False]
    assert stand.reloader.settings.share is None, "it runs without"
    assert stand.reloader.wanted[0].share == "redis://a:1", "a process that is started now begins with it"
    assert await stand.reloader.reload("test") == Outcome((), ("listen.port", "share"))
    assert len(stand.taken) == 2, "certificates that it names may be new"
    stand.reloader.renewed()
    assert await stand.reloader.reload("test") == Outcome((), ("listen.port",))


@pytest.mark.parametrize("wrong", [SettingsError(["a: b", "c: d"]), RuntimeError("oh")])
async def test_what_is_bad_changes_nothing(wrong: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def bad() -> Loaded:
        raise wrong

    stand = Stand(bad)
    outcome = await stand.reloader.reload("test")
    faults = ("a: b", "c: d") if isinstance(wrong, SettingsError) else ("the settings could not be read: RuntimeError",)
    assert outcome == Outcome(faults=faults)
    assert (stand.taken, stand.marks) == ([], [True])
    assert all(caplog.text.count(f": {fault}\n") == 1 for fault in faults)
    stand.read = loaded
    assert await stand.reloader.reload("test") == Outcome()
    assert stand.marks == [True, False]


async def test_what_cannot_be_taken_is_taken_back() -> None:
    stand = Stand(lambda: loaded(queue={"max": 1}))
    stand.fails = [RuntimeError("oh")]
    outcome = await stand.reloader.reload("test")
    assert outcome.faults == ("the settings could not be taken: RuntimeError",)
    assert stand.taken == [loaded()]
    assert stand.reloader.settings == stand.reloader.wanted[0] == Settings()
    assert (await stand.reloader.reload("test")).changed == ("queue.max",)


async def test_a_signal_begins_a_reload_of_its_own() -> None:
    stand = Stand(lambda: loaded(queue={"max": 1}))
    stand.reloader.begin("SIGHUP")
    stand.reloader.begin("SIGHUP")
    await eventually(lambda: len(stand.marks) == 2)
    assert len(stand.taken) == 2


# The file.


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(reload, "SETTLE_SECONDS", 0.01)


@pytest.mark.usefixtures("quickly")
async def test_a_file_is_read_when_it_has_changed_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("a")
    stand = Stand(loaded, path)
    following = asyncio.create_task(stand.reloader.follow())
    await asyncio.sleep(0.1)
    assert stand.marks == []
    for at, change in enumerate((
        lambda: path.write_text("ab"), path.unlink, lambda: path.write_text("ab"), lambda: path.chmod(0o600),
    ), 1):  # fmt: skip
        change()
        await eventually(lambda at=at: len(stand.marks) == at)
    await asyncio.sleep(0.1)
    assert len(stand.marks) == 4
    following.cancel()


@pytest.mark.usefixtures("quickly")
async def test_a_reload_for_another_reason_has_seen_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("a")
    stand = Stand(loaded, path)
    path.write_text("ab")
    await stand.reloader.reload("SIGHUP")
    following = asyncio.create_task(stand.reloader.follow())
    await asyncio.sleep(0.1)
    assert stand.marks == [False]
    following.cancel()


def test_a_change_between_the_start_and_the_first_look_is_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("a")
    source = SettingsSource(loaded, path)
    path.write_text("ab")
    assert source.look() != source.seen


def test_a_link_that_leads_elsewhere_is_another_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    link = tmp_path / "link"
    link.symlink_to("a")
    source = SettingsSource(loaded, link)
    (tmp_path / "other").symlink_to("b")
    (tmp_path / "other").rename(link)
    assert source.look() != source.seen


async def test_without_a_file_nothing_is_watched() -> None:
    stand = Stand(loaded)
    await stand.reloader.follow()
    assert stand.source.look() is None


def test_what_needs_the_gateway_started_anew_needs_a_restart() -> None:
    assert set(WHOLE) < set(RESTART)
