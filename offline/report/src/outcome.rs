//! How a command ends.

/// How a command ended, which is its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is to be said against anything.
    Fine,
    /// Something differs, is torn, late, or alerted of.
    Difference,
    /// The arguments, the input or the machine do not allow an answer.
    Failed,
}

impl Outcome {
    /// [`Self::Difference`] if there is one.
    pub fn of(differs: bool) -> Self {
        if differs { Self::Difference } else { Self::Fine }
    }

    /// The outcome of work that either succeeds or fails.
    pub fn of_work<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Fine } else { Self::Failed }
    }
    /// As the exit status of a program.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Difference => 1,
            Self::Failed => 2,
        }
    }
}
