"""The documents name every setting, option, metric, route and flag, and nothing else; what they link to is there."""

import argparse
import os
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
import yaml
from pydantic import BaseModel

from backends.cli import build_parser
from backends.mock.faults import Rule
from router.cli import _parser, settings_from
from router.core.fleet import Fleet
from router.observe.bus import Bus
from router.observe.metrics import Metrics
from router.plugins import _policy_options, build_dialects, policy_names
from router.sections.workers import WorkerSettings
from router.settings import Settings
from router.wiring import Gateway
from tests.support.deployment import COUNTERS_AND_GAUGES, HISTOGRAMS

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [*GUIDES, ROOT / "CHANGELOG.md", *sorted((ROOT / "deploy").rglob("*.md"))]
SHIPPED = sorted((ROOT / "deploy").glob("*.y*ml"))

METRICS = COUNTERS_AND_GAUGES | HISTOGRAMS  # the public ones with their labels; all begin with `prefix_router_`


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name_of)


@cache
def said(*paths: Path) -> str:
    return "\n".join(path.read_text("utf-8") for path in paths)


def spans(text: str) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)))


def blocks(path: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", said(path), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(body) for _, body in found]


def rows(text: str, first: str) -> list[str]:
    """The rows of tables whose first cell says `first`."""
    return [line for line in text.splitlines() if line.startswith("|") and f"`{first}`" in line.split(" | ")[0]]


# Settings.


def setting_paths(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """`listen.port`, `workers[].url`: every setting there is."""
    for name, field in model.model_fields.items():
        inner = next(models_in(field.annotation), None)
        if inner is None:
            yield before + name
        else:
            yield from setting_paths(inner, f"{before}{name}{'[]' if get_origin(field.annotation) is tuple else ''}.")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def stated(value: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The settings that a YAML block states, by dotted path."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from stated(inner, f"{before}.{name}".lstrip("."))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from stated(inner, f"{before}[]")
    else:
        yield before, value


@cache
def example() -> Any:
    """The YAML block of the settings' document that shows them all."""
    return yaml.safe_load(blocks(ROOT / "docs/settings.md", "yaml")[0])


@pytest.mark.parametrize("path", list(setting_paths(Settings)))
def test_every_setting_is_in_the_documents(path: str) -> None:
    assert path in {name for name, _ in stated(example())} | spans(said(*GUIDES))


@pytest.mark.parametrize("path", sorted({name for name, _ in stated(example())} - {"workers[]"}))
def test_the_example_shows_no_setting_that_is_not_there(path: str) -> None:
    known = set(setting_paths(Settings))
    assert path in known | {each.partition("[]")[0] for each in known}


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that sets nothing, and has the secrets that the examples read from it."""
    for name in [name for name in os.environ if name.startswith("PREFIX_ROUTER_")]:
        monkeypatch.delenv(name)
    for path in [*DOCUMENTS, *SHIPPED]:
        for name in re.findall(r"\$\{([A-Z_][A-Z0-9_]*)\}", said(path)):
            monkeypatch.setenv(name, f"the-secret-{name.lower()}")
    monkeypatch.delenv("PREFIX_ROUTER_ADMIN_TOKEN", raising=False)


def loaded(text: str, folder: Path) -> Settings:
    file = folder / "settings.yaml"
    file.write_text(text, "utf-8")
    return settings_from(file, {})[0]


@pytest.mark.usefixtures("nothing_set")
def test_the_example_loads_and_shows_the_defaults(tmp_path: Path) -> None:
    (text, *_) = blocks(ROOT / "docs/settings.md", "yaml")
    settings = loaded(text, tmp_path)
    shown, default = settings.model_dump(), Settings().model_dump()
    shown.pop("workers")
    default.pop("workers")
    assert shown == default
    one, other = settings.workers
    assert one == WorkerSettings(url=one.url)
    assert other == WorkerSettings(url=other.url)


@pytest.mark.usefixtures("nothing_set")
@each([path for path in DOCUMENTS if blocks(path, "yaml")])
def test_every_example_loads(path: Path, tmp_path: Path) -> None:
    for text in blocks(path, "yaml"):
        loaded(text, tmp_path)


@each(SHIPPED)
def test_a_shipped_file_of_settings_loads(path: Path, nothing_set: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIX_ROUTER_ADMIN_TOKEN", "the-secret")
    settings, origins = settings_from(path, {})
    assert settings.workers
    assert settings.admin_token is not None
    assert settings.admin_token.get_secret_value() == "the-secret"
    assert origins["workers"] == "file"


def test_there_is_a_shipped_file_of_settings() -> None:
    assert ROOT / "deploy/prefix-router.yaml" in SHIPPED


# Policies.


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_is_in_the_documents_with_its_options_and_their_defaults(name: str) -> None:
    assert name in spans(said(ROOT / "README.md"))
    (row,) = rows(said(ROOT / "docs/settings.md"), name)
    options = _policy_options(name, {})[1].model_dump()
    for option, default in options.items():
        assert f"`{option}` {default:g}" in row
    shown = row.split(" | ")[2] if row.count(" | ") > 1 else ""
    assert set(re.findall(r"`(\w+)` ", shown)) == set(options)


# Metrics.


@cache
def scraped() -> dict[str, str]:
    text = Metrics(Bus(), Fleet(), ["/v1/models"], lambda: 0, "prefix_cost").scrape().decode()
    return dict(re.findall(r"^# TYPE prefix_router_(\w+) (\w+)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", METRICS)
def test_every_public_metric_is_scraped(name: str) -> None:
    assert name in scraped()


@pytest.mark.parametrize("name", sorted(METRICS.keys() | scraped().keys()))
def test_every_metric_is_in_the_documents_with_its_labels(name: str) -> None:
    (row,) = rows(said(ROOT / "docs/operating.md"), name)
    assert set(re.findall(r"\w+", row.split(" | ")[1])) >= METRICS.get(name, set())


def test_the_documents_name_no_metric_that_is_not_there() -> None:
    section = said(ROOT / "docs/operating.md").split("## Metrics\n")[1].split("\n## ")[0]
    table = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert table
    assert spans("\n".join(table)) <= scraped().keys()


# Routes.


def plain(path: str) -> str:
    return re.sub(r"\{\w+\}", "{id}", path)


@cache
def routes() -> set[str]:
    paths = Gateway(Settings()).app.openapi()["paths"]
    return {f"{method.upper()} {plain(path)}" for path, methods in paths.items() for method in methods}


ADMIN = sorted(route for route in routes() if " /admin/" in route)


def test_there_are_admin_routes() -> None:
    assert "GET /admin/workers" in ADMIN


@pytest.mark.parametrize("route", ADMIN)
def test_every_admin_route_is_in_the_documents(route: str) -> None:
    assert rows(said(ROOT / "docs/operating.md"), route)


def test_the_documents_name_no_admin_route_that_is_not_there() -> None:
    shown = {span for span in spans(said(*GUIDES)) if re.match(r"[A-Z]+ /admin/", span)}
    assert {plain(route) for route in shown} <= routes()


OTHER = {route.split()[1] for route in routes()} - {route.split()[1] for route in ADMIN}
PROXIED = {path for dialect in build_dialects() for path in dialect.paths}


@pytest.mark.parametrize("path", sorted(OTHER | PROXIED))
def test_every_other_path_is_in_the_documents(path: str) -> None:
    assert path in spans(said(*GUIDES))


# Commands and flags.


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (choices,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return choices.choices


def flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """All but `--help` and `--version`, which every program has."""
    return [action for action in parser._actions if action.option_strings and action.dest not in ("help", "version")]


GATEWAY, WORKER = commands(_parser()), commands(build_parser([]))
WORKER_FLAGS = [(kind, action) for kind, parser in WORKER.items() for action in flags(parser)]


@pytest.mark.parametrize("command", GATEWAY)
def test_every_command_of_the_gateway_is_in_the_documents_with_its_flags(command: str) -> None:
    (row,) = rows(said(ROOT / "docs/operating.md"), f"prefix-router {command}")
    shown = {span.split()[0] for span in spans(row)}
    assert {action.option_strings[0] for action in flags(GATEWAY[command])} <= shown


@pytest.mark.parametrize("command", GATEWAY)
def test_no_flag_in_the_documents_is_unknown_to_its_command(command: str) -> None:
    (row,) = rows(said(ROOT / "docs/operating.md"), f"prefix-router {command}")
    shown = {span.split()[0] for span in spans(row) if span.startswith("--")}
    assert shown <= {action.option_strings[0] for action in flags(GATEWAY[command])}


SECTIONS = {"bench-decoding": "Measuring", "train-heads": "Training the heads"}  # of docs/decoding.md: the tools


def document_of(kind: str) -> str:
    if kind not in SECTIONS:
        return said(ROOT / f"docs/{kind}.md")
    return said(ROOT / "docs/decoding.md").split(f"## {SECTIONS[kind]}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("kind", WORKER)
def test_every_kind_of_worker_is_in_the_documents(kind: str) -> None:
    assert rows(said(ROOT / "docs/operating.md"), f"prefix-worker {kind}")
    assert f"prefix-worker {kind}" in document_of(kind)


@pytest.mark.parametrize(("kind", "flag"), WORKER_FLAGS, ids=lambda each: getattr(each, "dest", each))
def test_every_flag_of_a_worker_is_in_its_document_with_its_default(kind: str, flag: argparse.Action) -> None:
    (row,) = [line for line in document_of(kind).splitlines() if re.match(rf"\| `{flag.option_strings[0]}[` ]", line)]
    if flag.default not in (None, False):
        assert row.split(" | ")[1] == str(flag.default)


def test_version_and_help_are_in_the_documents() -> None:
    assert {"--version", "--help"} <= spans(said(*GUIDES))


@pytest.mark.parametrize("name", msgspec.structs.asdict(Rule()))
def test_every_fault_is_in_the_documents(name: str) -> None:
    assert name in spans(said(ROOT / "docs/mock.md").split("## Faults\n")[1])


# Links.


def anchors(path: Path) -> set[str]:
    """A heading's anchor: small letters, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.+)$", said(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```", "", said(path), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


@each([path for path in DOCUMENTS if links(path)])
def test_every_link_between_the_documents_leads_somewhere(path: Path) -> None:
    for link in links(path):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


@each(sorted((ROOT / "docs").glob("*.md")))
def test_the_readme_or_a_guide_leads_to_every_document(path: Path) -> None:
    others = [other for other in GUIDES if other != path]
    assert path in {(other.parent / link).resolve() for other in others for link in links(other)}


# What no file may name.

LEFT_OUT = {"__pycache__", "node_modules", "dist", "build"}


@cache
def shipped() -> list[Path]:
    """Every text file but those of tools."""
    found = []
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        tools = any(part in LEFT_OUT or part.endswith(".egg-info") for part in parts)
        if tools or (parts[0].startswith(".") and parts[0] != ".ci" and len(parts) > 1) or not path.is_file():
            continue
        found.append(path)
    return sorted(found)


@cache
def text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def found_in(pattern: re.Pattern[str]) -> list[str]:
    me = Path(__file__)
    return [f"{name_of(path)}: {hit}" for path in shipped() if path != me for hit in pattern.findall(text_of(path))]


def test_the_files_are_read() -> None:
    assert {"README.md", "pyproject.toml", ".ci/run", "router/cli.py"} <= {name_of(path) for path in shipped()}


@pytest.mark.parametrize("lock", [path for path in shipped() if path.suffix == ".lock"], ids=name_of)
def test_a_lock_file_holds_hashes_and_no_address(lock: Path) -> None:
    text = text_of(lock)
    assert "://" not in text
    assert "--index-url" not in text
    pinned = re.findall(r"^[A-Za-z0-9_.-]+(?:\[.*?\])?==", text, re.MULTILINE)
    assert pinned
    assert text.count("--hash=sha256:") >= len(pinned)


def test_no_file_names_the_place_it_was_written_in() -> None:
    if len(ROOT.parts) > 2:
        assert found_in(re.compile(re.escape(str(ROOT)) + r"\b")) == []
