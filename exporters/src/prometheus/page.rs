//! Renders the metrics page and the JSON pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use trainmon_core::catalog::{
    ALERT_FIRST_MOVE, ALERT_OVERFLOW, ALERTS, ALERTS_LOST, BUILD_INFO, GRAD_NORM_INTERVAL_MAX,
    GRAD_NORM_INTERVAL_MAX_STEP, GRAD_NORM_SPIKES, GRAD_NORM_ZSCORE, JOURNAL_BYTES, JOURNAL_ERRORS, QUEUE_CAPACITY,
    QUEUE_LENGTH, RANK_INFO, RECORDS_ACCEPTED, RECORDS_DROPPED, RECORDS_EXPORTED, RECORDS_NOT_SAMPLED,
    RECORDS_OBSERVED, SERIES, SERIES_LIMIT, UPDATE_NORM_SPIKES, WORLD_SIZE,
};
use trainmon_core::{AlertMark, AlertRule, DropReason};

use super::collectives::{SAMPLES_PER_SERIES, push_collectives, push_groups};
use super::counters::Counters;
use super::metric_table::{Current, Snapshot};
use super::series::{label_text, push_family, push_single};
use crate::{JournalSource, RunInfo, Sources};

/// The `sink` label of the queue from the training thread to the worker.
const WORKER: &str = "worker";

/// The sources of a page. Shared by the exporter's thread and the server's.
#[derive(Debug)]
pub(crate) struct PageSource {
    pub(crate) run: RunInfo,
    pub(crate) host: String,
    pub(crate) series_limit: usize,
    pub(crate) sources: Sources,
    pub(crate) counters: Arc<Counters>,
    pub(crate) current: Arc<Current>,
    /// The size of the last page, with which the next one is allocated.
    pub(crate) last_bytes: AtomicUsize,
}

impl PageSource {
    /// The page in text format 0.0.4 at `now`. Cost: about 40 ns per series.
    pub(crate) fn metrics(&self, now: Instant) -> String {
        let started = Instant::now();
        let snapshot = self.current.get();
        let mut page = String::with_capacity(self.last_bytes.load(Ordering::Relaxed) + 4096);
        let mut served = self.push_own(&mut page, &snapshot, now);
        snapshot.table.render(&mut page);
        served += snapshot.table.len() + 2;
        served += self.push_collectives(&mut page, self.series_limit.saturating_sub(served));
        push_single(&mut page, &SERIES_LIMIT, self.series_limit as f64);
        push_single(&mut page, &SERIES, served as f64);
        self.last_bytes.store(page.len(), Ordering::Relaxed);
        self.counters.add_scrape(started.elapsed());
        page
    }

    /// The number of series on a page before the first step.
    pub(crate) fn own_series(&self) -> usize {
        let mut page = String::new();
        // Rules create their marks later.
        self.push_own(&mut page, &self.current.get(), Instant::now()) + 2 + AlertRule::ALL.len()
    }

    /// Writes everything except the table and the count of series. Returns the number of samples.
    fn push_own(&self, page: &mut String, snapshot: &Snapshot, now: Instant) -> usize {
        let begin = page.len();
        push_family(page, &BUILD_INFO, [(label_text(&[("version", env!("CARGO_PKG_VERSION"))]), 1.0)]);
        push_family(page, &RANK_INFO, [(label_text(&[("host", &self.host)]), 1.0)]);
        push_single(page, &WORLD_SIZE, f64::from(self.run.world_size));
        if let Some(peak) = snapshot.peaks.largest(now) {
            push_single(page, &GRAD_NORM_INTERVAL_MAX, peak.value);
            push_single(page, &GRAD_NORM_INTERVAL_MAX_STEP, peak.step.0 as f64);
        }
        self.push_record_counts(page);
        self.push_alerts(page, now);
        // Fails only for families without a sample, and these are created with theirs.
        self.counters.render(page).unwrap_or_default();
        page[begin..].lines().filter(|line| !line.starts_with('#')).count()
    }

    /// Writes the collective operations, which appear as the training uses them. Returns the number of samples that fit
    /// into `room`.
    fn push_collectives(&self, page: &mut String, room: usize) -> usize {
        let totals = &self.sources.collectives;
        let (all, groups, stragglers) = (totals.all(), totals.groups(), totals.stragglers());
        let fitting = all.len().min(room / SAMPLES_PER_SERIES);
        push_collectives(page, &all[..fitting]);
        self.counters.add_overflow(((all.len() - fitting) * SAMPLES_PER_SERIES) as u64);
        let served = fitting * SAMPLES_PER_SERIES;
        if served + groups.len() + 2 * stragglers.len() > room {
            self.counters.add_overflow((groups.len() + 2 * stragglers.len()) as u64);
            return served;
        }
        served + push_groups(page, &groups, &stragglers)
    }

