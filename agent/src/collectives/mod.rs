//! Guards of collective operations. Operations are always counted and timed; their tensors are measured on request.
//!
//! A [`CollectiveGroup`] is one group of ranks. [`CollectiveGroup::start`] begins an operation and returns the
//! [`CollectiveGuard`] that ends it. Counts and durations go to the [`CollectiveTotals`], which also has the operations in
//! progress.
//!
//! If `cc_distribution` is on, each operation of a measured step leaves records:
//!
//! - its size, time and bandwidths ([`Kind::CommTime`](trainmon_core::Kind::CommTime), `all_reduce/dp`),
//! - the statistics of its tensors after and, with `cc_pre_hook`, before the call
//!   ([`Kind::Comm`](trainmon_core::Kind::Comm), `all_reduce/dp/post_0`, `all_reduce/dp/pre_0`, with the argument's position).
//!
//! The number of the call in the step is the records' micro-step.

mod call;
mod group;
mod guard;
mod operation;

use std::sync::Arc;

use trainmon_core::{CollectiveTotals, OpenCollective, ProcessGroup};

use crate::monitor::Monitor;

pub use self::call::{CollectiveCall, Slot};
pub use self::group::{CollectiveGroup, stacked_shape};
pub use self::guard::CollectiveGuard;

/// The name of the hook in messages.
const HOOK: &str = "collective";

impl Monitor {
    /// Creates a group of `ranks` that communicate, to guard its collective operations. Call it once per group and keep the
    /// result.
    pub fn collective_group(&self, name: &str, ranks: u32) -> CollectiveGroup {
        self.process_group(ProcessGroup::of_size(name, ranks), 0)
    }

    /// Creates a group with its members and role; see [`collective_group`](Self::collective_group). `sequence` is the number
    /// of its earlier operations.
    pub fn process_group(&self, group: ProcessGroup, sequence: u64) -> CollectiveGroup {
        let group = self.collective_totals().group(group);
        CollectiveGroup::new(self.clone(), group, sequence)
    }

    /// The totals of collective operations so far, by operation and group.
    pub fn collective_totals(&self) -> &Arc<CollectiveTotals> {
        &self.inner().collectives
    }

    /// The collective operations that this rank is in now, the oldest first. Each has its group, its number in the group, its
    /// start and, if requested, the line that called it. Use it to examine a training that hangs; it may be called from any
    /// thread. Cost: a copy of each.
    pub fn open_collectives(&self) -> Vec<OpenCollective> {
        self.collective_totals().open().all()
    }
}
