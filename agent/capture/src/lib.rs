//! Writes captures: turns the calls and values that a front reports into a dump that msprobe's tools can read.
//!
//! A front (Python, tch) handles the framework: it finds calls, names them, and walks their values. This crate does the rest:
//!
//! ```text
//! CapturePlan        selects steps, ranks, names and halves; made of the config, lives as long as the capture is on
//!   └─ Session       one step of one rank: counters, scope, open modules, stacks; its record file and tensor files
//!        └─ Entry    one call: its parts, written by Values; appended at once to the record file
//! ```
//!
//! How a front captures one call:
//!
//! ```text
//! let call = session.begin_call("Functional", "relu");            // counts: Functional.relu.0.forward
//! if session.begin(&call.forward, Direction::Forward) {           // scope, list, risk, data_mode
//!     let mut entry = session.entry(&call.forward);
//!     entry.inside_open_module();
//!     entry.stack(session.stack(&frames));
//!     let values = entry.part(Part::InputArgs);
//!     values.begin_list(); values.tensor(&tensor); values.end_list();
//!     entry.append();                                             // survives a crash of the process from here on
//! }
//! …the call itself…
//! let mut entry = session.entry(&call.forward);                   // the same way: Part::Output
//! session.end(&call.forward);                                     // the scope may close
//! ```
//!
//! Nothing here panics into the host, waits for a device, or returns an error from the middle of a step. [`Notices`] and
//! `dump_error_info.log` report each kind of error once.

#![forbid(unsafe_code)]

mod bench;
mod copies;
mod file_queue;
mod file_writer;
mod files;
mod log;
mod names;
mod part;
mod plan;
mod risk;
mod scope;
mod session;
mod slice;
mod spare;
mod speed;
mod tensor;
mod writers;

pub use part::Part;
pub use plan::{CapturePlan, Direction};
pub use session::{CallName, CapturePlace, Entry, OpenError, Peer, Progress, Session, StackId, Values};
pub use spare::SpareMemory;
pub use tensor::{Content, Later, LaterValue, Tensor};
pub use trainmon_capture_files::Made;
pub use trainmon_core::config::{
    CaptureConfig, CaptureDialect, CaptureLevel, CaptureTask, DataMode, NumberRanges, Precision, RiskLevel, Slice,
    Summary, TensorFormat,
};
pub use trainmon_service::{Notice, Notices, Severity};
