//! Captures: the inputs and outputs of a step's operators, as files in a dump directory.
//!
//! ```text
//! <root>/step0/rank0/dump.json          every operator's inputs and outputs: statistics, checksums, file names
//!                    stack.json         the call stack of each forward call       (optional)
//!                    construct.json     the module in which an operator ran       (optional)
//!                    debug.json         instead of dump.json: single values that a script saved
//!                    dump_tensor_data/  the tensors themselves, a file each       (optional)
//! ```
//!
//! The format is msprobe's, in all its versions; `docs/compare.md` lists the accepted variants.

mod construct;
mod directory;
mod document;
mod error;
mod keys;
mod parse;
mod shared;
mod stack;
mod write;

pub use construct::{Construct, Parent};
pub use directory::{DumpKind, RankFiles, StepFiles, Tree, find};
pub use document::{Document, Framework, Leaf, Operator, Peer, Plain, Section, Task, TensorFacts, Value};
pub use error::{CaptureError, Place};
pub use keys::part;
pub use parse::{Json, operator_json, parse_document};
pub use stack::Stacks;
pub use write::{
    DigestText, EntryRecord, Frames, Header, Hole, JsonText, Made, Missing, Node, NumberText, Opened, RankDirectory,
    RankName, Recorder, TensorText, WriteError, crc32_text, data_name_member, documents_of, group_id,
    left_over_records, recover, xor64_text,
};
