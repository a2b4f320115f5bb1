//! What became of a step that was run again.

/// What a step that was run again came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOutcome {
    /// Whether its losses have the bits that they had the first time; `None` where there is none to compare.
    pub same_loss: Option<bool>,
    /// Whether its losses and all its gradients are finite.
    pub is_finite: bool,
}

impl ReplayOutcome {
    /// Behind a sentence.
    pub(crate) fn in_words(self) -> String {
        let loss = match self.same_loss {
            Some(true) => "; its loss is the same as the first time",
            Some(false) => "; its loss differs from the first time",
            None => "",
        };
        let finite = if self.is_finite { "; its loss and gradients are finite" } else { "" };
        format!("{loss}{finite}")
    }
}
