"""Run overview: whether this run is healthy, and if not, since when."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries

from grafana.board import Dashboard
from grafana.panels import LIVE_PAGE, Column, Facts, Look, Query, alert_counts, curves, listing, number
from grafana.queries import RANK, RUN, firing, increase, largest, quantile, rate


def board() -> Dashboard:
    """The dashboard."""
    made = Dashboard("run-overview", "Run overview", "One run: is it healthy, and if not, since which step.")
    made.with_variables("run", "rank")
    spiked = f"max by (run) ({increase('trainmon_grad_norm_spikes_total', RUN)}) > 0"
    made.with_marks("Spikes", spiked, "the gradient norm of {{run}} spiked")
    made.row("Now", *_now())
    made.row("Numbers", *_numbers())
    made.row("Faults found", _first_moves(), *_faults())
    made.folded("More numbers", *_more_numbers())
    made.folded("Speed and cost", *_speed())
    return made


def _now() -> list[stat.Panel]:
    def tile(title: str, about: str, runbook: str, unit: str = "", note: str = "") -> Facts:
        return Facts(title, about, runbook, note, unit, width=4, height=5)

    alerts = tile("Alerts firing", "trainmon_alerts_total", "TrainingNonFinite", "none", "Here: alerts in Prometheus.")
    age = tile("Since the last step", "trainmon_last_step_timestamp_seconds", "TrainingStalled", "s")
    ranks = tile("Ranks that report", "trainmon_world_size", "RankMetricsMissing", "none", "Here: those that report.")
    cost = tile("Cost of measuring", "trainmon_collect_duration_seconds", "MonitorOverheadHigh", "percentunit")
    return [
        alert_counts(
            alerts,
            Query(f"count({firing('page')}) or vector(0)", "pages"),
            Query(f"count({firing('ticket')}) or vector(0)", "tickets"),
        ),
        number(tile("Step now", "trainmon_step", "TrainingStalled", "none"), Query(f"max(trainmon_step{{{RUN}}})")),
        number(tile("Loss now", "trainmon_loss", "TrainingNonFinite"), Query(f"avg(trainmon_loss{{{RANK}}})")),
        number(age, Query(f"max(run:trainmon_last_step_age_seconds:max{{{RUN}}})"), (120, 900)),
        number(ranks, Query(f"sum(run:trainmon_ranks:count{{{RUN}}})")),
        number(cost, Query(f"max(rank:trainmon_overhead:ratio10m{{{RANK}}})"), (0.02, 0.05)),
    ]


def _numbers() -> list[timeseries.Panel]:
    norm = Facts(
        "Gradient norm", "trainmon_grad_norm", "GradNormSpike", "Red points: steps that spiked, at their height."
    )
    marked = (
        f"max by (run) (trainmon_grad_norm_interval_max{{{RANK}}})"
        f" and on (run) max by (run) ({increase('trainmon_grad_norm_spikes_total', RANK)}) > 0"
    )
    ratio = Facts(
        "Update ratio", "trainmon_update_ratio", "UpdateRatioOutOfRange", "0.1 % is usual, 1 % for long is much."
    )
    return [
        curves(
            Facts("Loss", "trainmon_loss", "TrainingSpike", "Mean, smallest and largest of the ranks."),
            Query(f"avg(trainmon_loss{{{RANK}}})", "mean"),
            Query(f"min(trainmon_loss{{{RANK}}})", "smallest"),
            Query(f"max(trainmon_loss{{{RANK}}})", "largest"),
        ),
        curves(
            norm,
            Query(f"max by (run) (trainmon_grad_norm{{{RANK}}})", "last step"),
            Query(f"max by (run) (trainmon_grad_norm_interval_max{{{RANK}}})", "largest of the window"),
            Query(marked, "spike"),
            look=Look(logarithmic=True, marks="spike"),
        ),
        curves(
            ratio,
            Query(f"max by (agg) (trainmon_update_ratio{{{RANK}}})", "{{agg}}"),
            look=Look(logarithmic=True, limit=0.01),
        ),
        curves(
            Facts("Learning rate", "trainmon_learning_rate", "UpdateRatioOutOfRange"),
            Query(f"max by (run) (trainmon_learning_rate{{{RANK}}})", "learning rate"),
        ),
    ]


def _more_numbers() -> list[timeseries.Panel]:
    drift = Facts(
        "Gradient norm over hours", "trainmon_grad_norm", "GradNormDrift", "Mean of an hour, and six hours before."
    )
    own = Facts("The script's own numbers", "trainmon_scalar", "TrainingSpike")
    check = Facts("Gradient norm, ours over the framework's", "trainmon_grad_norm_self_check_ratio", "GradNormMismatch")
    return [
        curves(
            Facts("Step of the largest gradient norm", "trainmon_grad_norm_interval_max_step", "GradNormSpike"),
            Query(f"max by (run) (trainmon_grad_norm_interval_max_step{{{RANK}}})", "largest of the window"),
            Query(f"max by (run) (trainmon_step{{{RANK}}})", "now"),
        ),
        curves(
            Facts("Distance from the usual", "trainmon_grad_norm_zscore", "GradNormSpike"),
            Query(largest(f"trainmon_grad_norm_zscore{{{RANK}}}"), "rank {{rank}}"),
            look=Look(limit=4),
        ),
        curves(
            drift,
            Query(f"run:trainmon_grad_norm:avg1h{{{RUN}}}", "last hour"),
            Query(f"run:trainmon_grad_norm:avg1h{{{RUN}}} offset 6h", "six hours before"),
        ),
        curves(
            Facts("Update norm", "trainmon_update_norm", "UpdateNormSpike"),
            Query(f"max by (run) (trainmon_update_norm{{{RANK}}})", "update"),
            look=Look(logarithmic=True),
        ),
        curves(check, Query(largest(f"trainmon_grad_norm_self_check_ratio{{{RANK}}}"), "rank {{rank}}")),
        curves(own, Query(f"avg by (name) (trainmon_scalar{{{RANK}}})", "{{name}}")),
    ]


def _first_moves() -> table.Panel:
    labels = ("rule", "signal", "layer", "tensor_name", "rank", "instance")
    # The fraction is the place in the order of the step.
    step = f"floor(max by ({', '.join(labels)}) (trainmon_alert_first_move{{{RANK}}}))"
    note = "Empty if there is none."
    facts = Facts("What moved first", "trainmon_alert_first_move", "TrainingSpike", note, width=24, height=6)
    return listing(facts, labels, [Column("step", step, decimals=0)], {"instance": LIVE_PAGE})


def _faults() -> list[timeseries.Panel]:
    bars = Look(bars=True, stacked=True, calculations=("sum",))
    found = Facts("Findings of the alert rules", "trainmon_alerts_total", "TrainingSpike", unit="short", width=8)
    nonfinite = Facts("Elements that are not finite", "trainmon_nonfinite_elements_total", "TrainingNonFinite", width=8)
    skipped = Facts("Steps left out", "trainmon_skipped_steps_total", "TrainingSkippedSteps", width=8)
    spikes = Facts("Spikes of gradient and update", "trainmon_grad_norm_spikes_total", "GradNormSpikeBurst", width=12)
    mismatches = Facts("Two norms that disagree", "trainmon_grad_norm_mismatches_total", "GradNormMismatch", width=12)
    return [
        curves(found, Query(f"sum by (rule) ({increase('trainmon_alerts_total', RANK)})", "{{rule}}"), look=bars),
        curves(
            nonfinite,
            Query(f"sum by (tensor) ({increase('trainmon_nonfinite_elements_total', RANK)})", "{{tensor}}"),
            look=bars,
        ),
        curves(
            skipped, Query(f"max by (run) ({increase('trainmon_skipped_steps_total', RANK)})", "left out"), look=bars
        ),
        curves(
            spikes,
            Query(f"max by (run) ({increase('trainmon_grad_norm_spikes_total', RANK)})", "gradient"),
            Query(f"max by (run) ({increase('trainmon_update_norm_spikes_total', RANK)})", "update"),
            look=bars,
        ),
        curves(
            mismatches,
            Query(f"max by (run) ({increase('trainmon_grad_norm_mismatches_total', RANK)})", "steps"),
            look=bars,
        ),
    ]


def _speed() -> list[timeseries.Panel]:
    time = "trainmon_step_duration_seconds"
    cost = Facts(
        "Cost of measuring, by phase",
        "trainmon_collect_duration_seconds",
        "MonitorOverheadHigh",
        "As a share of the step time.",
        "percentunit",
    )
    phases = (
        f"sum by (phase) ({rate('trainmon_collect_duration_seconds_sum', RANK)})"
        f" / on () group_left sum({rate(f'{time}_sum', RANK)})"
    )
    return [
        curves(
            Facts("Time of a step", time, "TrainingSlowdown"),
            Query(quantile(0.5, time, RANK), "median"),
            Query(quantile(0.99, time, RANK), "99th percentile"),
            Query(f"max(run:trainmon_step_duration_seconds:avg10m{{{RUN}}})", "mean of ten minutes, slowest rank"),
        ),
        curves(
            Facts("Throughput", "trainmon_steps_total", "TrainingSlowdown", unit="ops", note="In a second."),
            Query(f"max by (run) ({rate('trainmon_steps_total', RANK)})", "steps per second"),
            Query(f"run:trainmon_steps:rate5m{{{RUN}}}", "mean of five minutes"),
        ),
        curves(
            Facts("Progress", "trainmon_step", "TrainingStalled"),
            Query(f"max by (run) (trainmon_step{{{RANK}}})", "first rank"),
            Query(f"min by (run) (trainmon_step{{{RANK}}})", "last rank"),
        ),
        curves(cost, Query(phases, "{{phase}}"), look=Look(stacked=True, bounds=(0, None))),
    ]
