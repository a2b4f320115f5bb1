//! Collective operations under guard: counted and timed always, their tensors measured where the config asks for it.
//!
//! A [`CollectiveGroup`] is one group of ranks. [`CollectiveGroup::start`] begins an operation, the [`CollectiveGuard`] it
//! gives ends it. Counts and durations go to the [`CollectiveTotals`], where operations in progress can be read too. In a
//! step that is measured, and with `cc_distribution` switched on, each operation leaves records of its own: size, time and
//! bandwidths ([`Kind::CommTime`](trainmon_core::Kind::CommTime), `all_reduce/dp`), and what its tensors held after and, on
//! request, before ([`Kind::Comm`](trainmon_core::Kind::Comm), `all_reduce/dp/post_0`, `all_reduce/dp/pre_0`, by the place
//! of the argument). The records of a step's n-th call have its number as their micro-step.

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

/// The hook's name in notices.
const HOOK: &str = "collective";

impl Monitor {
    /// A group of `ranks` that communicate, to guard its collective operations. Call once per group, and keep it.
    pub fn collective_group(&self, name: &str, ranks: u32) -> CollectiveGroup {
        self.process_group(ProcessGroup::of_size(name, ranks), 0)
    }

    /// As [`collective_group`](Self::collective_group), a group with its members and role. `sequence`: how many
    /// operations it has seen before this.
    pub fn process_group(&self, group: ProcessGroup, sequence: u64) -> CollectiveGroup {
        let group = self.collective_totals().group(group);
        CollectiveGroup::new(self.clone(), group, sequence)
    }

    /// What collective operations amount to so far, by operation and group.
    pub fn collective_totals(&self) -> &Arc<CollectiveTotals> {
        &self.inner().collectives
    }

    /// The collective operations that this rank is inside of now, the oldest first: each with its group and ranks, its
    /// number in the group, the line that called it where that is asked for, and since when. For whoever looks at a
    /// training that does not go on; it may be called from any thread. Cost: a copy of each.
    pub fn open_collectives(&self) -> Vec<OpenCollective> {
        self.collective_totals().open().all()
    }
}
