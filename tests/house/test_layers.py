"""The floors, by reading every file: imports go down only, and the mind knows no clock, no network and no log."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROUTER, BACKENDS = ROOT / "router", ROOT / "backends"
FILES = sorted(path for house in (ROUTER, BACKENDS) for path in house.rglob("*.py"))
ROUTER_FILES = [path for path in FILES if path.is_relative_to(ROUTER)]
MOST_LINES = 250
PURE = 1  # the highest floor without I/O

BANNED = {
    "asyncio", "time", "datetime", "os", "socket", "ssl", "select", "selectors", "threading", "multiprocessing",
    "concurrent", "subprocess", "signal", "logging", "http", "pathlib", "tempfile", "shutil", "secrets", "uuid",
    "urllib.request", "urllib.error", "httpx", "httptools", "h11", "aiohttp", "anyio", "fastapi", "starlette",
    "uvicorn", "uvloop", "prometheus_client", "yaml", "rich",
}  # fmt: skip


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def shown(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name_of)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, at its top or later, in dotted form; names imported from a package too."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = ROOT.joinpath(*module.split("."), alias.name)
                is_module = deeper.is_dir() or deeper.with_suffix(".py").exists()
                found.append(f"{module}.{alias.name}" if is_module else module)
    return tuple(found)


def is_one_of(module: str, names: set[str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


def floors() -> dict[str, int]:
    """Room -> floor, as the picture in the door sign of `router` draws it."""
    sign = ast.get_docstring(tree_of(ROUTER / "__init__.py")) or ""
    found = {}
    for floor, rooms in re.findall(r"^ *floor (\d) +the \w+ +(.*?)(?:  +.*)?$", sign, re.MULTILINE):
        found.update({room.strip(): int(floor) for room in rooms.split(",")})
    return found


FLOORS = floors()


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def floor_of(path: Path) -> int | None:
    return FLOORS.get(path.relative_to(ROUTER).with_suffix("").parts[0])


PURE_FILES = [path for path in ROUTER_FILES if (floor_of(path) or 0) <= PURE and floor_of(path) is not None]


def test_the_picture_on_the_door_is_read() -> None:
    assert {"core", "policies", "dialects", "settings", "types", "contracts"} <= set(FLOORS)
    assert set(FLOORS.values()) == set(range(6))


def test_every_room_stands_on_a_floor() -> None:
    rooms = {path.relative_to(ROUTER).with_suffix("").parts[0] for path in ROUTER_FILES} - {"__init__"}
    assert rooms - set(FLOORS) == set()


def test_the_picture_names_no_room_that_is_not_there() -> None:
    missing = [room for room in FLOORS if not (ROUTER / room).is_dir() and not (ROUTER / f"{room}.py").exists()]
    assert missing == []


@shown(ROUTER_FILES)
def test_imports_go_down_only(path: Path) -> None:
    """A module imports only from lower floors or its own room; modules on one floor may know each other above the pure
    ones, where the story and the wiring are told in several files."""
    floor, own = floor_of(path), path.relative_to(ROUTER).with_suffix("").parts[0]
    if floor is None:
        return
    for module in imports(path):
        room = room_of(module)
        if module.split(".")[0] == "router" and room in FLOORS and room != own:
            assert FLOORS[room] <= floor, f"{name_of(path)} imports {module}"


@shown([path for path in PURE_FILES if path.parent.name == "core"])
def test_core_never_names_a_policy_a_dialect_or_the_settings(path: Path) -> None:
    found = [
        module
        for module in imports(path)
        if is_one_of(module, {"router.policies", "router.dialects", "router.settings"})
    ]
    assert found == []


@shown([path for path in PURE_FILES if path.parent.name in ("policies", "dialects")])
def test_no_policy_and_no_dialect_names_another(path: Path) -> None:
    room = f"router.{path.parent.name}"
    found = [module for module in imports(path) if module.startswith(room + ".") and not module.startswith(f"{room}._")]
    assert found == []


@shown(PURE_FILES)
def test_the_pure_floors_import_no_clock_no_network_and_no_log(path: Path) -> None:
    assert [module for module in imports(path) if is_one_of(module, BANNED)] == []


@shown([path for path in PURE_FILES if path.name != "contracts.py"])
def test_the_pure_floors_are_synchronous(path: Path) -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, kinds)] == []


def test_the_contracts_have_no_more_than_signatures() -> None:
    for node in ast.walk(tree_of(ROUTER / "contracts.py")):
        assert not isinstance(node, ast.Await)
        if isinstance(node, ast.AsyncFunctionDef):
            assert all(isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant) for step in node.body)


@shown(PURE_FILES)
def test_the_pure_floors_call_no_builtin_that_differs_between_runs_or_reads_the_world(path: Path) -> None:
    """`hash` is salted in every process; `id` is an address."""
    called = [
        node.func.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not {"hash", "id", "open", "print", "input", "eval", "exec"} & set(called)


@shown(PURE_FILES)
def test_chance_is_handed_over(path: Path) -> None:
    """The class may be named for its type, the module's own dice may not be thrown."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            assert [alias.name for alias in node.names] == ["Random"]
        if isinstance(node, ast.Import):
            assert "random" not in [alias.name for alias in node.names]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "Random"


@shown([path for path in ROUTER_FILES if path.name != "clock.py"])
def test_only_the_clock_reads_the_time(path: Path) -> None:
    assert [module for module in imports(path) if is_one_of(module, {"time", "datetime"})] == []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "time":
            raise AssertionError(f"{name_of(path)}:{node.lineno} reads the time")


@shown(ROUTER_FILES)
def test_only_the_metrics_know_prometheus(path: Path) -> None:
    """The app names the content type, no more."""
    if name_of(path) == "router/observe/metrics.py":
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "prometheus_client":
            assert name_of(path) == "router/app.py"
            assert all(alias.name.startswith("CONTENT_TYPE") for alias in node.names)
        if isinstance(node, ast.Import):
            assert not any(is_one_of(alias.name, {"prometheus_client"}) for alias in node.names)


WEB = ("router/app.py", "router/admin.py", "router/admin_guard.py", "router/wiring.py")


@shown([path for path in ROUTER_FILES if name_of(path) not in WEB])
def test_only_the_app_knows_fastapi(path: Path) -> None:
    assert [module for module in imports(path) if is_one_of(module, {"fastapi", "starlette"})] == []


@shown(FILES)
def test_router_and_backends_never_import_each_other(path: Path) -> None:
    other = {"backends"} if path.is_relative_to(ROUTER) else {"router"}
    assert [module for module in imports(path) if is_one_of(module, other)] == []


@shown(FILES)
def test_nothing_in_the_house_imports_a_test(path: Path) -> None:
    assert [module for module in imports(path) if is_one_of(module, {"tests", "pytest", "hypothesis"})] == []


@shown(FILES)
def test_a_file_is_at_most_250_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@shown([path for path in FILES if path.name == "__init__.py"])
def test_every_package_has_a_door_sign(path: Path) -> None:
    sign = ast.get_docstring(tree_of(path))
    assert sign
    assert len(sign) > 30


@shown([path for path in FILES if path.name not in ("__main__.py",)])
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path))


@shown([path for path in FILES if path.name == "__init__.py"])
def test_a_package_is_a_sign_and_does_nothing(path: Path) -> None:
    """No import side effects: a package's own file holds its sign, and the version."""
    if path == ROUTER / "__init__.py" or path == BACKENDS / "__init__.py":
        return
    rest = [
        node for node in tree_of(path).body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    assert rest == []
