//! The monitor. A front (tch, Python) shows it tensors; it measures them, closes a batch per step, and hands it to a
//! worker thread that feeds the exporters.
//!
//! The life of one record, room by room:
//!
//! - [`Monitor::observe`] (`monitor`) asks the step clock (`clock`) whether this step is measured, reads the tensor
//!   through `trainmon-stats` and puts a record into the open batch (`recorder`);
//! - [`Monitor::end_step`] closes the batch and offers it to a bounded queue (`queue`): a full queue never blocks, it
//!   drops the batch and the ledger counts it;
//! - readings that a device delivers late come through a [`Hold`] (`hold`), which keeps their batch waiting;
//! - the worker (`worker`) passes it to every exporter's own queue (`sink`): a stalled exporter starves only itself;
//! - [`Monitor::shutdown`] drains them by a deadline and gives the [`Report`].
//!
//! Beside the way: `start` opens a monitor, `inner` is what its clones share, `books` an exporter's, `guard` keeps panics out of the host, `fork` makes a forked child inert, `rank` finds out which
//! rank this is, `outputs` opens the exporters, `cost` keeps what the monitor itself costs, `notice` is its voice.
//!
//! Memory is bounded: at most `queue_steps` batches wait for the worker and `queue_steps` for each exporter, four may
//! wait for late device readings, and one is open. A record takes about 250 bytes.

mod books;
mod clock;
mod cost;
mod fork;
mod guard;
mod hold;
mod inner;
mod monitor;
mod notice;
mod options;
mod outputs;
mod queue;
mod rank;
mod recorder;
mod report;
mod sink;
mod start;
mod worker;

pub use trainmon_core as core;
pub use trainmon_exporters as exporters;
pub use trainmon_stats as stats;

pub use cost::CostSummary;
pub use hold::Hold;
pub use monitor::{Monitor, StepFacts};
pub use notice::{Notice, Severity, Voice};
pub use options::Options;
pub use rank::{RankError, Ranks};
pub use report::{Report, SinkReport};
pub use start::StartError;
