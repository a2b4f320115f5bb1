//! Errors that tell the reader what to do next.

/// An error with advice; printed as the `hint:` line below its causes.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    /// What went wrong.
    pub message: String,
    /// What the reader can do about it.
    pub hint: String,
}

impl Hinted {
    /// An error with this advice.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// The error as the terminal shows it: `error:`, one `Caused by:` per cause, then every `hint:` in the chain.
pub fn render(error: &anyhow::Error) -> String {
    let causes = error.chain().skip(1).map(|cause| format!("Caused by: {cause}"));
    let hints = error.chain().filter_map(|cause| cause.downcast_ref::<Hinted>()).map(|h| format!("hint: {}", h.hint));
    let lines: Vec<String> = std::iter::once(format!("error: {error}")).chain(causes).chain(hints).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_causes_and_ends_with_the_hint() {
        let error = anyhow::Error::new(Hinted::new("python3 is not on PATH", "install Python"))
            .context("cannot install libtorch");
        assert_eq!(
            render(&error),
            "error: cannot install libtorch\nCaused by: python3 is not on PATH\nhint: install Python"
        );
    }
}
