"""The kinds of panels. Each takes its description and its unit from the catalogue, unless it says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.catalog import metric

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
#: A quarter of the screen's height; what a curve needs.
HEIGHT = 8

Panel = TypeVar("Panel", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel)


@dataclass(frozen=True)
class Query:
    """An expression and what its curves are called."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Facts:
    """What every panel says of itself."""

    title: str
    #: The metric whose description and unit it has.
    about: str
    #: The entry of the runbook it links to: the name of an alert.
    runbook: str
    #: A sentence more than the catalogue has.
    note: str = ""
    #: Instead of the metric's: for rates and shares.
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
    #: From these values on the cell is yellow, and red.
    limits: tuple[float, float] | None = None


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
    """How curves are drawn."""

    logarithmic: bool = False
    bars: bool = False
    stacked: bool = False
    #: The ends of the axis, where they are known.
    bounds: tuple[float | None, float | None] = (None, None)
    #: Curves, by a pattern of their legends, drawn as red points: what is marked, not what is followed.
    marks: str = ""
    #: Values from which on the background of the curve turns red.
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
    return panel


def number(facts: Facts, query: Query, limits: tuple[float, float] | None = None) -> stat.Panel:
    """The value now, large, with its course behind it; yellow and red from the limits on."""
    panel = _with_facts(stat.Panel(), facts).targets([*_targets([query])])
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.graph_mode(common.BigValueGraphMode.AREA).color_mode(common.BigValueColorMode.VALUE)
    return panel.thresholds(_limits(*limits) if limits else ThresholdsConfig().steps([Threshold(color="text")]))


def heat(facts: Facts, query: Query) -> heatmap.Panel:
    """A row for each curve, in colours over time: `calculate` off takes curves as rows."""
    panel = _with_facts(heatmap.Panel(), facts).targets([*_targets([query])])
    colors = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Turbo").steps(64)
    panel.calculate(False).color(colors.scale(HeatmapColorScale.LINEAR)).show_legend()
    # More columns than this are narrower than a pixel on most screens, and each costs a query's point per layer.
    return panel.cell_gap(0).max_data_points(300).cell_values(heatmap.CellValues().unit(facts.unit).decimals(3))


def listing(facts: Facts, key: Sequence[str], columns: Sequence[Column], live_page: bool = False) -> table.Panel:
    """A table: a row for each value of the key's labels, a column for each query; rows of ranks lead to their page."""
    panel = _with_facts(table.Panel(), facts)
    for index, column in enumerate(columns):
        target = Dataquery().expr(column.expression).ref_id(chr(ord("A") + index)).datasource(DATASOURCE)
        panel.with_target(target.instant().format(PromQueryFormat.TABLE))
    hidden = dict.fromkeys(("Time", "__name__", "job"), True)
    shown = {f"Value #{chr(ord('A') + index)}": column.heading for index, column in enumerate(columns)}
    order = {name: place for place, name in enumerate((*key, *shown))}
    options = {"excludeByName": hidden, "renameByName": shown, "indexByName": order}
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options=options))
    for column in columns:
        panel.override_by_name(column.heading, _cell(column))
    if live_page:
        link = {"title": "Live page", "url": "http://${__value.text}/", "targetBlank": True}
        panel.override_by_name("instance", [DynamicConfigValue("links", [link])])
    return panel.cell_height(common.TableCellHeight.SM).filterable(True)


def _cell(column: Column) -> list[DynamicConfigValue]:
    properties = [DynamicConfigValue("unit", column.unit)]
    if column.decimals is not None:
        properties.append(DynamicConfigValue("decimals", column.decimals))
    if column.limits:
        yellow, red = column.limits
        steps = [(None, "transparent"), (yellow, "yellow"), (red, "red")]
        if yellow == red:
            steps.pop(1)
        told = {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}
        properties.append(DynamicConfigValue("thresholds", told))
        properties.append(DynamicConfigValue("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
    return properties


def _limits(yellow: float, red: float) -> ThresholdsConfig:
    steps = [Threshold(color="green"), Threshold(value=yellow, color="yellow"), Threshold(value=red, color="red")]
    if yellow == red:
        steps.pop(1)
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
