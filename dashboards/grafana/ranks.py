"""Ranks and communication: the rank and the operation with a fault."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from grafana.board import Dashboard
from grafana.panels import LIVE_PAGE, Column, Facts, Look, Query, curves, listing
from grafana.queries import RANK, RUN, increase, largest, quantile, rate

_TIME = "trainmon_collective_duration_seconds"
_WORLD = f"max by (run) (trainmon_world_size{{{RUN}}})"


def board() -> Dashboard:
    """The dashboard."""
    made = Dashboard(
        "ranks", "Ranks and communication", "One run, rank by rank: which rank is late, and what the others wait for."
    )
    made.with_variables("run", "rank")
    made.row("Rank by rank", _table())
    made.row("Spread across ranks", *_spread())
    made.row("Collective operations", *_collectives())
    return made


def _table() -> table.Panel:
    by = "by (run, rank, instance)"
    columns = [
        Column("answers", f"max {by} (up{{{RANK}}})", words={0: ("no", "red"), 1: ("yes", "green")}),
        Column("step", f"max {by} (trainmon_step{{{RANK}}})", decimals=0),
        Column(
            "since last step", f"time() - max {by} (trainmon_last_step_timestamp_seconds{{{RANK}}})", "s", 0, (120, 900)
        ),
        Column(
            "time of a step",
            f"max {by} ({rate('trainmon_step_duration_seconds_sum', RANK)}"
            f" / {rate('trainmon_step_duration_seconds_count', RANK)})",
            "s",
        ),
        Column("loss", f"max {by} (trainmon_loss{{{RANK}}})", decimals=4),
        Column("gradient norm", f"max {by} (trainmon_grad_norm{{{RANK}}})", decimals=4),
        Column("host", f"max by (run, rank, instance, host) (trainmon_rank_info{{{RANK}}})", labels_only=True),
    ]
    facts = Facts(
        "Ranks", "trainmon_rank_info", "RankMetricsMissing", "The instance links to its live page.", width=24, height=9
    )
    return listing(facts, ("run", "rank", "instance", "host"), columns, {"instance": LIVE_PAGE})


def _spread() -> list[timeseries.Panel]:
    time = f"{rate('trainmon_step_duration_seconds_sum', RANK)} / {rate('trainmon_step_duration_seconds_count', RANK)}"
    behind = Facts("Steps behind the first rank", "trainmon_step", "TrainingStalled", unit="short")
    spread = Facts("Spread of loss and gradient norm", "trainmon_loss", "TrainingSpike", "Largest less smallest rank.")
    return [
        curves(
            Facts("Time of a step, slowest ranks", "trainmon_step_duration_seconds", "TrainingSlowdown"),
            Query(largest(time), "rank {{rank}}"),
        ),
        curves(
            behind,
            Query(
                largest(f"max by (run) (trainmon_step{{{RUN}}}) - on (run) group_right trainmon_step{{{RANK}}}"),
                "rank {{rank}}",
            ),
        ),
        curves(
            spread,
            Query(f"max(trainmon_loss{{{RANK}}}) - min(trainmon_loss{{{RANK}}})", "loss"),
            Query(f"max(trainmon_grad_norm{{{RANK}}}) - min(trainmon_grad_norm{{{RANK}}})", "gradient norm"),
        ),
        curves(
            Facts("Gradient norm, largest of the ranks", "trainmon_grad_norm", "GradNormMismatch"),
            Query(largest(f"trainmon_grad_norm{{{RANK}}}"), "rank {{rank}}"),
            look=Look(logarithmic=True),
        ),
    ]


def _collectives() -> list[timeseries.Panel]:
    late = Facts("Ranks that come last", _TIME, "CollectiveStraggler", "The late rank spends the least time inside.")
    failed = Facts("Failures", "trainmon_collective_failures_total", "CollectiveFailures", width=8)
    algorithm = (
        f"sum by (op, process_group) ({rate('trainmon_collective_payload_bytes_total', RANK)})"
        f" / sum by (op, process_group) ({rate(f'{_TIME}_sum', RANK)})"
    )
    reduced = 'op="all_reduce",' + RANK
    bus = (
        f"(sum by (run, process_group) ({rate('trainmon_collective_payload_bytes_total', reduced)})"
        f" / sum by (run, process_group) ({rate(f'{_TIME}_sum', reduced)}))"
        f" * on (run) group_left () (2 * (1 - 1 / {_WORLD}))"
    )
    bandwidth = Facts(
        "Bandwidth", "trainmon_collective_payload_bytes_total", "CollectiveStraggler", "Bytes over time inside.", "Bps"
    )
    on_the_bus = Facts(
        "Bus bandwidth of all_reduce",
        "trainmon_collective_payload_bytes_total",
        "CollectiveStraggler",
        "As in nccl-tests, for groups of the whole run: 2(n-1)/n times bytes over time.",
        "Bps",
    )

    def in_a_second(title: str, name: str, runbook: str, unit: str) -> timeseries.Panel:
        facts = Facts(title, name, runbook, "In a second.", unit, width=8)
        return curves(facts, Query(f"sum by (op, process_group) ({rate(name, RANK)})", "{{op}} {{process_group}}"))

    return [
        curves(
            Facts("Latency", _TIME, "CollectiveStraggler"),
            Query(quantile(0.5, _TIME, RANK, "op", "process_group"), "{{op}} {{process_group}} median"),
            Query(quantile(0.99, _TIME, RANK, "op", "process_group"), "{{op}} {{process_group}} 99th percentile"),
            look=Look(logarithmic=True),
        ),
        curves(
            late,
            Query(
                f"bottomk(5, rank:trainmon_collective_duration_seconds:avg10m{{{RUN}}})",
                "{{process_group}} rank {{rank}}",
            ),
            Query(
                f"quantile by (process_group) (0.5, rank:trainmon_collective_duration_seconds:avg10m{{{RUN}}})",
                "{{process_group}} median",
            ),
        ),
        curves(bandwidth, Query(algorithm, "{{op}} {{process_group}}")),
        curves(on_the_bus, Query(bus, "{{process_group}}")),
        in_a_second("Operations", "trainmon_collective_operations_total", "CollectiveFailures", "ops"),
        in_a_second("Bytes", "trainmon_collective_payload_bytes_total", "CollectiveStraggler", "Bps"),
        curves(
            failed,
            Query(
                largest(f"sum by (op, process_group, rank) ({increase('trainmon_collective_failures_total', RANK)})"),
                "{{op}} {{process_group}} rank {{rank}}",
            ),
            look=Look(bars=True),
        ),
        *_waiting(),
    ]


def _waiting() -> list[timeseries.Panel]:
    """Stragglers that the ranks reported, and the time in which they only waited."""
    runbook = "CollectiveStraggler"
    last, lag = "trainmon_collective_straggler_rank", "trainmon_collective_straggler_lag_seconds"
    waited, told = "trainmon_collective_waited_seconds_total", "trainmon_collective_duration_quantile_seconds"
    group = "trainmon_collective_group_info"
    return [
        curves(Facts("Rank that came last", last, runbook), Query(f"{last}{{{RUN}}}", "{{process_group}}")),
        curves(Facts("How late it came", lag, runbook), Query(f"{lag}{{{RUN}}}", "{{process_group}}")),
        curves(
            Facts("Only waited", waited, runbook, "Of a second.", "percentunit", width=8),
            Query(
                largest(f"sum by (op, process_group, rank) ({rate(waited, RANK)})"),
                "{{op}} {{process_group}} rank {{rank}}",
            ),
        ),
        curves(
            Facts("Latency since the start", told, runbook, width=8),
            Query(
                largest(f"max by (op, process_group, share) ({told}{{{RANK}}})"), "{{op}} {{process_group}} {{share}}"
            ),
            look=Look(logarithmic=True),
        ),
        curves(
            Facts("Groups", group, runbook, width=8),
            Query(f"max by (process_group, role) ({group}{{{RUN}}})", "{{process_group}} {{role}}"),
        ),
    ]
