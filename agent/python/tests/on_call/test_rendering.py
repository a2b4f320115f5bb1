"""The dashboards in Grafana's own code: an hour of four runs, which a real Prometheus serves, as a reader sees it."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import dashboards, recorded_runs, rendering
from support.recorded_runs import END, LAYERS, RUNS, SECONDS, START, WORDS

pytestmark = pytest.mark.skipif(bool(rendering.missing()), reason=rendering.missing() or "nothing is missing")

#: One run where a dashboard shows one.
OF_GPT = {**dashboards.FILLED, "$__range": f"{SECONDS}s", "$__rate_interval": "4m", "$run": "gpt"}
WINDOW = rendering.Window(START, END, OF_GPT)
ALL_RUNS = rendering.Window(START, END, {**OF_GPT, "$run": ".*"})
HEAT_MAPS = ("Norm", "Largest magnitude", "Share of zeros", "Mean element")
NOT_NUMBERS = "Layers whose norm is no number, or zero"
TABLES = [("fleet", "Runs"), ("ranks", "Ranks"), ("monitor-health", "Versions"), ("run-overview", "What moved first")]


Change = Callable[[dict[str, Any]], None]


class Screens:
    """Panels as they are shown, each rendered once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._rendered: dict[tuple[str, str, Change | None], rendering.Screen] = {}

    def of(self, board: str, title: str, change: Change | None = None) -> rendering.Screen:
        """The panel, changed if a change is given."""
        asked = (board, title, change)
        if asked not in self._rendered:
            panel = rendering.changed(dashboards.panel(board, title), change or (lambda _: None))
            window = ALL_RUNS if board == "fleet" else WINDOW
            self._rendered[asked] = rendering.render(self._address, {title: panel}, window)
        return self._rendered[asked]

    def show(self, board: str, title: str, change: Change | None = None) -> dict[str, Any]:
        """What is shown of it."""
        return self.of(board, title, change).shown[title]


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screens]:
    if lacking := recorded_runs.missing():
        pytest.skip(f"no {' and no '.join(lacking)} on PATH (Debian: prometheus)")
    with recorded_runs.prometheus(tmp_path_factory.mktemp("recorded")) as address:
        yield Screens(address)


@pytest.mark.parametrize(("board", "title"), TABLES)
def test_a_table_has_a_row_for_each_thing_and_every_link_leads_somewhere(
    screens: Screens, board: str, title: str
) -> None:
    shown = screens.show(board, title)
    assert rendering.faults(shown) == []
    assert any(cell["links"] for row in shown["rows"] for cell in row)
    assert "__name__" not in shown["columns"] and "Time" not in shown["columns"]


def test_the_fleet_has_one_row_per_run_and_says_which_ended(screens: Screens) -> None:
    rows = rendering.cells(screens.show("fleet", "Runs"))
    assert set(rows) == set(RUNS)
    states = {run: row["state"]["text"] for run, row in rows.items()}
    assert states == {"gpt": "runs", "a run & its twin": "runs", "ended": "ended", "killed": "does not answer"}
    assert {run: (row["pages"]["text"], row["tickets"]["text"]) for run, row in rows.items()} == {
        "gpt": ("1", "2"),
        "a run & its twin": ("0", "1"),
        "ended": ("0", "0"),
        "killed": ("1", "0"),
    }


def test_a_row_of_the_fleet_leads_to_the_overview_of_its_run_in_the_same_time(screens: Screens) -> None:
    for run, row in rendering.cells(screens.show("fleet", "Runs")).items():
        (url,) = row["run"]["links"]
        parts = urllib.parse.urlsplit(url)
        assert parts.path == "/d/trainmon-run-overview"
        assert urllib.parse.parse_qs(parts.query) == {
            "var-run": [run],
            "var-datasource": ["prometheus"],
            "from": [str(START * 1000)],
            "to": [str(END * 1000)],
        }


@pytest.mark.parametrize("title", HEAT_MAPS)
def test_a_heat_map_draws_every_number_of_every_layer_in_the_order_of_layers(screens: Screens, title: str) -> None:
    shown = screens.show("layers", title)
    assert rendering.faults(shown) == []
    assert len(shown["rows"]) == LAYERS + 1
    assert all(row["drawn"] for row in shown["rows"])
    numbers = [int(found[0]) for row in shown["rows"] if (found := re.findall(r"\d+$", row["name"]))]
    assert numbers == list(range(LAYERS))


def test_layers_that_no_heat_map_can_draw_are_named_beside_them(screens: Screens) -> None:
    shown = screens.show("layers", NOT_NUMBERS)
    assert rendering.faults(shown) == []
    assert {one["name"]: one["texts"] for one in shown["series"]} == {
        f"model.layers.{number:04}": [word] for number, word in WORDS.items()
    }
    colors = {one["texts"][0]: one["lastColor"] for one in shown["series"]}
    assert len(set(colors.values())) == len(set(WORDS.values()))


