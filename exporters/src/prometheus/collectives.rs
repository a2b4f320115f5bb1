//! Collective operations on the page: counts, sizes and times by operation and group.

use std::fmt::Write as _;
use std::sync::Arc;

use trainmon_core::CollectiveSeries;
use trainmon_core::catalog::{COLLECTIVE_DURATION, COLLECTIVE_FAILURES, COLLECTIVE_OPERATIONS, COLLECTIVE_PAYLOAD};

use super::series::{label_text, push_header, push_sample};
use crate::summary::{COLLECTIVE_SECONDS, collective_durations};

/// Three counters; a histogram's buckets, its sum and its count.
pub(super) const SAMPLES_PER_SERIES: usize = 3 + COLLECTIVE_SECONDS.len() + 3;

/// Puts the families down; none before the first operation.
pub(super) fn push_collectives(page: &mut String, all: &[Arc<CollectiveSeries>]) {
    if all.is_empty() {
        return;
    }
    let labels =
        |series: &CollectiveSeries| label_text(&[("op", series.op().name()), ("process_group", series.group())]);
    let rows: Vec<_> = all.iter().map(|series| (labels(series), series.summary(), series)).collect();
    push_header(page, &COLLECTIVE_OPERATIONS);
    for (labels, summary, _) in &rows {
        push_sample(page, COLLECTIVE_OPERATIONS.name, labels, summary.started as f64);
    }
    push_header(page, &COLLECTIVE_FAILURES);
    for (labels, summary, _) in &rows {
        push_sample(page, COLLECTIVE_FAILURES.name, labels, summary.failed as f64);
    }
    push_header(page, &COLLECTIVE_PAYLOAD);
    for (labels, summary, _) in &rows {
        push_sample(page, COLLECTIVE_PAYLOAD.name, labels, summary.bytes as f64);
    }
    push_header(page, &COLLECTIVE_DURATION);
    for (labels, _, series) in &rows {
        push_histogram(page, labels, series);
    }
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
