//! The identity of the run and the monitor's status, from the live counters.

use std::sync::atomic::Ordering;
use std::time::Instant;

use trainmon_core::CollectiveSummary;
use trainmon_history::{CollectiveDocument, CostDocument, LedgerDocument, QueueDocument, SinkDocument, Status};

use crate::prometheus::page::PageSource;
use crate::{QueueGauge, SinkSource, Sources};

/// The status at `now`.
pub(super) fn status(page: &PageSource, cost: CostDocument, newest: Option<(u64, Instant)>, now: Instant) -> Status {
    Status {
        run: page.run.run.clone(),
        rank: page.run.rank.0,
        world_size: page.run.world_size,
        host: page.host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        step: newest.map(|(step, _)| step),
        seconds_since_last_step: newest.map(|(_, at)| now.saturating_duration_since(at).as_secs_f64()),
        ledger: Some(ledger(&page.sources)),
        collectives: page.sources.collectives.summaries().into_iter().map(collective).collect(),
        cost: Some(cost),
    }
}

fn ledger(sources: &Sources) -> LedgerDocument {
    let Sources { ledger, worker_queue, sinks, journal, alerts, .. } = sources;
    let counts = ledger.snapshot();
    LedgerDocument {
        observed: counts.observed,
        not_sampled: counts.not_sampled,
        accepted: counts.accepted,
        dropped: counts.dropped.iter().sum(),
        queue: queue(worker_queue),
        sinks: sinks.iter().map(sink).collect(),
        alerts_lost: alerts.snapshot().lost,
        journal_bytes: journal.as_ref().map(|journal| journal.bytes.load(Ordering::Relaxed)),
        journal_errors: journal.as_ref().map(|journal| journal.errors.load(Ordering::Relaxed)),
    }
}

fn sink(source: &SinkSource) -> SinkDocument {
    let counts = source.ledger.snapshot();
    SinkDocument {
        name: source.name.to_owned(),
        accepted: counts.accepted,
        exported: counts.exported,
        lost: counts.lost(),
        queue: queue(&source.queue),
    }
}

fn queue(gauge: &QueueGauge) -> QueueDocument {
    QueueDocument { length: (gauge.length)(), capacity: gauge.capacity }
}

fn collective(summary: CollectiveSummary) -> CollectiveDocument {
    let CollectiveSummary { op, group, started, failed, finished: _, bytes, time, waited, median, late, longest } =
        summary;
    CollectiveDocument {
        op: op.name().to_owned(),
        group,
        started,
        failed,
        bytes,
        seconds: time.as_secs_f64(),
        waited_seconds: waited.as_secs_f64(),
        median_seconds: median.as_secs_f64(),
        p99_seconds: late.as_secs_f64(),
        max_seconds: longest.as_secs_f64(),
    }
}
