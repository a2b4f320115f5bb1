//! The crash-safe journal: a file of fixed size per rank that holds the last steps and alerts of a run.
//!
//! [`Journal`] writes it, [`JournalView`] reads steps back while it is being written, and [`Recovered`] reads the file
//! of an ended process. `docs/journal.md` describes the format to the byte and the loss at each kind of end.
//!
//! ```text
//! ┌────────┬───────┬──────────────┬─────────────┬──────────────┬─────────────────────────────────┐
//! │ header │ state │ facts (JSON) │ names: a log│ alerts: ring │ steps: ring                     │
//! └────────┴───────┴──────────────┴─────────────┴──────────────┴─────────────────────────────────┘
//! ```
//!
//! All data are in frames (`frame`): a header of 64 bytes with its own checksum, then the content with another. A frame
//! begins at a multiple of 64 bytes and may wrap around its ring's end. A reader checks every such position for a
//! frame, so it depends on no pointer that may be older or newer than its target. The state (`state`) only contains how
//! many frames there should be.
//!
//! The modules:
//! - `layout` places the regions.
//! - `facts` is the run and its config; `secrets` removes passwords from the config.
//! - `number_names` contains the names of the numbers used in records.
//! - `record` and `step` encode and decode a batch.
//! - `medium` accesses the file as memory or by system calls; `region` appends frames.
//! - `writer` and `view` are the two ends in the running process; they share `store`.
//! - `retention` removes the oldest files.
//! - `scan` finds frames in a closed file, `reader` assembles them (`names` by tensor), and `fault` describes damage.

mod bytes;
mod error;
mod facts;
mod fault;
mod frame;
mod layout;
mod medium;
mod names;
mod number_names;
mod reader;
mod record;
mod region;
mod retention;
mod scan;
mod secrets;
mod state;
mod step;
mod store;
mod view;
mod writer;

pub use error::{JournalError, RecoverError};
pub use fault::{Fault, Part};
pub use layout::{FILE_EXTENSION, MIN_FILE_BYTES, file_name};
pub use medium::Storage;
pub use reader::{Recovered, RecoveredStep};
pub use retention::{Pruned, prune, prune_runs};
pub use trainmon_core::RunInfo as JournalRun;
pub use view::JournalView;
pub use writer::{Journal, JournalSpec};
