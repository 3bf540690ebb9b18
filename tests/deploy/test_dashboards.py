"""The dashboards: Grafana's own types accept them, their queries name real metrics, and they fit on one screen."""

import json
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deployment import DASHBOARDS, DEPLOY, compose, panel_queries, panels, selectors, unknown_in
from tests.support.npm import installed

CHECKER = Path(__file__).parent / "grafana"
ROWS_ON_ONE_SCREEN = 24  # 24 rows of 30 pixels and their gaps: 1080 lines less the browser's and Grafana's own bars
each_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
each_panel = pytest.mark.parametrize(("title", "panel"), list(panels()), ids=[title for title, _ in panels()])


@pytest.mark.parametrize(("title", "query"), list(panel_queries()), ids=[title for title, _ in panel_queries()])
def test_a_query_names_only_metrics_and_labels_that_exist(title: str, query: str) -> None:
    assert list(selectors(query)), title
    assert unknown_in(query) == []


@each_panel
def test_a_panel_has_a_unit_and_says_what_it_shows(title: str, panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"], title
    assert len(panel["description"]) > 20
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@each_dashboard
def test_the_panels_fill_one_screen_without_overlap(path: Path) -> None:
    places = [panel["gridPos"] for panel in json.loads(path.read_text())["panels"]]
    cells = [{(x, y) for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])} for p in places]
    assert all(not one & other for one, other in combinations(cells, 2))
    assert set().union(*cells) == {(x, y) for x in range(24) for y in range(max(p["y"] + p["h"] for p in places))}
    assert max(p["y"] + p["h"] for p in places) <= ROWS_ON_ONE_SCREEN


@each_dashboard
def test_the_data_source_is_a_variable_and_ids_are_unique(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert dashboard["uid"] == path.stem


def test_grafana_finds_data_source_and_dashboards_where_compose_mounts_them() -> None:
    service = compose()["services"]["grafana"]
    mounts = dict(volume.removesuffix(":ro").split(":") for volume in service["volumes"])
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/prefix-router.yml").read_text())["providers"][
        0
    ]
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in {f"{provider['options']['path']}/{path.name}" for path in DASHBOARDS}
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"


def test_the_types_are_those_of_the_grafana_that_compose_starts() -> None:
    wanted = json.loads((CHECKER / "package.json").read_text())["dependencies"]["@grafana/schema"]
    assert compose()["services"]["grafana"]["image"] == f"grafana/grafana:{wanted}"


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checker's folder with its packages."""
    return installed(CHECKER, "dashboard-check", tmp_path_factory.mktemp("dashboard-check"))


def complaints(checker: Path, dashboard: str) -> str:
    head = 'import type { CheckedDashboard } from "./dashboard_types";\nexport const dashboard: CheckedDashboard = '
    (checker / "dashboard.ts").write_text(head + dashboard)
    compiler = ["node", "node_modules/typescript/bin/tsc", "--project", "."]
    return subprocess.run(compiler, cwd=checker, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.system("npm")
@pytest.mark.xdist_group("npm")  # one process installs the packages, and no other beside it
@each_dashboard
def test_grafanas_types_accept_the_dashboard(checker: Path, path: Path) -> None:
    assert complaints(checker, path.read_text()) == ""


@pytest.mark.system("npm")
@pytest.mark.xdist_group("npm")  # one process installs the packages, and no other beside it
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"refresh": "10s"', '"refresh": 5'),
        ('"gridPos"', '"gridPoss"'),
        ('"fillOpacity"', '"fillOpacityy"'),
        ('"mode": "absolute"', '"mode": "absolutely"'),
        ('"type": "timeseries"', '"type": "graph"'),
    ],
)
def test_grafanas_types_refuse_a_wrong_value_and_an_unknown_key(checker: Path, right: str, wrong: str) -> None:
    broken = DASHBOARDS[0].read_text().replace(right, wrong, 1)
    assert "error TS" in complaints(checker, broken)