    fn push_record_counts(&self, page: &mut String) {
        let Sources { ledger, worker_queue, sinks, journal, statistics: _, overhead_budget: _, .. } = &self.sources;
        let counts = ledger.snapshot();
        let sinks: Vec<_> = sinks.iter().map(|sink| (sink.name, sink.ledger.snapshot(), &sink.queue)).collect();
        let of = |sink: &str| label_text(&[("sink", sink)]);
        push_single(page, &RECORDS_OBSERVED, counts.observed as f64);
        push_single(page, &RECORDS_NOT_SAMPLED, counts.not_sampled as f64);
        let accepted = sinks.iter().map(|(name, counts, _)| (of(name), counts.accepted as f64));
        push_family(page, &RECORDS_ACCEPTED, accepted.chain([(of(WORKER), counts.accepted as f64)]));
        push_family(page, &RECORDS_EXPORTED, sinks.iter().map(|(name, counts, _)| (of(name), counts.exported as f64)));
        let lost = |sink: &str, reason: &str, records: u64| {
            (label_text(&[("sink", sink), ("reason", reason)]), records as f64)
        };
        let by_worker = DropReason::ALL.into_iter().map(|why| lost(WORKER, why.name(), counts.dropped[why as usize]));
        let by_sinks = sinks.iter().flat_map(|(name, counts, _)| {
            [
                lost(name, DropReason::QueueFull.name(), counts.dropped),
                lost(name, "failed", counts.failed),
                lost(name, "abandoned", counts.abandoned),
            ]
        });
        push_family(page, &RECORDS_DROPPED, by_worker.chain(by_sinks));
        let queues = || sinks.iter().map(|&(name, _, queue)| (name, queue)).chain([(WORKER, worker_queue)]);
        push_family(page, &QUEUE_LENGTH, queues().map(|(name, queue)| (of(name), (queue.length)() as f64)));
        push_family(page, &QUEUE_CAPACITY, queues().map(|(name, queue)| (of(name), queue.capacity as f64)));
        if let Some(JournalSource { bytes, errors }) = journal {
            push_single(page, &JOURNAL_BYTES, bytes.load(Ordering::Relaxed) as f64);
            push_single(page, &JOURNAL_ERRORS, errors.load(Ordering::Relaxed) as f64);
        }
    }

    fn push_alerts(&self, page: &mut String, now: Instant) {
        let totals = self.sources.alerts.snapshot();
        let of_rule = |rule: AlertRule| (label_text(&[("rule", rule.name())]), totals.findings_of(rule) as f64);
        push_family(page, &ALERTS, AlertRule::ALL.map(of_rule));
        push_single(page, &GRAD_NORM_SPIKES, totals.grad_norm_spikes as f64);
        push_single(page, &UPDATE_NORM_SPIKES, totals.update_norm_spikes as f64);
        if let Some((_, zscore)) = totals.grad_norm_zscore.filter(|(_, zscore)| !zscore.is_nan()) {
            push_single(page, &GRAD_NORM_ZSCORE, zscore);
        }
        let marks = self.sources.alerts.marks().now(now);
        let of_mark = |(rule, mark): &(AlertRule, AlertMark)| {
            let AlertMark { signal, layer, name, .. } = mark;
            let labels = [("rule", rule.name()), ("signal", signal.as_str()), ("layer", layer), ("tensor_name", name)];
            (label_text(&labels), mark.order())
        };
        if !marks.is_empty() {
            push_family(page, &ALERT_FIRST_MOVE, marks.iter().map(of_mark));
        }
        push_single(page, &ALERTS_LOST, totals.lost as f64);
        push_single(page, &ALERT_OVERFLOW, totals.series_overflow as f64);
    }

    /// The run and rank, the last step, and the losses.
    pub(crate) fn health(&self, now: Instant) -> Value {
        let last_step = self.current.get().last_step;
        let counts = self.sources.ledger.snapshot();
        let lost_by_sinks: u64 = self.sources.sinks.iter().map(|sink| sink.ledger.snapshot().lost()).sum();
        json!({
            "status": "ok",
            "run": self.run.run,
            "rank": self.run.rank.0,
            "step": last_step.map(|(step, _)| step.0),
            "seconds_since_last_step": last_step.map(|(_, at)| now.saturating_duration_since(at).as_secs_f64()),
            "records_dropped": counts.dropped.iter().sum::<u64>() + lost_by_sinks,
        })
    }

    /// The names of the slots of `trainmon_top_grad_norm`.
    pub(crate) fn top(&self) -> Value {
        let snapshot = self.current.get();
        let entry = |(slot, entry): (usize, &super::metric_table::TopEntry)| {
            json!({
                "slot": slot,
                "name": &*entry.tensor.name,
                "vpp_stage": entry.tensor.vpp_stage,
                "grad_norm": json_number(entry.norm),
            })
        };
        let top: Vec<Value> = snapshot.top.iter().enumerate().map(entry).collect();
        json!({ "step": snapshot.top_step.map(|step| step.0), "top": top })
    }

    /// Links to the other pages.
    pub(crate) fn index(&self) -> String {
        let title = format!("trainmon: {} rank {}", self.run.run, self.run.rank);
        let title = title.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!doctype html><meta charset=\"utf-8\"><title>{title}</title><h1>{title}</h1>\
             <ul><li><a href=\"/metrics\">/metrics</a> for Prometheus\
             <li><a href=\"/healthz\">/healthz</a> last step and losses, JSON\
             <li><a href=\"/top\">/top</a> parameters with the largest gradient norms, JSON</ul>\n"
        )
    }
}

/// Converts a number to JSON. NaN and infinities become strings, spelt as on the metrics page.
fn json_number(value: f64) -> Value {
    match value {
        _ if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("+Inf"),
        f64::NEG_INFINITY => json!("-Inf"),
        finite => json!(finite),
    }
}
