"""Fleet: many runs, and which of them needs a look."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from grafana.board import RankStore
from grafana.panels import Column, Facts, Look, Query, curves, listing
from grafana.queries import RUN, increase


def board() -> RankStore:
    """The dashboard."""
    made = RankStore("fleet", "Fleet", "All runs: which needs a look.")
    made.with_variables("run", "rank", one_run=False)
    made.row("All runs", _table())
    made.row("Over time", *_curves())
    return made


def _table() -> table.Panel:
    def firing(severity: str) -> str:
        alerts = f'count by (run) (ALERTS{{alertstate="firing",severity="{severity}",{RUN}}})'
        return f"{alerts} or 0 * max by (run) (trainmon_step{{{RUN}}})"

    columns = [
        Column("pages", firing("page"), decimals=0, limits=(1, 1)),
        Column("tickets", firing("ticket"), decimals=0, limits=(1, 5)),
        Column("since last step", f"run:trainmon_last_step_age_seconds:max{{{RUN}}}", "s", 0, (120, 900)),
        Column("step", f"max by (run) (trainmon_step{{{RUN}}})", decimals=0),
        Column("steps per second", f"run:trainmon_steps:rate5m{{{RUN}}}", decimals=2),
        Column("loss", f"avg by (run) (trainmon_loss{{{RUN}}})", decimals=4),
        Column("gradient norm", f"run:trainmon_grad_norm:max{{{RUN}}}", decimals=4),
        Column("ranks", f"run:trainmon_ranks:count{{{RUN}}}", decimals=0),
        Column("of", f"max by (run) (trainmon_world_size{{{RUN}}})", decimals=0),
        Column("cost", f"max by (run) (rank:trainmon_overhead:ratio10m{{{RUN}}})", "percentunit", 1, (0.02, 0.05)),
        Column("records lost", f"sum by (run) (increase(trainmon_records_dropped_total{{{RUN}}}[1h]))", limits=(1, 1)),
    ]
    facts = Facts(
        "Runs", "trainmon_alerts_total", "TrainingNonFinite", "Runs with alerts are coloured.", width=24, height=12
    )
    return listing(facts, ("run",), columns)


def _curves() -> list[timeseries.Panel]:
    alerts = Facts("Alerts firing", "trainmon_alerts_total", "TrainingNonFinite", "Here: alerts in Prometheus.", "none")
    found = Facts("Findings of the alert rules", "trainmon_alerts_total", "TrainingSpike", unit="short")
    return [
        curves(
            alerts,
            Query(f'count by (run, alertname) (ALERTS{{alertstate="firing",{RUN}}})', "{{run}} {{alertname}}"),
            look=Look(bars=True, stacked=True),
        ),
        curves(
            found, Query(f"sum by (run) ({increase('trainmon_alerts_total', RUN)})", "{{run}}"), look=Look(bars=True)
        ),
        curves(
            Facts("Loss", "trainmon_loss", "TrainingSpike"), Query(f"avg by (run) (trainmon_loss{{{RUN}}})", "{{run}}")
        ),
        curves(
            Facts("Gradient norm", "trainmon_grad_norm", "GradNormSpike"),
            Query(f"run:trainmon_grad_norm:max{{{RUN}}}", "{{run}}"),
            look=Look(logarithmic=True),
        ),
        curves(
            Facts("Throughput", "trainmon_steps_total", "TrainingSlowdown", "Steps in a second.", "ops"),
            Query(f"run:trainmon_steps:rate5m{{{RUN}}}", "{{run}}"),
        ),
        curves(
            Facts("Ranks that report", "trainmon_world_size", "RankMetricsMissing", "Here: those that report.", "none"),
            Query(f"run:trainmon_ranks:count{{{RUN}}}", "{{run}}"),
        ),
    ]
