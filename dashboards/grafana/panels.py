"""The kinds of panels. By default each has its description and unit from the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import heatmap, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.catalog import metric

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
#: A quarter of the screen's height, for a curve.
HEIGHT = 8
#: The colours of pages and tickets wherever alerts are shown.
PAGE_COLOR, TICKET_COLOR = "red", "orange"
#: Below all measured values: a heat map hides values that are not above it. Its own limit, 1e-9, hides every negative
#: number.
_NOTHING_HIDDEN = -1e300
#: The link of a run's row, with the selected data source and time range.
_OVERVIEW = (
    "/d/trainmon-run-overview?var-run=${__data.fields.run:percentencode}&${datasource:queryparam}&${__url_time_range}"
)

Panel = TypeVar("Panel", timeseries.Panel, stat.Panel, heatmap.Panel, statetimeline.Panel, table.Panel)


@dataclass(frozen=True)
class Query:
    """An expression and the names of its curves."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Facts:
    """The description of a panel."""

    title: str
    #: The metric with its description and unit.
    about: str
    #: The entry of the runbook it links to: the name of an alert.
    runbook: str
    #: A sentence in addition to the catalogue's.
    note: str = ""
    #: Replaces the metric's unit, for rates and shares.
    unit: str = ""
    width: int = 12
    height: int = HEIGHT


@dataclass(frozen=True)
class Column:
    """A column of a table: an instant query, its heading and its unit."""

    heading: str
    expression: str
    unit: str = "none"
    decimals: int | None = None
    #: The values from which the cell is yellow, and red.
    limits: tuple[float, float] | None = None
    #: The value from which the cell has this colour.
    warns: tuple[float, str] | None = None
    #: Texts in place of numbers, with their colours.
    words: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    #: Queried for its labels only: the number means nothing.
    labels_only: bool = False


@dataclass(frozen=True)
class Link:
    """The link of a cell."""

    title: str
    url: str
    #: Outside Grafana: in its own window.
    is_elsewhere: bool = False


#: From a cell with an address to the live page there.
LIVE_PAGE = Link("Live page", "http://${__value.text}/", is_elsewhere=True)
#: From a run's name to the dashboard of that run.
RUN_OVERVIEW = Link("Run overview", _OVERVIEW)


def _links(runbook: str) -> list[DashboardLink]:
    def link(title: str, url: str) -> DashboardLink:
        return DashboardLink(title).type(DashboardLinkType.LINK).url(url).target_blank(True)

    return [link("Runbook", f"${{runbook}}#{runbook.lower()}"), link("Live page of the rank", "http://${instance}/")]


def _with_facts(panel: Panel, facts: Facts) -> Panel:
    about = metric(facts.about)
    panel.title(facts.title).description(f"{about.help} {facts.note}".strip()).datasource(DATASOURCE)
    panel.unit(facts.unit or about.unit).span(facts.width).height(facts.height)
    panel.links([*_links(facts.runbook)])
    return panel


def _targets(queries: Sequence[Query]) -> list[Dataquery]:
    def target(index: int, query: Query) -> Dataquery:
        built = Dataquery().expr(query.expression).ref_id(chr(ord("A") + index)).datasource(DATASOURCE).range()
        return built.legend_format(query.legend or "__auto")

    return [target(index, query) for index, query in enumerate(queries)]


@dataclass(frozen=True)
class Look:
    """The style of curves."""

    logarithmic: bool = False
    bars: bool = False
    stacked: bool = False
    #: The ends of the axis, if known.
    bounds: tuple[float | None, float | None] = (None, None)
    #: Curves, by a pattern of their legends, drawn as red points.
    marks: str = ""
    #: The colour of all curves whose legends match a pattern, in shades if there are several.
    colors: Mapping[str, str] = field(default_factory=dict)
    #: The value from which the background of the curve is red.
    limit: float | None = None
    calculations: tuple[str, ...] = field(default=("lastNotNull", "max"))


def curves(facts: Facts, *queries: Query, look: Look | None = None) -> timeseries.Panel:
    """Curves over time."""
    look = look or Look()
    panel = _with_facts(timeseries.Panel(), facts).targets([*_targets(queries)])
    panel.line_width(1).show_points(common.VisibilityMode.AUTO).span_nulls(False)
    legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    panel.legend(legend.display_mode(common.LegendDisplayMode.LIST).calcs([*look.calculations]))
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(common.SortOrder.DESCENDING))
    if look.bars:
        panel.draw_style(common.GraphDrawStyle.BARS).fill_opacity(60)
    if look.stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A")).fill_opacity(40)
    if look.logarithmic:
        scale = common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG)
        panel.scale_distribution(scale.log(10))
    low, high = look.bounds
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    if look.limit is not None:
        panel.thresholds(_limits(look.limit, look.limit))
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    if look.marks:
        properties = [
            DynamicConfigValue("custom.drawStyle", "points"),
            DynamicConfigValue("custom.pointSize", 8),
            DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "red"}),
        ]
        panel.override_by_regexp(look.marks, properties)
    for pattern, color in look.colors.items():
        panel.override_by_regexp(pattern, [DynamicConfigValue("color", {"mode": "shades", "fixedColor": color})])
    return panel


