//! Damage inside a journal.

use std::fmt;

use trainmon_core::Step;

/// A part of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The names of tensors.
    Names,
    /// The alerts.
    Alerts,
    /// The steps.
    Steps,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Names => "names",
            Self::Alerts => "alerts",
            Self::Steps => "steps",
        })
    }
}

/// Damage in a journal. The rest is read nevertheless. Records are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Fault {
    /// The file is shorter than its original size.
    #[error("the file is truncated: it has {found} of {expected} bytes")]
    CutOff { expected: u64, found: u64 },
    /// Both copies of the writer's counts are damaged, so missing newest records cannot be detected.
    #[error("the writer's counts are damaged: newer records may be missing")]
    CountsDamaged,
    /// A step's content fails its checksum.
    #[error("step {step} is damaged: its checksum does not match")]
    TornStep { step: Step },
    /// A step was intact when the file was opened and has been overwritten since by the writing process.
    #[error("step {step} was overwritten while the journal was read: the run is still writing")]
    Overwritten { step: Step },
    /// A record of another part fails its checksum.
    #[error("record {number} of the {part} is damaged: its checksum does not match")]
    Torn { part: Part, number: u64 },
    /// Records are missing without a trace.
    #[error("records {first} to {last} of the {part} are missing{}", After(*after))]
    Missing { part: Part, first: u64, last: u64, after: Option<Step> },
    /// Steps that the run made and never wrote: a queue was full, or the run was too far ahead of its journal.
    #[error("{} missing: {} never written to the journal", Steps(*first, *last), if first == last { "it was" } else { "they were" })]
    NeverWritten { first: Step, last: Step },
    /// The oldest step in the journal is the first that was written, but not the first that the run made.
    #[error("the steps before {step} are missing: they were never written to the journal")]
    NeverWrittenBefore { step: Step },
    /// The newest record is incomplete: the process ended during the write, or power was lost before it reached the
    /// disk.
    #[error("the newest record of the {part} is incomplete{}: its write was interrupted or never reached the disk", After(*after))]
    Unfinished { part: Part, after: Option<Step> },
    /// Records were written, and all are gone.
    #[error("all {written} written records of the {part} are missing")]
    NothingLeft { part: Part, written: u64 },
    /// A record is intact, but not what this version writes.
    #[error("cannot decode record {number} of the {part}: {why}")]
    NotUnderstood { part: Part, number: u64, why: String },
    /// A step was larger than the journal.
    #[error("step {step} was too large for the journal: its {records} records were not written")]
    TooLarge { step: Step, records: u32 },
    /// The steps contain tensors whose names are lost.
    #[error("the names of {count} tensors are lost: their rows are named `unnamed_tensor_<number>`")]
    Nameless { count: u64 },
}

/// `step 3 is`, `steps 3 to 5 are`.
struct Steps(Step, Step);

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(first, last) = self;
        if first == last { write!(f, "step {first} is") } else { write!(f, "steps {first} to {last} are") }
    }
}

/// ` after step 12`, or nothing.
struct After(Option<Step>);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |step| write!(f, " after step {step}"))
    }
}
