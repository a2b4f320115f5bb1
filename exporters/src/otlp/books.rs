//! The monitor's own account: its books at the step's end, and those of others as they are when the step is encoded.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use trainmon_core::catalog::{
    ALERT_OVERFLOW, ALERTS, ALERTS_LOST, COLLECTIVE_DURATION, COLLECTIVE_FAILURES, COLLECTIVE_OPERATIONS,
    COLLECTIVE_PAYLOAD, GRAD_NORM_SPIKES, JOURNAL_BYTES, JOURNAL_ERRORS, OVERHEAD_BUDGET, RECORDS_ACCEPTED,
    RECORDS_DROPPED, RECORDS_EXPORTED, RECORDS_NOT_SAMPLED, RECORDS_OBSERVED, SAMPLING, UPDATE_NORM_SPIKES,
};
use trainmon_core::{AlertBook, AlertRule, CollectiveSeries, DropReason, StepBatch};

use super::points::{Points, Times};
use super::resource::text;
use crate::summary::{COLLECTIVE_SECONDS, collective_durations};
use crate::{JournalSource, SinkSource, Sources};

/// The `sink` attribute of the queue from the training thread to the worker.
const WORKER: &str = "worker";

/// Gives the points of the account. The gradient norm's z-score is not among them: its book has the newest step's only.
pub(crate) fn push_books(points: &mut Points, times: Times, batch: &StepBatch, sources: &Sources) {
    let Sources { ledger: _, worker_queue: _, sinks, journal, statistics: _, overhead_budget, alerts, collectives } =
        sources;
    push_records(points, times, batch, sinks);
    push_alerts(points, times, alerts);
    push_collectives(points, times, &collectives.all());
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

fn push_collectives(points: &mut Points, times: Times, all: &[Arc<CollectiveSeries>]) {
    let attributes =
        |series: &CollectiveSeries| vec![text("op", series.op().name()), text("process_group", series.group())];
    let books: Vec<_> = all.iter().map(|series| (series, series.summary())).collect();
    for (series, book) in &books {
        points.sum(&COLLECTIVE_OPERATIONS, times, attributes(series), book.started);
    }
    for (series, book) in &books {
        points.sum(&COLLECTIVE_FAILURES, times, attributes(series), book.failed);
    }
    for (series, book) in &books {
        points.sum(&COLLECTIVE_PAYLOAD, times, attributes(series), book.bytes);
    }
    for series in all {
        let (up_to, count, sum) = collective_durations(series);
        // Ours ascend; a histogram point's buckets stand for themselves.
        let all = up_to.into_iter().chain([count]);
        let mut before = 0;
        let buckets = all.map(|up_to| up_to - std::mem::replace(&mut before, up_to)).collect();
        let sum = sum.as_secs_f64();
        points.histogram(&COLLECTIVE_DURATION, times, attributes(series), &COLLECTIVE_SECONDS, buckets, sum);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use trainmon_core::{CollectiveBook, CollectiveOp};

    use super::*;

    #[test]
    fn a_collectives_buckets_stand_for_themselves_and_add_up() {
        let book = CollectiveBook::default();
        let series = book.series(CollectiveOp::AllReduce, "dp");
        for duration in [Duration::from_micros(300), Duration::from_micros(400), Duration::from_mins(2)] {
            series.start(1024);
            series.finish(duration);
        }
        let mut points = Points::default();
        push_collectives(&mut points, Times { start: 1, now: 2 }, &book.all());
        let metrics = points.into_metrics();
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        let Some(Data::Histogram(histogram)) = &metrics[3].data else { panic!("{:?}", metrics[3]) };
        let point = &histogram.data_points[0];
        let filled: Vec<_> = point.bucket_counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        // Above 250 us, up to 1 ms; and above a minute.
        assert_eq!((filled, point.count), (vec![(4, &2), (14, &1)], 3));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.sum, Some(120.000_7));
    }
}
