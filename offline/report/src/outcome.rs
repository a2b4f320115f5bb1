//! The outcome of a command.

/// The outcome of a command, which sets its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to report.
    Fine,
    /// A difference, a damaged or late file, or an alert.
    Difference,
    /// The arguments, the input or the machine prevent an answer.
    Failed,
}

impl Outcome {
    /// [`Self::Difference`] if `differs`.
    pub fn of(differs: bool) -> Self {
        if differs { Self::Difference } else { Self::Fine }
    }

    /// The outcome of work that succeeds or fails.
    pub fn of_work<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Fine } else { Self::Failed }
    }
    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Difference => 1,
            Self::Failed => 2,
        }
    }
}
