//! The crash-safe journal: a file of fixed size per rank that holds the last steps and the last alerts of a run.
//!
//! [`Journal`] writes it, [`JournalView`] reads steps back while it is being written, [`Recovered`] reads what a
//! process left behind. `docs/journal-format.md` has the format to the byte, `docs/journal.md` what each kind of end can cost.
//!
//! ```text
//! ┌────────┬───────┬──────────────┬─────────────┬──────────────┬─────────────────────────────────┐
//! │ header │ state │ facts (JSON) │ names: a log│ alerts: ring │ steps: ring                     │
//! └────────┴───────┴──────────────┴─────────────┴──────────────┴─────────────────────────────────┘
//! ```
//!
//! Everything is in frames (`frame`): a header of 64 bytes with its own checksum, then the content with another. A
//! frame begins at a multiple of 64 bytes and may run over its ring's end into the beginning. A reader finds frames by
//! looking at every such place, so nothing depends on a pointer that may be older or newer than what it points to; the
//! state (`state`) only says how much there should be.
//!
//! The rooms: `layout` places the regions, `facts` is the run and its config, `number_names` the names of the numbers used
//! in records, `record` and `step` turn a batch into bytes and back, `medium` is the file as memory or by calls,
//! `region` appends frames, `writer` and `view` are the two ends in the running process and `store` is what they share, `secrets` is what is left out
//! of the config, `retention` takes the oldest files away, `scan` finds frames afterwards, `reader` puts them together
//! (`names` by tensor), and `fault` is what it says of the rest.

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
