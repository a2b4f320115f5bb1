//! The live page's data: the run's history, filled on the exporter's thread, read by the server's.

mod events;
mod fill;
mod status;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use trainmon_core::{Phase, StepBatch};
use trainmon_history::{CostDocument, Cursor, History, Limits, RunDocument, Status, Tail, VERSION};

pub(crate) use self::events::Events;
pub(crate) use self::fill::HistoryWriter;
use super::page::PageSource;

/// The state that both threads share.
#[derive(Debug)]
pub(crate) struct LiveRun {
    /// Locked while a step is added, and while a document is read. Neither the training thread nor a scrape takes it.
    state: Mutex<LiveState>,
    /// Incremented with every step and alert, so that event streams can detect changes without the lock.
    changes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct LiveState {
    pub(crate) history: History,
    cost: CostDocument,
    newest: Option<(u64, Instant)>,
}

/// The event that `/api/events` sends after steps.
#[derive(Debug, Serialize)]
struct TailEvent {
    tail: Tail,
    status: Status,
}

impl LiveRun {
    pub(crate) fn new() -> Self {
        let state = LiveState { history: History::new(Limits::default()), cost: CostDocument::default(), newest: None };
        Self { state: Mutex::new(state), changes: AtomicU64::new(0) }
    }

    /// Changes the state on the exporter's thread.
    fn change(&self, change: impl FnOnce(&mut LiveState)) {
        change(&mut self.lock());
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `/api/overview`: everything except the heat maps.
    pub(crate) fn overview(&self, page: &PageSource, now: Instant) -> Vec<u8> {
        let state = self.lock();
        let (overview, cost, newest) = (state.history.overview(), state.cost, state.newest);
        drop(state);
        let status = status::status(page, cost, newest, now);
        json(&RunDocument { version: VERSION, overview, status, heat_maps: Vec::new() })
    }

    /// `/api/heatmap`; `None` if the heat map does not exist.
    pub(crate) fn heat_map(&self, kind: &str, statistic: &str, from: usize) -> Option<Vec<u8>> {
        let map = self.lock().history.heat_map(kind, statistic, from)?;
        Some(json(&map))
    }

    /// The kinds and statistics with heat maps, for the error message.
    pub(crate) fn heat_maps(&self) -> String {
        let kinds = self.lock().history.overview().tables.kinds;
        let kinds: Vec<String> =
            kinds.iter().map(|kind| format!("{} ({})", kind.name, kind.statistics.join(", "))).collect();
        if kinds.is_empty() { "none yet".to_owned() } else { kinds.join(", ") }
    }

    /// The changes since the cursor; `None` if the reader has to start over.
    fn since(&self, cursor: Cursor, page: &PageSource, now: Instant) -> Option<TailEvent> {
        let state = self.lock();
        let (tail, cost, newest) = (state.history.since(cursor), state.cost, state.newest);
        drop(state);
        Some(TailEvent { tail: tail?, status: status::status(page, cost, newest, now) })
    }

    fn status(&self, page: &PageSource, now: Instant) -> Status {
        let state = self.lock();
        let (cost, newest) = (state.cost, state.newest);
        drop(state);
        status::status(page, cost, newest, now)
    }
}

impl LiveState {
    fn add_cost(&mut self, batch: &StepBatch, budget: Option<f64>) {
        let cost = &mut self.cost;
        // The first step has no duration, so its cost has no reference.
        if let Some(duration) = batch.duration {
            cost.steps += 1;
            cost.step_seconds += duration.as_secs_f64();
            cost.measure_seconds += batch.cost.get(Phase::Measure).as_secs_f64();
            cost.launch_seconds += batch.cost.get(Phase::Launch).as_secs_f64();
            cost.offer_seconds += batch.cost.get(Phase::Offer).as_secs_f64();
        }
        cost.bytes_read += batch.bytes_read;
        cost.budget = budget;
        cost.sampling = budget.map(|_| batch.sampling_ratio());
    }
}

/// Shared with the server's thread.
pub(crate) type SharedLiveRun = Arc<LiveRun>;

fn json(document: &impl Serialize) -> Vec<u8> {
    // Only maps with keys other than texts fail, and the documents have none.
    serde_json::to_vec(document).unwrap_or_default()
}
