//! The monitor's own metrics: its counts at the step's end, and other counts when the step is encoded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use trainmon_core::catalog::{
    ALERT_FIRST_MOVE, ALERT_OVERFLOW, ALERTS, ALERTS_LOST, COLLECTIVE_DURATION, COLLECTIVE_FAILURES,
    COLLECTIVE_OPERATIONS, COLLECTIVE_PAYLOAD, COLLECTIVE_QUANTILE, COLLECTIVE_WAITED, GRAD_NORM_SPIKES,
    GRAD_NORM_ZSCORE, JOURNAL_BYTES, JOURNAL_ERRORS, OVERHEAD_BUDGET, QUEUE_CAPACITY, QUEUE_LENGTH, RECORDS_ACCEPTED,
    RECORDS_DROPPED, RECORDS_EXPORTED, RECORDS_NOT_SAMPLED, RECORDS_OBSERVED, SAMPLING, STRAGGLER_LAG, STRAGGLER_RANK,
    UPDATE_NORM_SPIKES,
};
use trainmon_core::{AlertMark, AlertRule, AlertTotals, CollectiveSeries, DropReason, Step, StepBatch, Straggler};

use super::points::{Points, Times};
use super::resource::text;
use crate::summary::{COLLECTIVE_QUANTILES, COLLECTIVE_SECONDS, collective_durations};
use crate::{JournalSource, QueueGauge, SinkSource, Sources};

/// The `sink` attribute of the queue from the training thread to the worker.
const WORKER: &str = "worker";

/// Adds the points of the monitor's counts. Includes the gradient norm's z-score only for the newest step that the
/// rules have evaluated, because only that step's value is kept.
pub(crate) fn push_self_metrics(points: &mut Points, times: Times, batch: &StepBatch, sources: &Sources) {
    let Sources {
        ledger: _,
        worker_queue,
        sinks,
        journal,
        statistics: _,
        overhead_budget,
        alerts,
        collectives,
        has_account,
        parts: _,
    } = sources;
    if *has_account {
        push_records(points, times, batch, sinks);
    }
    push_queues(points, times, worker_queue, sinks);
    push_alerts(points, times, batch.step, alerts);
    push_collectives(points, times, &collectives.all());
    push_stragglers(points, times, &collectives.stragglers());
    if let Some(JournalSource { bytes, errors }) = journal {
        points.sum(&JOURNAL_BYTES, times, Vec::new(), bytes.load(Ordering::Relaxed));
        points.sum(&JOURNAL_ERRORS, times, Vec::new(), errors.load(Ordering::Relaxed));
    }
    if let Some(budget) = overhead_budget {
        points.gauge(&OVERHEAD_BUDGET, times.now, Vec::new(), Value::AsDouble(*budget));
        points.gauge(&SAMPLING, times.now, Vec::new(), Value::AsDouble(batch.sampling_ratio()));
    }
}

/// Adds the fill levels of the queues; those without capacity are skipped. A step from the journal gets the levels at
/// the time of encoding.
fn push_queues(points: &mut Points, times: Times, worker: &QueueGauge, sinks: &[SinkSource]) {
    let all = || [(WORKER, worker)].into_iter().chain(sinks.iter().map(|sink| (sink.name, &sink.queue)));
    let queues = || all().filter(|(_, queue)| queue.capacity > 0);
    let number = |count: usize| Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX));
    for (name, queue) in queues() {
        points.gauge(&QUEUE_LENGTH, times.now, vec![text("sink", name)], number((queue.length)()));
    }
    for (name, queue) in queues() {
        points.gauge(&QUEUE_CAPACITY, times.now, vec![text("sink", name)], number(queue.capacity));
    }
}

