"""Fleet: many runs, and those that require attention."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from grafana.board import Dashboard
from grafana.panels import PAGE_COLOR, RUN_OVERVIEW, TICKET_COLOR, Column, Facts, Look, Query, curves, listing
from grafana.queries import RUN, firing, increase, per_run


def board() -> Dashboard:
    """The dashboard."""
    made = Dashboard("fleet", "Fleet", "All runs: which one requires attention.")
    made.with_variables("run", "rank", one_run=False)
    made.row("All runs", _table())
    made.row("Over time", *_curves())
    return made


#: A run that reported in the time range; zero, to distinguish it from no run.
_KNOWN = f"0 * max by (run) (last_over_time(run:trainmon_ranks:count{{{RUN}}}[$__range]))"
_STATES = {0: ("ended", "text"), 1: ("does not answer", PAGE_COLOR), 2: ("runs", "green")}


def _table() -> table.Panel:
    def count(severity: str) -> str:
        return f"count by (run) ({firing(severity)}) or {_KNOWN}"

    # A run that ends removes its targets. If they are listed and no rank reports, it was killed or is unreachable.
    state = f'2 + 0 * {per_run("run:trainmon_ranks:count")} or 1 + 0 * max by (run) (up{{run!="",{RUN}}}) or {_KNOWN}'
    columns = [
        Column("state", state, words=_STATES),
        Column("pages", count("page"), decimals=0, warns=(1, PAGE_COLOR)),
        Column("tickets", count("ticket"), decimals=0, warns=(1, TICKET_COLOR)),
        Column("since last step", per_run("run:trainmon_last_step_age_seconds:max"), "s", 0, (120, 900)),
        Column("step", f"max by (run) (trainmon_step{{{RUN}}})", decimals=0),
        Column("steps per second", per_run("run:trainmon_steps:rate5m"), decimals=2),
        Column("loss", f"avg by (run) (trainmon_loss{{{RUN}}})", decimals=4),
        Column("gradient norm", per_run("run:trainmon_grad_norm:max"), decimals=4),
        Column("ranks", per_run("run:trainmon_ranks:count"), decimals=0),
        Column("of", f"max by (run) (trainmon_world_size{{{RUN}}})", decimals=0),
        Column("cost", per_run("rank:trainmon_overhead:ratio10m"), "percentunit", 1, (0.02, 0.05)),
        Column("records lost", f"sum by (run) (increase(trainmon_records_dropped_total{{{RUN}}}[1h]))", limits=(1, 1)),
    ]
    note = "Runs with alerts are coloured. A run's name links to its overview."
    facts = Facts("Runs", "trainmon_alerts_total", "TrainingNonFinite", note, width=24, height=12)
    return listing(facts, ("run",), columns, {"run": RUN_OVERVIEW})


def _curves() -> list[timeseries.Panel]:
    alerts = Facts("Alerts firing", "trainmon_alerts_total", "TrainingNonFinite", "Here: alerts in Prometheus.", "none")
    found = Facts("Findings of the alert rules", "trainmon_alerts_total", "TrainingSpike", unit="short")
    return [
        curves(
            alerts,
            Query(f"count by (run, alertname) ({firing('page')})", "page {{run}} {{alertname}}"),
            Query(f"count by (run, alertname) ({firing('ticket')})", "ticket {{run}} {{alertname}}"),
            look=Look(bars=True, stacked=True, colors={"page .*": PAGE_COLOR, "ticket .*": TICKET_COLOR}),
        ),
        curves(
            found, Query(f"sum by (run) ({increase('trainmon_alerts_total', RUN)})", "{{run}}"), look=Look(bars=True)
        ),
        curves(
            Facts("Loss", "trainmon_loss", "TrainingSpike"), Query(f"avg by (run) (trainmon_loss{{{RUN}}})", "{{run}}")
        ),
        curves(
            Facts("Gradient norm", "trainmon_grad_norm", "GradNormSpike"),
            Query(per_run("run:trainmon_grad_norm:max"), "{{run}}"),
            look=Look(logarithmic=True),
        ),
        curves(
            Facts("Throughput", "trainmon_steps_total", "TrainingSlowdown", "Steps in a second.", "ops"),
            Query(per_run("run:trainmon_steps:rate5m"), "{{run}}"),
        ),
        curves(
            Facts("Ranks that report", "trainmon_world_size", "RankMetricsMissing", "Here: those that report.", "none"),
            Query(per_run("run:trainmon_ranks:count"), "{{run}}"),
        ),
    ]
