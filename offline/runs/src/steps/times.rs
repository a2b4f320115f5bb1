//! The times of steps.

/// What is known of when a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepTimes {
    /// Each step's own.
    Known,
    /// Nobody kept the time of some step: it has that of its file.
    OfFiles,
}
