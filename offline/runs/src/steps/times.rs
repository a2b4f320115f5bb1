//! The times of steps.

/// The quality of step times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepTimes {
    /// Each step has its own.
    Known,
    /// Some step has that of its file instead.
    OfFiles,
}