fn push_alerts(points: &mut Points, times: Times, step: Step, alerts: &AlertTotals) {
    let totals = alerts.snapshot();
    for rule in AlertRule::ALL {
        points.sum(&ALERTS, times, vec![text("rule", rule.name())], totals.findings_of(rule));
    }
    for (metric, total) in [
        (&GRAD_NORM_SPIKES, totals.grad_norm_spikes),
        (&UPDATE_NORM_SPIKES, totals.update_norm_spikes),
        (&ALERTS_LOST, totals.lost),
        (&ALERT_OVERFLOW, totals.series_overflow),
    ] {
        points.sum(metric, times, Vec::new(), total);
    }
    for (rule, mark) in alerts.marks().now(Instant::now()) {
        let value = Value::AsDouble(mark.order());
        let AlertMark { signal, layer, name, .. } = mark;
        let attributes =
            [("rule", rule.name().to_owned()), ("signal", signal), ("layer", layer), ("tensor_name", name)];
        points.gauge(&ALERT_FIRST_MOVE, times.now, attributes.map(|(key, value)| text(key, value)).to_vec(), value);
    }
    if let Some(zscore) = totals.grad_norm_zscore_of(step) {
        points.gauge(&GRAD_NORM_ZSCORE, times.now, Vec::new(), Value::AsDouble(zscore));
    }
}

fn push_collectives(points: &mut Points, times: Times, all: &[Arc<CollectiveSeries>]) {
    let attributes =
        |series: &CollectiveSeries| vec![text("op", series.op().name()), text("process_group", series.group())];
    let counts: Vec<_> = all.iter().map(|series| (series, series.summary())).collect();
    for (series, totals) in &counts {
        points.sum(&COLLECTIVE_OPERATIONS, times, attributes(series), totals.started);
    }
    for (series, totals) in &counts {
        points.sum(&COLLECTIVE_FAILURES, times, attributes(series), totals.failed);
    }
    for (series, totals) in &counts {
        points.sum(&COLLECTIVE_PAYLOAD, times, attributes(series), totals.bytes);
    }
    for (series, totals) in &counts {
        let waited = totals.waited.as_secs_f64();
        points.sum_of_seconds(&COLLECTIVE_WAITED, times, attributes(series), waited);
    }
    for series in all {
        for (quantile, share) in COLLECTIVE_QUANTILES {
            let mut attributes = attributes(series);
            attributes.push(text("share", quantile));
            let seconds = series.quantile(share).as_secs_f64();
            points.gauge(&COLLECTIVE_QUANTILE, times.now, attributes, Value::AsDouble(seconds));
        }
    }
    for series in all {
        let (up_to, count, sum) = collective_durations(series);
        // Input counts are cumulative; a histogram point's buckets are separate.
        let all = up_to.into_iter().chain([count]);
        let mut before = 0;
        let buckets = all.map(|up_to| up_to - std::mem::replace(&mut before, up_to)).collect();
        let sum = sum.as_secs_f64();
        points.histogram(&COLLECTIVE_DURATION, times, attributes(series), &COLLECTIVE_SECONDS, buckets, sum);
    }
}

/// Adds the known straggler of each group.
fn push_stragglers(points: &mut Points, times: Times, stragglers: &[Straggler]) {
    let of = |straggler: &Straggler| vec![text("process_group", &*straggler.group)];
    for straggler in stragglers {
        points.gauge(&STRAGGLER_RANK, times.now, of(straggler), Value::AsInt(i64::from(straggler.rank)));
    }
    for straggler in stragglers {
        points.gauge(&STRAGGLER_LAG, times.now, of(straggler), Value::AsDouble(straggler.lag));
    }
}

