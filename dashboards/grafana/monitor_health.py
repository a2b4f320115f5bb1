"""Monitor health: lost data, and the cost of measuring."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from grafana.board import Dashboard
from grafana.panels import LIVE_PAGE, Column, Facts, Look, Query, curves, listing
from grafana.queries import RANK, increase, largest, quantile, rate


def board() -> Dashboard:
    """The dashboard."""
    made = Dashboard("monitor-health", "Monitor health", "Data that the monitor lost, and its cost to the training.")
    made.with_variables("run", "rank")
    made.row("Losses", *_losses())
    made.row("Records and queues", *_queues())
    made.row("Cost", *_cost())
    made.row("The page", *_page(), _versions())
    return made


def _losses() -> list[timeseries.Panel]:
    bars = Look(bars=True, stacked=True, calculations=("sum",))

    def lost(title: str, name: str, runbook: str, by: str = "rank", legend: str = "rank {{rank}}") -> timeseries.Panel:
        facts = Facts(title, name, runbook, width=8)
        return curves(facts, Query(largest(f"sum by ({by}) ({increase(name, RANK)})"), legend), look=bars)

    return [
        lost(
            "Records lost",
            "trainmon_records_dropped_total",
            "MonitorRecordsDropped",
            "sink, reason",
            "{{sink}} {{reason}}",
        ),
        lost("Alerts lost", "trainmon_alerts_lost_total", "MonitorAlertsLost"),
        lost("Values no rule looked at", "trainmon_alert_values_ignored_total", "MonitorAlertValuesIgnored"),
        lost("Values without room on the page", "trainmon_series_overflow_total", "MonitorSeriesOverflow"),
        lost("Journal: failed writes", "trainmon_journal_errors_total", "MonitorJournalErrors"),
        lost("Tensors not measured", "trainmon_records_not_sampled_total", "MonitorOverheadHigh"),
    ]


def _queues() -> list[timeseries.Panel]:
    fill = Facts("Queues", "trainmon_queue_length", "MonitorQueueFilling", "As a share of the capacity.", "percentunit")
    filled = f"max by (sink) (trainmon_queue_length{{{RANK}}} / trainmon_queue_capacity{{{RANK}}})"
    flow = Facts("Records", "trainmon_records_observed_total", "MonitorRecordsDropped", "In a second.", "ops")
    journal = Facts("Journal", "trainmon_journal_bytes_total", "MonitorJournalErrors", "In a second.", "Bps")
    return [
        curves(fill, Query(filled, "{{sink}}"), look=Look(bounds=(0, 1), limit=0.8)),
        curves(
            flow,
            Query(f"sum({rate('trainmon_records_observed_total', RANK)})", "shown"),
            Query(f"sum by (sink) ({rate('trainmon_records_accepted_total', RANK)})", "meant for {{sink}}"),
            Query(f"sum by (sink) ({rate('trainmon_records_exported_total', RANK)})", "delivered by {{sink}}"),
        ),
        curves(
            journal, Query(largest(f"sum by (rank) ({rate('trainmon_journal_bytes_total', RANK)})"), "rank {{rank}}")
        ),
        curves(
            Facts("Tensor memory read", "trainmon_bytes_read_total", "MonitorOverheadHigh", "In a second.", "Bps"),
            Query(largest(f"sum by (rank) ({rate('trainmon_bytes_read_total', RANK)})"), "rank {{rank}}"),
        ),
    ]


def _cost() -> list[timeseries.Panel]:
    time = "trainmon_collect_duration_seconds"
    share = Facts(
        "Share of the step time", time, "MonitorOverheadHigh", "Of each rank, over ten minutes.", "percentunit", width=8
    )
    budget = f"max(trainmon_overhead_budget_ratio{{{RANK}}})"
    sampled = Facts("Share of layers measured", "trainmon_sampling_ratio", "MonitorOverheadHigh", width=8)
    return [
        curves(
            share,
            Query(largest(f"rank:trainmon_overhead:ratio10m{{{RANK}}}"), "rank {{rank}}"),
            Query(budget, "budget"),
            look=Look(bounds=(0, None)),
        ),
        curves(
            Facts("Time taken from a step", time, "MonitorOverheadHigh", "99th percentile.", width=8),
            Query(quantile(0.99, time, RANK, "phase"), "{{phase}}"),
        ),
        curves(
            sampled, Query(f"bottomk(20, trainmon_sampling_ratio{{{RANK}}})", "rank {{rank}}"), look=Look(bounds=(0, 1))
        ),
    ]


def _page() -> list[timeseries.Panel]:
    series = Facts("Series", "trainmon_series", "MonitorSeriesOverflow")
    return [
        curves(
            series,
            Query(f"max(trainmon_series{{{RANK}}})", "served"),
            Query(f"min(trainmon_series_limit{{{RANK}}})", "limit"),
            look=Look(logarithmic=True),
        ),
        curves(
            Facts("Time to render the page", "trainmon_scrape_duration_seconds", "MonitorOverheadHigh"),
            Query(quantile(0.5, "trainmon_scrape_duration_seconds", RANK), "median"),
            Query(quantile(0.99, "trainmon_scrape_duration_seconds", RANK), "99th percentile"),
        ),
    ]


def _versions() -> table.Panel:
    by = "by (run, rank, instance, version)"
    columns = [
        Column("versions", f"max {by} (trainmon_build_info{{{RANK}}})", labels_only=True),
        Column("series", f"max by (run, rank, instance) (trainmon_series{{{RANK}}})", decimals=0),
    ]
    facts = Facts("Versions", "trainmon_build_info", "RankMetricsMissing", width=24, height=6)
    return listing(facts, ("run", "rank", "instance", "version"), columns, {"instance": LIVE_PAGE})