def number(facts: Facts, query: Query, limits: tuple[float, float] | None = None) -> stat.Panel:
    """The current value, large, with its curve behind it; yellow and red from the limits on."""
    panel = _numbers(facts, query)
    return panel.thresholds(_limits(*limits) if limits else ThresholdsConfig().steps([Threshold(color="text")]))


def alert_counts(facts: Facts, pages: Query, tickets: Query) -> stat.Panel:
    """The numbers of pages and of tickets, each coloured if it is not zero."""
    panel = _numbers(facts, pages, tickets).text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    for query, color in ((pages, PAGE_COLOR), (tickets, TICKET_COLOR)):
        panel.override_by_name(query.legend, [DynamicConfigValue("thresholds", _steps((None, "text"), (1, color)))])
    return panel


def _numbers(facts: Facts, *queries: Query) -> stat.Panel:
    panel = _with_facts(stat.Panel(), facts).targets([*_targets(queries)])
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.graph_mode(common.BigValueGraphMode.AREA).color_mode(common.BigValueColorMode.VALUE)


def heat(facts: Facts, query: Query) -> heatmap.Panel:
    """A row for each curve, in colours over time: `calculate` off takes curves as rows."""
    panel = _with_facts(heatmap.Panel(), facts).targets([*_targets([query])])
    colors = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Turbo").steps(64)
    panel.calculate(False).color(colors.scale(HeatmapColorScale.LINEAR)).show_legend()
    panel.filter_values(heatmap.FilterValueRange().le(_NOTHING_HIDDEN))
    # More columns would be narrower than a pixel on most screens, and each costs a query's point per layer.
    return panel.cell_gap(0).max_data_points(300).cell_values(heatmap.CellValues().unit(facts.unit).decimals(3))


def states(facts: Facts, query: Query, words: Mapping[int, tuple[str, str]], nothing: str) -> statetimeline.Panel:
    """A bar for each curve, in the colours of its values' states; `nothing` is the text without curves."""
    panel = _with_facts(statetimeline.Panel(), facts).targets([*_targets([query])])
    panel.mappings([ValueMap(_meanings(words))]).no_value(nothing).merge_values(True)
    legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    panel.legend(legend.display_mode(common.LegendDisplayMode.LIST)).show_value(common.VisibilityMode.NEVER)
    # As many columns as the heat maps beside it.
    return panel.row_height(0.9).max_data_points(300).color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))


def listing(facts: Facts, key: Sequence[str], columns: Sequence[Column], leads_to: Mapping[str, Link]) -> table.Panel:
    """A table: a row for each value of the key's labels, a column for each query; cells of `leads_to` are links."""
    panel = _with_facts(table.Panel(), facts)
    hidden = ["Time", "__name__", "job"]
    shown = {}
    for index, column in enumerate(columns):
        ref = chr(ord("A") + index)
        target = Dataquery().expr(column.expression).ref_id(ref).datasource(DATASOURCE)
        panel.with_target(target.instant().format(PromQueryFormat.TABLE))
        # The data source appends the letter if there are several.
        value = f"Value #{ref}" if len(columns) > 1 else "Value"
        if column.labels_only:
            hidden.append(value)
        else:
            shown[value] = column.heading
    order = {name: place for place, name in enumerate((*key, *shown))}
    options = {"excludeByName": dict.fromkeys(hidden, True), "renameByName": shown, "indexByName": order}
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options=options))
    for column in columns:
        if not column.labels_only:
            panel.override_by_name(column.heading, _cell(column))
    for name, link in leads_to.items():
        told = {"title": link.title, "url": link.url, "targetBlank": link.is_elsewhere}
        panel.override_by_name(name, [DynamicConfigValue("links", [told])])
    return panel.cell_height(common.TableCellHeight.SM).filterable(True)


def _cell(column: Column) -> list[DynamicConfigValue]:
    properties = [DynamicConfigValue("unit", column.unit)]
    if column.decimals is not None:
        properties.append(DynamicConfigValue("decimals", column.decimals))
    steps: list[tuple[float | None, str]] = [(None, "transparent")]
    if column.limits:
        yellow, red = column.limits
        steps += [(red, "red")] if yellow == red else [(yellow, "yellow"), (red, "red")]
    if column.warns:
        steps.append(column.warns)
    if column.words:
        properties.append(DynamicConfigValue("mappings", [ValueMap(_meanings(column.words))]))
    if len(steps) > 1 or column.words:
        properties.append(DynamicConfigValue("thresholds", _steps(*steps)))
        properties.append(DynamicConfigValue("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
    return properties


def _meanings(words: Mapping[int, tuple[str, str]]) -> dict[str, ValueMappingResult]:
    return {
        str(value): ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(words.items())
    }


def _steps(*steps: tuple[float | None, str]) -> dict[str, object]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def _limits(yellow: float, red: float) -> ThresholdsConfig:
    steps = [Threshold(color="green"), Threshold(value=yellow, color="yellow"), Threshold(value=red, color="red")]
    if yellow == red:
        steps.pop(1)
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