fn push_records(points: &mut Points, times: Times, batch: &StepBatch, sinks: &[SinkSource]) {
    let counts = &batch.counts;
    let sinks: Vec<_> = sinks.iter().map(|sink| (sink.name, sink.ledger.snapshot())).collect();
    let of = |sink: &str| vec![text("sink", sink)];
    points.sum(&RECORDS_OBSERVED, times, Vec::new(), counts.observed);
    points.sum(&RECORDS_NOT_SAMPLED, times, Vec::new(), counts.not_sampled);
    points.sum(&RECORDS_ACCEPTED, times, of(WORKER), counts.accepted);
    for (name, counts) in &sinks {
        points.sum(&RECORDS_ACCEPTED, times, of(name), counts.accepted);
    }
    for (name, counts) in &sinks {
        points.sum(&RECORDS_EXPORTED, times, of(name), counts.exported);
    }
    let lost = |sink: &str, reason: &str| vec![text("sink", sink), text("reason", reason)];
    for reason in DropReason::ALL {
        points.sum(&RECORDS_DROPPED, times, lost(WORKER, reason.name()), counts.dropped[reason as usize]);
    }
    for (name, counts) in &sinks {
        points.sum(&RECORDS_DROPPED, times, lost(name, DropReason::QueueFull.name()), counts.dropped);
        points.sum(&RECORDS_DROPPED, times, lost(name, "failed"), counts.failed);
        points.sum(&RECORDS_DROPPED, times, lost(name, "abandoned"), counts.abandoned);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use opentelemetry_proto::tonic::common::v1::KeyValue;
    use opentelemetry_proto::tonic::metrics::v1::Metric;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use trainmon_core::{CollectiveOp, CollectiveTotals};

    use super::*;

    #[test]
    fn a_collectives_buckets_stand_for_themselves_and_add_up() {
        let totals = CollectiveTotals::default();
        let series = totals.series(CollectiveOp::AllReduce, "dp");
        for duration in [Duration::from_micros(300), Duration::from_micros(400), Duration::from_mins(2)] {
            series.start(1024);
            series.finish(duration, duration);
        }
        let mut points = Points::default();
        push_collectives(&mut points, Times { start: 1, now: 2 }, &totals.all());
        let metrics = points.into_metrics();
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        let Some(Data::Histogram(histogram)) = &metrics[5].data else { panic!("{:?}", metrics[5]) };
        let point = &histogram.data_points[0];
        let filled: Vec<_> = point.bucket_counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        // Above 250 us, up to 1 ms; and above a minute.
        assert_eq!((filled, point.count), (vec![(4, &2), (14, &1)], 3));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.sum, Some(120.000_7));
    }

    #[test]
    fn a_collectives_quantiles_are_its_durations() {
        let totals = CollectiveTotals::default();
        let series = totals.series(CollectiveOp::AllReduce, "dp");
        // Of a hundred 89 take 300 us, 10 take 400, one two minutes.
        for number in 0..100 {
            let micros = if number < 89 { 300 } else { 400 };
            let duration = if number == 99 { Duration::from_mins(2) } else { Duration::from_micros(micros) };
            series.start(1024);
            series.finish(duration, duration);
        }
        let mut points = Points::default();
        push_collectives(&mut points, Times { start: 1, now: 2 }, &totals.all());
        let metrics = points.into_metrics();
        let metric = metrics.iter().find(|metric| metric.name == COLLECTIVE_QUANTILE.otel_name).unwrap();
        let Some(Data::Gauge(gauge)) = &metric.data else { panic!("{metric:?}") };
        let found = gauge.data_points.iter().map(|point| {
            let share = point.attributes.last().cloned();
            let Some(Value::AsDouble(seconds)) = point.value else { panic!("{point:?}") };
            (share, seconds)
        });
        let expected = [("0.5", 300e-6), ("0.9", 400e-6), ("0.99", 400e-6)];
        assert_eq!(gauge.data_points.len(), expected.len());
        for ((share, seconds), (name, near)) in found.zip(expected) {
            assert_eq!(share, Some(text("share", name)));
            assert!((seconds - near).abs() <= near / 100.0, "{name}: {seconds}, within 1 % of {near}");
        }
    }

    /// Metric, `sink` and value of every gauge.
    fn gauges(points: Points) -> Vec<(String, Option<KeyValue>, Option<Value>, u64)> {
        let points_of = |metric: Metric| {
            let Some(Data::Gauge(gauge)) = metric.data else { return Vec::new() };
            let each = gauge.data_points.into_iter();
            each.map(|point| {
                (metric.name.clone(), point.attributes.first().cloned(), point.value, point.time_unix_nano)
            })
            .collect()
        };
        points.into_metrics().into_iter().flat_map(points_of).collect()
    }

    #[test]
    fn queues_are_told_as_they_are_when_the_step_is_encoded() {
        let waiting = Arc::new(AtomicUsize::new(0));
        let of_sink = Arc::clone(&waiting);
        let queue = QueueGauge { length: Arc::new(move || of_sink.load(Ordering::Relaxed)), capacity: 8 };
        let sinks = [SinkSource { name: "csv", ledger: Arc::default(), queue }];
        let worker = QueueGauge { length: Arc::new(|| 2), capacity: 16 };
        for length in [0, 5] {
            waiting.store(length, Ordering::Relaxed);
            let mut points = Points::default();
            push_queues(&mut points, Times { start: 1, now: 7 }, &worker, &sinks);
            let expected = [
                ("training.monitor.queue.length", "worker", 2),
                ("training.monitor.queue.length", "csv", length as i64),
                ("training.monitor.queue.capacity", "worker", 16),
                ("training.monitor.queue.capacity", "csv", 8),
            ];
            let expected = expected
                .map(|(name, sink, value)| (name.to_owned(), Some(text("sink", sink)), Some(Value::AsInt(value)), 7));
            assert_eq!(gauges(points), expected);
        }
    }

    #[test]
    fn a_zscore_is_sent_with_the_step_it_is_of_and_with_no_other() {
        let totals = AlertTotals::default();
        let sent = |step: u64| {
            let mut points = Points::default();
            push_alerts(&mut points, Times { start: 1, now: 7 }, Step(step), &totals);
            gauges(points)
        };
        assert_eq!(sent(4), []);
        totals.set_grad_norm_zscore(Step(5), 2.5);
        assert_eq!(sent(4), [], "the alerts are a step ahead");
        let of_step = ("training.grad.norm.zscore".to_owned(), None, Some(Value::AsDouble(2.5)), 7);
        assert_eq!(sent(5), [of_step]);
        assert_eq!(sent(6), [], "this step has none");
        totals.set_grad_norm_zscore(Step(7), f64::NAN);
        assert_eq!(sent(7), []);
    }

    #[test]
    fn what_moved_first_is_sent_while_it_is_shown() {
        let alert = serde_json::json!({
            "rule": "NonFinite", "severity": "critical", "phase": "begins", "findings": 1, "step": 300, "rank": 1,
            "time": "2026-11-23T04:38:12Z", "value": "NaN", "expected": {}, "message": "",
            "series": {"scope": "global", "name": "", "signal": "grad", "statistic": "norm", "micro_step": 0, "vpp_stage": 0},
            "moved_first": {"step": 299, "signal": "grad", "layer": "h.1", "tensor": "h.1.w", "value": "NaN", "expected": 1.0,
                "before_reduction": true},
        });
        let totals = AlertTotals::default();
        totals.marks().take(&serde_json::from_value(alert).unwrap(), Instant::now());
        let mut points = Points::default();
        push_alerts(&mut points, Times { start: 1, now: 7 }, Step(301), &totals);
        let sent = points.into_metrics().into_iter().find(|metric| metric.name == "training.alert.first_move").unwrap();
        let Some(Data::Gauge(gauge)) = sent.data else { panic!("{:?}", sent.data) };
        let expected = [
            text("rule", "NonFinite"),
            text("signal", "gradient before reduction"),
            text("layer", "h.1"),
            text("tensor_name", "h.1.w"),
        ];
        assert_eq!(gauge.data_points[0].attributes, expected);
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(299.07)));
    }
}
