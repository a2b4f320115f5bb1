//! The monitor. A front (tch, Python) passes tensors to it. The monitor measures them, closes a batch per step, and queues it
//! for a worker thread that feeds the exporters.
//!
//! The path of a record:
//!
//! - [`Monitor::observe`] (`monitor`) checks with the step clock (`clock`) whether this step is measured, reads the
//!   tensor with `trainmon-stats` and adds a record to the open batch (`recorder`).
//! - [`Monitor::end_step`] closes the batch and offers it to a bounded queue (`queue`). A full queue never blocks: it drops
//!   the batch, and the ledger counts it.
//! - A [`PendingStep`] adds readings that a device delivers late, and keeps their batch waiting.
//! - The worker (`worker`) passes the batch to the queue of every exporter (`sink`). A stalled exporter affects only itself.
//! - [`Monitor::shutdown`] drains the queues within a deadline and returns the [`Report`].
//!
//! Collective operations have their own module (`collectives`). They are always counted and timed, and measured on request.
//!
//! The other modules:
//!
//! - Start and end: `start` starts a monitor, `outputs` opens its exporters, `run_place` finds its directories and `rank` its
//!   rank. `opening` and `report` contain the first and the last message.
//! - State: `inner` is shared by all clones of a monitor, `sink_shared` by the threads of an exporter. `requests` has the requested
//!   statistics, `step_facts` the caller's values for a step, `scalars` the script's own numbers (names: `scalar_names`).
//! - Overhead budget: `cost` measures the monitor's own time, `throttle` and `rotation` select the tensors of a step.
//! - Captures: `capture_tickets` is the interface for a front, `captures` writes the files beside a capture.
//! - Errors: `guard` keeps panics away from the host, `unmatched` warns of targets that match nothing, `late` counts numbers
//!   missing from a step, `settlement` counts the outcomes of asynchronous exporters.
//! - `front` has the code that both fronts share.
//!
//! `trainmon-control` changes the measurements during the training, `trainmon-alerts` checks every step in the worker, and
//! `trainmon-service` has the common parts of their threads.
//!
//! Memory is bounded. At most these step batches exist at a time:
//!
//! - the open one
//! - four that wait for late device readings. For a gradient norm that is combined over ranks, they are three quarters of
//!   `queue_steps`, at most 32.
//! - `queue_steps` in the worker's queue, and the one that it processes
//! - the same for each exporter
//! - `queue_steps` empty ones, kept for reuse
//!
//! A record takes about 250 bytes, and a batch's buffer grows by doubling. With the default of 16 steps, two exporters and
//! 2,000 tensors, that is at most 80 batches of 1 MiB, and 20 if all threads keep up. Requests that wait for an OTLP receiver
//! take up to `otlp.backlog_mb` in addition.
//!
//! SIGKILL loses at most the announced steps in the worker's and the exporters' queues.

#![forbid(unsafe_code)]

mod baseline;
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
mod sink_shared;
mod start;
mod step_facts;
mod thread_time;
mod throttle;
mod unmatched;
mod worker;

/// Compiles the example in the guide.
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
