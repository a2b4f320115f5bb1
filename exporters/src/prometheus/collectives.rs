//! Collective operations on the metrics page: counts, sizes and times by operation and group.

use std::fmt::Write as _;
use std::sync::Arc;

use trainmon_core::catalog::{
    COLLECTIVE_DURATION, COLLECTIVE_FAILURES, COLLECTIVE_GROUP, COLLECTIVE_OPERATIONS, COLLECTIVE_PAYLOAD,
    COLLECTIVE_QUANTILE, COLLECTIVE_WAITED, STRAGGLER_LAG, STRAGGLER_RANK,
};
use trainmon_core::{CollectiveSeries, CollectiveSummary, ProcessGroup, Straggler};

use super::series::{label_text, push_family, push_header, push_sample};
use crate::summary::{COLLECTIVE_QUANTILES, COLLECTIVE_SECONDS, collective_durations};

/// Four counters; a histogram's buckets, its sum and its count; quantiles.
pub(super) const SAMPLES_PER_SERIES: usize = 4 + COLLECTIVE_SECONDS.len() + 3 + COLLECTIVE_QUANTILES.len();
/// The maximum number of ranks that a group's label lists.
const MOST_RANKS: usize = 16;

/// Writes the groups and their stragglers. Returns the number of samples.
pub(super) fn push_groups(page: &mut String, groups: &[Arc<ProcessGroup>], stragglers: &[Straggler]) -> usize {
    if !groups.is_empty() {
        let of = |group: &Arc<ProcessGroup>| {
            let (role, ranks) = (group.role.as_deref().unwrap_or_default(), ranks_text(group));
            let labels = label_text(&[("process_group", &group.name), ("role", role), ("ranks", &ranks)]);
            (labels, f64::from(group.size))
        };
        push_family(page, &COLLECTIVE_GROUP, groups.iter().map(of));
    }
    if !stragglers.is_empty() {
        let of = |straggler: &Straggler| label_text(&[("process_group", &straggler.group)]);
        push_family(page, &STRAGGLER_RANK, stragglers.iter().map(|it| (of(it), f64::from(it.rank))));
        push_family(page, &STRAGGLER_LAG, stragglers.iter().map(|it| (of(it), it.lag)));
    }
    groups.len() + 2 * stragglers.len()
}

/// `0 1 2`; for a large group, the first, the last and the number.
fn ranks_text(group: &ProcessGroup) -> String {
    let ranks = &group.ranks;
    match (ranks.first(), ranks.last()) {
        (Some(first), Some(last)) if ranks.len() > MOST_RANKS => format!("{first} ... {last} ({})", ranks.len()),
        _ => ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// Writes the families; none before the first operation.
pub(super) fn push_collectives(page: &mut String, all: &[Arc<CollectiveSeries>]) {
    if all.is_empty() {
        return;
    }
    let labels =
        |series: &CollectiveSeries| label_text(&[("op", series.op().name()), ("process_group", series.group())]);
    let rows: Vec<_> = all.iter().map(|series| (labels(series), series.summary(), series)).collect();
    let mut push = |metric, value: fn(&CollectiveSummary) -> f64| {
        push_family(page, metric, rows.iter().map(|(labels, summary, _)| (labels, value(summary))));
    };
    push(&COLLECTIVE_OPERATIONS, |summary| summary.started as f64);
    push(&COLLECTIVE_FAILURES, |summary| summary.failed as f64);
    push(&COLLECTIVE_PAYLOAD, |summary| summary.bytes as f64);
    push_header(page, &COLLECTIVE_DURATION);
    for (labels, _, series) in &rows {
        push_histogram(page, labels, series);
    }
    push_header(page, &COLLECTIVE_QUANTILE);
    for (labels, _, series) in &rows {
        for (quantile, share) in COLLECTIVE_QUANTILES {
            let labels = format!("{labels},share=\"{quantile}\"");
            push_sample(page, COLLECTIVE_QUANTILE.name, &labels, series.quantile(share).as_secs_f64());
        }
    }
    let waited = rows.iter().map(|(labels, summary, _)| (labels, summary.waited.as_secs_f64()));
    push_family(page, &COLLECTIVE_WAITED, waited);
}

fn push_histogram(page: &mut String, labels: &str, series: &CollectiveSeries) {
    let (counts, count, sum) = collective_durations(series);
    let name = COLLECTIVE_DURATION.name;
    let mut bucket = |bound: &str, count: u64| {
        // Writing to a String cannot fail.
        writeln!(page, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}").unwrap_or_default();
    };
    for (bound, count) in COLLECTIVE_SECONDS.iter().zip(counts) {
        bucket(&bound.to_string(), count);
    }
    bucket("+Inf", count);
    push_sample(page, &format!("{name}_sum"), labels, sum.as_secs_f64());
    push_sample(page, &format!("{name}_count"), labels, count as f64);
}
