//! What the program answers in several cases, as one snapshot.

use crate::support::ProgramOutput;

/// Answers of several cases as one text for a snapshot: what was asked, and all that was said of it.
#[derive(Debug, Default)]
pub(crate) struct Transcript(String);

impl Transcript {
    /// Adds a case. Exit codes and what is left behind are asserted by the caller.
    pub(crate) fn add(&mut self, case: &str, said: &ProgramOutput) {
        self.0 += "## ";
        for text in [case, "\n", &said.out, &said.err, "\n"] {
            self.0 += text;
        }
    }
}

impl std::fmt::Display for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.trim_end())
    }
}
