"""What is compiled: the modules of a request's path, in a form that the compiler can make quick."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
FILES = [path.removeprefix("/") for path in HOOK["mypyc"]["include"]]
MODULES = [path.removesuffix(".py").replace("/", ".") for path in FILES]
FOREIGN = {"msgspec.Struct", "BaseModel", "Exception", "list", "dict"}
ALLOWED = {  # made once, not on a request's path
    "router/core/fleet.py": {"Changes"}, "router/core/health.py": {"Thresholds"}, "router/core/keys.py": {"Key"},
    "router/core/patience.py": {"Hope"}, "router/proxy/upstream.py": {"Limits"},
}  # fmt: skip


def test_the_list_is_in_order_and_names_each_file_once() -> None:
    assert sorted(set(FILES)) == FILES


def test_it_is_off_unless_asked_for() -> None:
    assert HOOK["mypyc"]["enable-by-default"] is False


def test_the_compiler_sees_the_packages_that_are_imported() -> None:
    """One of the unknown would have no metaclass for it, and a class below such a one could not be made."""
    assert HOOK["mypyc"]["require-runtime-dependencies"] is True


@pytest.mark.parametrize("path", FILES)
def test_a_module_is_there_and_its_classes_are_plain(path: str) -> None:
    """What stands below another library's class has its fields in a dictionary, compiled or not."""
    classes = [each for each in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(each, ast.ClassDef)]
    below = {each.name for each in classes if {ast.unparse(base) for base in each.bases} & FOREIGN}
    assert below <= ALLOWED.get(path, set())


@pytest.mark.parametrize("path", FILES)
def test_a_constant_is_final(path: str) -> None:
    """The compiler looks any other up by its name, each time."""
    for each in ast.parse((ROOT / path).read_text()).body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id.isupper():
            made = ast.unparse(each.value)
            assert made.startswith("TypeVar("), f"{each.targets[0].id}: Final = {made}"
