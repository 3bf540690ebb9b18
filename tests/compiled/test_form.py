"""The compiled form is what is tested here, and it is all of what it should be."""

import asyncio
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from router.core.choose import Choice
from tests.house.test_compiled import MODULES
from tests.support.compiled import IS_COMPILED

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="`make test-compiled` runs it")
SLOW = {
    "router.core.fleet": {"Changes"}, "router.core.health": {"Signal", "Thresholds"}, "router.core.keys": {"Key"},
    "router.core.patience": {"Hope"}, "router.proxy.sweep": {"ClientLimits"}, "router.proxy.upstream": {"Limits"},
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_compiled_and_its_classes_are_native(name: str) -> None:
    """A class that is not has its fields in a dictionary, which costs more than it did before."""
    module = import_module(name)
    assert module.__file__ is not None
    assert not module.__file__.endswith(".py")
    own = {each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == name}
    laws = {each for each in own if getattr(each, "_is_protocol", False)}
    assert {each.__name__ for each in own - laws if not hasattr(each, "__mypyc_attrs__")} == SLOW.get(name, set())


def test_a_process_started_here_runs_the_same_form() -> None:
    said = subprocess.run([sys.executable, "-m", "router", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip().endswith("(compiled)")


def test_a_wrong_type_is_refused_where_it_comes_in() -> None:
    with pytest.raises(TypeError):
        Choice("no seat", "home", 0.0, ())  # type: ignore[arg-type]


def test_the_loop_takes_its_classes_for_protocols() -> None:
    from router.proxy.exchange import Connection

    for name in ("connection_made", "data_received", "eof_received", "pause_writing", "resume_writing"):
        assert callable(getattr(Connection, name))
    assert not issubclass(Connection, asyncio.BufferedProtocol)
