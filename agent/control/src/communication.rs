//! The collective operations in a status: those in progress, and stragglers.

use serde::Serialize;
use trainmon_core::{CollectiveTotals, OpenCollective, ProcessGroup, Straggler};

/// The maximum number of operations in progress in a status. Asynchronous ones may be hundreds.
const MAX_OPEN: usize = 32;
/// The maximum number of ranks of a group that are listed.
const MAX_RANKS: usize = 64;

#[derive(Serialize)]
pub(super) struct Communication {
    /// The number of operations in progress on this rank.
    open: usize,
    /// The oldest of them, at most 32.
    in_progress: Vec<InProgress>,
    /// The straggler in the latest window of steps, for each group whose first rank is this one.
    stragglers: Vec<ComesLast>,
}

#[derive(Serialize)]
struct InProgress {
    op: &'static str,
    process_group: Box<str>,
    /// The first 64 ranks of the group; empty if unknown.
    ranks: Vec<u32>,
    group_size: u32,
    sequence: u64,
    bytes: u64,
    /// The calling line, if recording callers is enabled.
    caller: Option<String>,
    /// The time since it began, in seconds.
    seconds: f64,
}

#[derive(Serialize)]
struct ComesLast {
    process_group: Box<str>,
    rank: u32,
    /// How long the others waited for it, in seconds per step.
    lag_seconds: f64,
    /// The others' median time inside operations, in seconds per step.
    median_seconds: f64,
    /// The last step of the window.
    step: u64,
}

impl Communication {
    pub(super) fn of(totals: &CollectiveTotals) -> Self {
        let open = totals.open().all();
        Self {
            open: open.len(),
            in_progress: open.into_iter().take(MAX_OPEN).map(InProgress::from).collect(),
            stragglers: totals.stragglers().into_iter().map(ComesLast::from).collect(),
        }
    }
}

impl From<OpenCollective> for InProgress {
    fn from(open: OpenCollective) -> Self {
        let OpenCollective { op, group, sequence, bytes, caller, since } = open;
        let ProcessGroup { name, role: _, ranks, size } = &*group;
        Self {
            op: op.name(),
            process_group: name.clone(),
            ranks: ranks.iter().copied().take(MAX_RANKS).collect(),
            group_size: *size,
            sequence,
            bytes,
            caller: caller.as_deref().map(str::to_owned),
            seconds: since.elapsed().as_secs_f64(),
        }
    }
}

impl From<Straggler> for ComesLast {
    fn from(straggler: Straggler) -> Self {
        let Straggler { group, rank, lag, median, step } = straggler;
        Self { process_group: group, rank, lag_seconds: lag, median_seconds: median, step }
    }
}
