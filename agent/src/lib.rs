//! The monitor. A front (tch, Python) shows it tensors; it measures them, closes a batch per step, and hands it to a
//! worker thread that feeds the exporters.
//!
//! The life of one record, room by room:
//!
//! - [`Monitor::observe`] (`monitor`) asks the step clock (`clock`) whether this step is measured, reads the tensor
//!   through `trainmon-stats` and puts a record into the open batch (`recorder`);
//! - [`Monitor::end_step`] closes the batch and offers it to a bounded queue (`queue`): a full queue never blocks, it
//!   drops the batch and the ledger counts it;
//! - readings that a device delivers late come through a [`PendingStep`], which keeps their batch waiting;
//! - the worker (`worker`) passes it to every exporter's own queue (`sink`): a stalled exporter starves only itself;
//! - [`Monitor::shutdown`] drains them by a deadline and gives the [`Report`].
//!
//! Collective operations come in by a door of their own (`collectives`): counted and timed always, measured on request.
//!
//! Beside the way: `capture_tickets` is what a front needs to capture a step that was asked for, `captures` what lies beside the files then, `front` is what both fronts do alike, `start` opens a monitor, `inner` is what its clones share, `books` an
//! exporter's, `opening` and `report` are what is said at the beginning and the end, `guard` keeps panics out of the host, `rank` finds out which rank this is, `outputs` opens the exporters,
//! `requests` says what is measured, `step_facts` what the training tells of a step, `cost` keeps what the monitor itself costs,
//! `run_place` is where files go, `throttle` and `rotation` keep the overhead budget, `scalars` takes what a script tells under
//! names of its own (`scalar_names`), `unmatched` names targets that are nothing of the model, `late` counts what a step left without, `settlement` takes the reports of exporters that deliver later.
//! `trainmon-control` changes what is measured while the training runs, `trainmon-alerts` looks at every step in the worker,
//! `trainmon-service` is what all their threads need.
//!
//! Memory is bounded. Step batches alive at once: one open, at most four that wait for late device readings (for a
//! gradient norm that is put together over ranks three quarters of `queue_steps`, at most 32), at most `queue_steps` in
//! the worker's queue and one in its hands, the same again for each exporter, and at most `queue_steps` emptied ones kept
//! for reuse. A record takes about 250 bytes, and a batch's buffer grows by doubling. With the default 16 steps, two
//! exporters and 2,000 tensors that is at most 80 batches of 1 MiB, and 20 in a run that keeps up.
//! What waits for an OTLP receiver comes on top: `otlp.backlog_mb`.
//!
//! The same two queues are what SIGKILL can cost: steps that were announced and lay in them, never more.

#![forbid(unsafe_code)]

mod baseline;
mod books;
mod capture_tickets;
mod captures;
mod clock;
mod collectives;
mod cost;
pub mod front;
mod guard;
mod inner;
mod journal;
mod label;
mod late;
mod monitor;
mod opening;
mod options;
mod outputs;
mod parts;
mod pending_step;
mod queue;
mod queue_loss;
mod rank;
mod recorder;
mod report;
mod requests;
mod rotation;
mod run_place;
mod scalar_names;
mod scalars;
mod settlement;
mod shortage;
mod sink;
mod start;
mod step_facts;
mod thread_time;
mod throttle;
mod unmatched;
mod worker;

/// Compiles the guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../docs/collectives.md")]
struct CollectivesGuide;

pub use trainmon_alerts as alerts;
pub use trainmon_control::{
    AgreedCapture, AskedBy, CaptureStage, CaptureState, ConfigFile, RankStore, SharedRankStore,
};
pub use trainmon_core as core;
pub use trainmon_exporters as exporters;
pub use trainmon_service::{Notice, Notices, Severity, wait_as_usual, wait_at_most};
pub use trainmon_stats as stats;

pub use capture_tickets::CaptureTicket;
pub use captures::ReplayOutcome;
pub use collectives::{CollectiveCall, CollectiveGroup, CollectiveGuard, Slot, stacked_shape};
pub use cost::CostSummary;
pub use late::{LateNumber, MissingNumbers};
pub use monitor::Monitor;
pub use options::Options;
pub use pending_step::PendingStep;
pub use queue_loss::QueueLoss;
pub use rank::{RankError, Ranks};
pub use report::{Report, SinkReport};
pub use run_place::{RunNameError, check_run_name};
pub use start::StartError;
pub use step_facts::StepFacts;
