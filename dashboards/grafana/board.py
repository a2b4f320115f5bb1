"""The shared parts of all dashboards: variables, annotations, links to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
    TextBoxVariable,
)
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard as DashboardBuilder,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard as Model,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    RowPanel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import DATASOURCE, PAGE_COLOR, TICKET_COLOR
from grafana.queries import firing

#: The address of docs/runbook.md: a text box on each dashboard.
RUNBOOK = "https://example.org/trainmon/docs/runbook.md"
TAG = "trainmon"

#: The colour of annotations other than alerts.
MARK_COLOR = "purple"


class Dashboard:
    """Builds one dashboard: its variables, annotations, rows and panels."""

    def __init__(self, uid: str, title: str, description: str) -> None:
        self.uid = f"trainmon-{uid}"
        self.annotation_texts: dict[str, dict[str, object]] = {}
        self._dashboard = (
            DashboardBuilder(f"trainmon / {title}")
            .uid(self.uid)
            .description(description)
            .tags([TAG])
            .readonly()
            .time("now-3h", "now")
            .refresh("30s")
            .timezone("browser")
            .tooltip(DashboardCursorSync.CROSSHAIR)
        )
        others = DashboardLink("trainmon").type(DashboardLinkType.DASHBOARDS).tags([TAG])
        self._dashboard.link(others.as_dropdown(True).include_vars(True).keep_time(True))
        self._dashboard.with_variable(
            DatasourceVariable("datasource").label("Data source").type("prometheus").regex("")
        )

    def with_variables(self, *names: str, one_run: bool = True) -> Dashboard:
        """The variables `run`, `rank`, `layer`, `tensor` as far as they are named, then the live page's rank and the
        runbook's address."""
        chosen = {
            "run": self._choice("run", "Run", "label_values(trainmon_build_info, run)", multi=not one_run),
            "rank": self._choice("rank", "Rank", 'label_values(trainmon_build_info{run=~"$run"}, rank)', multi=True),
            "layer": self._choice(
                "layer",
                "Layer",
                # Values combined over ranks have the names of the whole model.
                'label_values({__name__=~"trainmon_layer(_part)?_norm",run=~"$run"}, layer)',
                multi=True,
            ),
            "tensor": self._choice("tensor", "Tensor", 'label_values(trainmon_layer_norm{run=~"$run"}, tensor)'),
        }
        for name in names:
            self._dashboard.with_variable(chosen[name])
        selector = ",".join(f'{name}=~"${name}"' for name in names if name in {"run", "rank"})
        page = f"label_values(trainmon_build_info{{{selector}}}, instance)"
        self._dashboard.with_variable(self._choice("instance", "Live page of", page))
        runbook = TextBoxVariable("runbook").label("Runbook").default_value(RUNBOOK)
        self._dashboard.with_variable(runbook.description("The address of docs/runbook.md"))
        for title, severity, color in (("Pages", "page", PAGE_COLOR), ("Tickets", "ticket", TICKET_COLOR)):
            self._annotate(title, (firing(severity), "{{alertname}}", "{{severity}}: run {{run}} {{rank}}"), color)
        return self

    def with_marks(self, name: str, expression: str, text: str) -> Dashboard:
        """Annotates the points in time at which an expression has a value."""
        self._annotate(name, (expression, name, text), MARK_COLOR)
        return self

    def row(self, title: str, *panels: Builder[Panel]) -> Dashboard:
        """A row and its panels, from left to right."""
        self._dashboard.with_row(Row(title))
        for panel in panels:
            self._dashboard.with_panel(panel)
        return self

    def folded(self, title: str, *panels: Builder[Panel]) -> Dashboard:
        """A row whose panels are queried and shown only when it is opened."""
        row = Row(title)
        for panel in panels:
            row.with_panel(panel)
        self._dashboard.with_row(row)
        return self

    def build(self) -> Model:
        """The dashboard, each panel with a number of its own."""
        model = self._dashboard.build()
        for number, panel in enumerate(_with_folded(model.panels or []), start=1):
            panel.id_val = number
        return model

    def _annotate(self, name: str, query: tuple[str, str, str], color: str) -> None:
        expression, title, text = query
        annotation = AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).icon_color(color)
        self._dashboard.annotation(annotation.expr(expression))
        self.annotation_texts[name] = {"titleFormat": title, "textFormat": text, "step": "15s"}

    @staticmethod
    def _choice(name: str, label: str, query: str, *, multi: bool = False) -> QueryVariable:
        variable = QueryVariable(name).label(label).datasource(DATASOURCE).query({"query": query, "refId": name})
        variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.NATURAL_ASC)
        if name == "tensor":
            return variable.current(VariableOption(selected=True, text="grad", value="grad"))
        if multi:
            everything = VariableOption(selected=True, text=["All"], value=["$__all"])
            variable.multi(True).include_all(True).all_value(".*").current(everything)
        return variable


def _with_folded(panels: Sequence[Panel | RowPanel]) -> Iterator[Panel | RowPanel]:
    """Rows, their panels and all others, in the order of the screen."""
    for panel in panels:
        yield panel
        if isinstance(panel, RowPanel):
            yield from panel.panels