def test_every_layer_with_a_norm_is_drawn_or_named_at_all_times(screens: Screens) -> None:
    drawn = {row["name"]: row["drawn"] for row in screens.show("layers", "Norm")["rows"]}
    named = {one["name"]: one["points"] for one in screens.show("layers", NOT_NUMBERS)["series"]}
    points = max(drawn.values())
    # The one that is NaN on a single rank is both.
    assert all(drawn[layer] + named.get(layer, 0) >= points for layer in drawn)


def test_pages_and_tickets_have_colours_of_their_own_wherever_alerts_are_shown(screens: Screens) -> None:
    table = screens.of("fleet", "Runs")
    page, ticket = table.colors["red"], table.colors["orange"]
    row = rendering.cells(table.shown["Runs"])["gpt"]
    assert (row["pages"]["color"], row["tickets"]["color"]) == (page, ticket)
    tile = screens.show("run-overview", "Alerts firing")
    assert {one["name"]: (one["texts"][-1], one["lastColor"]) for one in tile["series"]} == {
        "pages": ("1", page),
        "tickets": ("2", ticket),
    }
    curves = screens.show("fleet", "Alerts firing")["series"]
    kinds = {kind: {one["color"] for one in curves if one["name"].startswith(kind)} for kind in ("page", "ticket")}
    # Several are shades of their colour.
    assert page in kinds["page"] and kinds["ticket"]
    assert not kinds["page"] & kinds["ticket"]
    for file in dashboards.FILES:
        marks = {mark["name"]: mark for mark in dashboards.model(file)["annotations"]["list"]}
        assert 'severity="page"' in marks["Pages"]["expr"] and 'severity="ticket"' in marks["Tickets"]["expr"]
        assert len({mark["iconColor"] for mark in marks.values()}) == len(marks)


def hide_as_by_default(panel: dict[str, Any]) -> None:
    panel["options"]["filterValues"] = {"le": 1e-9}


def sort_by_letters(panel: dict[str, Any]) -> None:
    panel["targets"][0]["expr"] = 'log10(max by (layer) (trainmon_layer_norm{run="gpt"} > 0))'


def pad_to_two_digits(panel: dict[str, Any]) -> None:
    inner = 'log10(max by (layer) (trainmon_layer_norm{run="gpt"} > 0))'
    panel["targets"][0]["expr"] = f'label_replace({inner}, "layer", "$1.0$2", "layer", "(.+)[.]([0-9])")'


def keep_the_names_of_recorded_metrics(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        target["expr"] = re.sub(r"^max by \(run\) \(((?:run|rank):[^)]*)\)$", r"\1", target["expr"])


def ask_for_nothing(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        target["expr"] = "trainmon_nothing"


def take_the_links(panel: dict[str, Any], url: str | None = None) -> None:
    for override in panel["fieldConfig"]["overrides"]:
        for one in override["properties"]:
            if one["id"] == "links":
                one["value"] = [{**link, "url": url} for link in one["value"]] if url else []


def lead_to_another_board(panel: dict[str, Any]) -> None:
    take_the_links(panel, "/d/trainmon-overview?var-run=${__data.fields.run}")


def lead_with_another_variable(panel: dict[str, Any]) -> None:
    take_the_links(panel, "/d/trainmon-run-overview?var-training=${__data.fields.run}")


@pytest.mark.parametrize(
    ("board", "title", "change", "fault"),
    [
        ("layers", "Norm", hide_as_by_default, "a blank heat map"),
        ("layers", "Mean element", hide_as_by_default, "are hidden"),
        ("layers", "Norm", sort_by_letters, "not in the order of their numbers"),
        ("layers", "Norm", pad_to_two_digits, "not in the order of their numbers"),
        ("layers", "Norm", ask_for_nothing, "a blank heat map"),
        ("layers", NOT_NUMBERS, ask_for_nothing, "no value"),
        ("fleet", "Runs", keep_the_names_of_recorded_metrics, "rows of gpt"),
        ("fleet", "Runs", ask_for_nothing, "0 tables of which one is shown"),
        ("fleet", "Runs", lead_to_another_board, "a link leads nowhere"),
        ("fleet", "Runs", lead_with_another_variable, "a link leads nowhere"),
    ],
)
def test_what_a_reader_would_miss_is_seen(screens: Screens, board: str, title: str, change: Change, fault: str) -> None:
    found = rendering.faults(screens.show(board, title, change))
    assert any(fault in one for one in found), found


def test_the_overview_of_a_run_ends_with_the_faults_found_and_the_rest_is_folded() -> None:
    panels = dashboards.model(dashboards.DIRECTORY / "json/trainmon-run-overview.json")["panels"]
    titles = [panel["title"] for panel in panels]
    rows = [panel for panel in panels[titles.index("Faults found") + 1 :] if panel["type"] == "row"]
    assert rows and all(row["collapsed"] and row["panels"] for row in rows)
    # What stands open below is of "Faults found" itself.
    assert panels[panels.index(rows[0]) :] == rows
    assert not any(panel.get("collapsed") for panel in panels[: titles.index("Faults found")])
