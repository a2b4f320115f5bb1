"""The dashboards: made by the generator, of metrics that are served, each panel with all that a reader needs."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import dashboards, rendering, rules

PANELS = [(file, panel) for file in dashboards.FILES for panel in dashboards.panels(file)]
VARIABLES = {"datasource", "run", "rank", "layer", "tensor", "instance", "runbook"}

each_dashboard = pytest.mark.parametrize("file", dashboards.FILES, ids=lambda file: file.stem)
each_panel = pytest.mark.parametrize(
    ("file", "panel"), PANELS, ids=[f"{file.stem}-{panel['title']}" for file, panel in PANELS]
)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's builders need Python 3.11")
def test_the_committed_dashboards_are_those_of_the_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grafana_foundation_sdk")
    monkeypatch.syspath_prepend(str(dashboards.DIRECTORY.parent))
    from grafana.generate import DIRECTORY, write_all

    if "TRAINMON_REGENERATE" in os.environ:
        write_all()
    write_all(tmp_path)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text() for file in DIRECTORY.iterdir()}
    assert made == committed, "run `python -m grafana` in dashboards, or this test with TRAINMON_REGENERATE=1"


def test_there_is_a_dashboard_for_each_question() -> None:
    names = {file.stem.removeprefix("trainmon-") for file in dashboards.FILES}
    assert names == {"fleet", "run-overview", "layers", "ranks", "monitor-health"}


@each_dashboard
def test_a_dashboard_has_variables_alerts_and_a_way_to_the_others(file: Path) -> None:
    model = dashboards.model(file)
    names = [variable["name"] for variable in model["templating"]["list"]]
    assert {"datasource", "run", "rank", "instance", "runbook"} <= set(names) <= VARIABLES
    assert ("layer" in names) == (file.stem == "trainmon-layers")
    text = file.read_text()
    for name in names:
        assert f"${name}" in text.replace("${", "$"), f"variable {name} is used nowhere"
    assert any(annotation["expr"].startswith("ALERTS{") for annotation in model["annotations"]["list"])
    assert all(annotation["titleFormat"] for annotation in model["annotations"]["list"])
    assert [(link["type"], link["tags"]) for link in model["links"]] == [("dashboards", ["trainmon"])]
    assert model["uid"] == file.stem


@each_dashboard
def test_panels_have_places_and_numbers_of_their_own(file: Path) -> None:
    panels = dashboards.places(file)
    assert len({panel["id"] for panel in panels}) == len(panels)
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)

    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        columns = range(place.get("x", 0), place.get("x", 0) + place["w"])
        return set(itertools.product(columns, range(place.get("y", 0), place.get("y", 0) + place["h"])))

    for one, other in itertools.combinations(panels, 2):
        assert not cells(one) & cells(other), f"{one['title']} lies over {other['title']}"
    assert max(x for panel in panels for x, _ in cells(panel)) < 24


@each_panel
def test_a_panel_says_what_it_shows_and_leads_on(file: Path, panel: dict[str, Any]) -> None:
    helps = [metric["help"] for metric in rules.CATALOG["metrics"]]
    assert any(panel["description"].startswith(text) for text in helps)
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    runbook, page = (link["url"] for link in panel["links"])
    assert page == "http://${instance}/"
    entry = runbook.removeprefix("${runbook}#")
    assert entry in {alert.lower() for alert in rules.alerts()}, runbook


@each_dashboard
def test_a_link_names_a_dashboard_that_is_there_and_variables_that_it_has(file: Path) -> None:
    found = dashboards.links(file)
    assert found
    own = {variable["name"] for variable in dashboards.model(file)["templating"]["list"]}
    for url in found:
        named = {name for name in re.findall(r"\$\{?(\w+)", url) if not name.startswith("__")}
        assert named <= own, url
        # With something in place of each variable; `${name:queryparam}` is a whole parameter.
        told = re.sub(r"\$\{(\w+):queryparam\}", r"var-\1=a", url).replace("${__url_time_range}", "from=1&to=2")
        told = re.sub(r"\$\{[^}]*\}", "a", told)
        assert rendering.leads_somewhere(told) or url.startswith("${runbook}#"), url


@pytest.mark.parametrize("asked", dashboards.expressions(), ids=lambda asked: asked.where)
def test_an_expression_asks_for_what_is_served(asked: dashboards.Asked) -> None:
    assert rules.metrics_in(asked.expression)
    assert rules.unknown_metrics(asked.expression) == set()
    names = re.findall(r"\$([a-z_]+)", asked.expression)
    assert set(names) <= VARIABLES | {"__rate_interval", "__interval", "__range"}


@each_panel
def test_no_panel_draws_a_curve_for_each_of_thousands_of_ranks(file: Path, panel: dict[str, Any]) -> None:
    if panel["type"] == "table":
        return
    for target in panel["targets"]:
        if "{{rank}}" in target["legendFormat"] or "instance" in target["legendFormat"]:
            assert target["expr"].startswith(("topk(", "bottomk(")), target["expr"]


def test_every_metric_that_is_served_is_on_a_dashboard() -> None:
    text = " ".join(asked.expression for asked in dashboards.expressions())
    text += " ".join(rule["expr"] for rule in rules.all_rules())
    served = [metric["name"] for metric in rules.CATALOG["metrics"] if metric["status"] == "available"]
    assert [name for name in served if not re.search(rf"\b{name}(_bucket|_sum|_count)?\b", text)] == []


def test_the_provisioning_leads_grafana_to_these_files() -> None:
    folder = dashboards.DIRECTORY / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards/trainmon.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
