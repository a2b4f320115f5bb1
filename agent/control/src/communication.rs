//! What a status tells of collective operations: those in progress, and who comes last.

use serde::Serialize;
use trainmon_core::{CollectiveTotals, OpenCollective, ProcessGroup, Straggler};

/// Operations in progress that a status names: of asynchronous ones there may be hundreds.
const MAX_OPEN: usize = 32;
/// Ranks of a group that are named.
const MAX_RANKS: usize = 64;

#[derive(Serialize)]
pub(super) struct Communication {
    /// How many operations are in progress on this rank.
    open: usize,
    /// The oldest of them, at most 32.
    in_progress: Vec<InProgress>,
    /// By group of which this rank is the first, the rank that came last over the latest window of steps.
    stragglers: Vec<ComesLast>,
}

#[derive(Serialize)]
struct InProgress {
    op: &'static str,
    process_group: Box<str>,
    /// The group's first 64 ranks; empty where they are not known.
    ranks: Vec<u32>,
    group_size: u32,
    sequence: u64,
    bytes: u64,
    /// The calling line, where lines are asked for.
    caller: Option<String>,
    /// Since it began.
    seconds: f64,
}

#[derive(Serialize)]
struct ComesLast {
    process_group: Box<str>,
    rank: u32,
    /// How long the others waited for it, per step.
    lag_seconds: f64,
    /// The others' median time inside of operations, per step.
    median_seconds: f64,
    /// The last step of the window.
    step: u64,
}

impl Communication {
    pub(super) fn of(book: &CollectiveTotals) -> Self {
        let open = book.open().all();
        Self {
            open: open.len(),
            in_progress: open.into_iter().take(MAX_OPEN).map(InProgress::from).collect(),
            stragglers: book.stragglers().into_iter().map(ComesLast::from).collect(),
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
