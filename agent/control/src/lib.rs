//! Live control: changes what is measured while the training runs, at the same step on every rank.
//!
//! ```text
//! trainmon ctl, curl ──▶ server ──▶ service ──▶ change_request ─┐
//! config file (dynamic mode) ──▶ file_watch ────────────────────┤
//!                                                               ▼
//!                            rank 0: leader ──▶ store ──▶ followers on the other ranks
//!                                        │                    │
//!                                        ▼                    ▼
//!                              live: the switch that the training thread takes when the agreed step begins
//! ```
//!
//! Captures are agreed on in the same way: `captures` holds those of a rank, `capture_requests` is rank 0's part, and
//! `kept_steps` knows which past steps can be replayed.
//!
//! Only rank 0 listens and decides. It proposes a complete [`Plan`](trainmon_core::config::Plan), waits until every
//! rank has answered with its current step, then chooses a step that no rank has reached yet (`leader`; `members`
//! tracks the ranks). The ranks communicate through a [`RankStore`]: files in a shared directory, or a store of the
//! front. Everything runs on separate threads; the training thread reads one number per step and never waits.

#![forbid(unsafe_code)]

mod capture_requests;
mod captures;
mod change_request;
mod communication;
mod file_watch;
mod files;
mod follower;
mod kept_steps;
mod leader;
mod live;
mod members;
mod place;
mod progress;
mod rank_store;
mod server;
mod service;
mod status;
mod stop;
mod thread;
mod token;

pub use captures::{AgreedCapture, AskedBy, CaptureSchedule, CaptureStage, CaptureState};
pub use file_watch::ConfigFile;
pub use kept_steps::KeptSteps;
pub use live::{Live, Switch, Switched};
pub use rank_store::{RankStore, SharedRankStore};
pub use status::{SinkStatus, Sources};
pub use stop::WantsStop;
pub use thread::{Control, ControlStart};

#[cfg(test)]
mod agreement_tests;
