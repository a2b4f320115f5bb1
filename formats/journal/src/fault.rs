//! What can be wrong inside a journal.

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

/// Something in a journal that is not as it was written. The rest is read all the same. Records are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Fault {
    /// The file is shorter than it was made.
    #[error("the file is cut off: it has {found} of {expected} bytes")]
    CutOff { expected: u64, found: u64 },
    /// Neither copy of the writer's counts is whole: whether the newest records are missing cannot be told.
    #[error("the writer's counts are damaged: whether newer records are missing cannot be told")]
    CountsDamaged,
    /// A step's content fails its checksum.
    #[error("step {step} is torn: its checksum does not match")]
    TornStep { step: Step },
    /// A step was whole when the file was opened and is not any more: the process that writes the file needed its place.
    #[error("step {step} was overwritten while the journal was read: its run goes on")]
    Overwritten { step: Step },
    /// A record of another part fails its checksum.
    #[error("record {number} of the {part} is torn: its checksum does not match")]
    Torn { part: Part, number: u64 },
    /// Records are gone without a trace.
    #[error("records {first} to {last} of the {part} are missing{}", After(*after))]
    Missing { part: Part, first: u64, last: u64, after: Option<Step> },
    /// Steps the run made and never wrote: a queue was full, or the run was too far ahead of its journal.
    #[error("{} missing: {} never in the journal", Steps(*first, *last), if first == last { "it was" } else { "they were" })]
    NeverWritten { first: Step, last: Step },
    /// The oldest step in the journal is the first that was written and not the first the run made.
    #[error("the steps before {step} are missing: they were never in the journal")]
    NeverWrittenBefore { step: Step },
    /// The newest record was begun and is not whole: the process ended in mid-write, or power was lost before it reached
    /// the disk.
    #[error("the newest record of the {part} is not whole{}: it was being written, or never reached the disk", After(*after))]
    Unfinished { part: Part, after: Option<Step> },
    /// Records were written, and none is left.
    #[error("{written} records of the {part} were written, and none of them is left")]
    NothingLeft { part: Part, written: u64 },
    /// A record is whole, but not what this version writes.
    #[error("record {number} of the {part} cannot be understood: {why}")]
    NotUnderstood { part: Part, number: u64, why: String },
    /// A step was larger than the journal when it was written.
    #[error("step {step} was too large for the journal: its {records} records were never in it")]
    TooLarge { step: Step, records: u32 },
    /// Tensors are in the steps whose names are gone.
    #[error("the names of {count} tensors are lost: their rows are named unnamed_tensor_<number>")]
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
