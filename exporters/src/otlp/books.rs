//! The monitor's own account: its books at the step's end, and those of others as they are when the step is encoded.

use std::sync::atomic::Ordering;

use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use trainmon_core::catalog::{
    ALERT_OVERFLOW, ALERTS, ALERTS_LOST, GRAD_NORM_SPIKES, JOURNAL_BYTES, JOURNAL_ERRORS, OVERHEAD_BUDGET,
    RECORDS_ACCEPTED, RECORDS_DROPPED, RECORDS_EXPORTED, RECORDS_NOT_SAMPLED, RECORDS_OBSERVED, SAMPLING,
    UPDATE_NORM_SPIKES,
};
use trainmon_core::{AlertBook, AlertRule, DropReason, StepBatch};

use super::points::{Points, Times};
use super::resource::text;
use crate::{JournalSource, SinkSource, Sources};

/// The `sink` attribute of the queue from the training thread to the worker.
const WORKER: &str = "worker";

/// Gives the points of the account. The gradient norm's z-score is not among them: its book has the newest step's only.
pub(crate) fn push_books(points: &mut Points, times: Times, batch: &StepBatch, sources: &Sources) {
    let Sources { ledger: _, worker_queue: _, sinks, journal, statistics: _, overhead_budget, alerts } = sources;
    push_records(points, times, batch, sinks);
    push_alerts(points, times, alerts);
    if let Some(JournalSource { bytes, errors }) = journal {
        points.sum(&JOURNAL_BYTES, times, Vec::new(), bytes.load(Ordering::Relaxed));
        points.sum(&JOURNAL_ERRORS, times, Vec::new(), errors.load(Ordering::Relaxed));
    }
    if let Some(budget) = overhead_budget {
        points.gauge(&OVERHEAD_BUDGET, times.now, Vec::new(), Value::AsDouble(*budget));
    }
    points.gauge(&SAMPLING, times.now, Vec::new(), Value::AsDouble(batch.sampling_ratio()));
}

fn push_alerts(points: &mut Points, times: Times, alerts: &AlertBook) {
    let book = alerts.snapshot();
    for rule in AlertRule::ALL {
        points.sum(&ALERTS, times, vec![text("rule", rule.name())], book.findings_of(rule));
    }
    for (metric, total) in [
        (&GRAD_NORM_SPIKES, book.grad_norm_spikes),
        (&UPDATE_NORM_SPIKES, book.update_norm_spikes),
        (&ALERTS_LOST, book.lost),
        (&ALERT_OVERFLOW, book.series_overflow),
    ] {
        points.sum(metric, times, Vec::new(), total);
    }
}

fn push_records(points: &mut Points, times: Times, batch: &StepBatch, sinks: &[SinkSource]) {
    let books = &batch.books;
    let sinks: Vec<_> = sinks.iter().map(|sink| (sink.name, sink.ledger.snapshot())).collect();
    let of = |sink: &str| vec![text("sink", sink)];
    points.sum(&RECORDS_OBSERVED, times, Vec::new(), books.observed);
    points.sum(&RECORDS_NOT_SAMPLED, times, Vec::new(), books.not_sampled);
    points.sum(&RECORDS_ACCEPTED, times, of(WORKER), books.accepted);
    for (name, books) in &sinks {
        points.sum(&RECORDS_ACCEPTED, times, of(name), books.accepted);
    }
    for (name, books) in &sinks {
        points.sum(&RECORDS_EXPORTED, times, of(name), books.exported);
    }
    let lost = |sink: &str, reason: &str| vec![text("sink", sink), text("reason", reason)];
    for reason in DropReason::ALL {
        points.sum(&RECORDS_DROPPED, times, lost(WORKER, reason.name()), books.dropped[reason as usize]);
    }
    for (name, books) in &sinks {
        points.sum(&RECORDS_DROPPED, times, lost(name, DropReason::QueueFull.name()), books.dropped);
        points.sum(&RECORDS_DROPPED, times, lost(name, "failed"), books.failed);
        points.sum(&RECORDS_DROPPED, times, lost(name, "abandoned"), books.abandoned);
    }
}
