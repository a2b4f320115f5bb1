//! The outcome of a replayed step.

/// The outcome of a replayed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOutcome {
    /// Whether its losses are bitwise equal to those of the first run; `None` if there are none to compare.
    pub same_loss: Option<bool>,
    /// Whether its losses and all its gradients are finite.
    pub is_finite: bool,
}

impl ReplayOutcome {
    /// The end of the message about the capture.
    pub(crate) fn in_words(self) -> String {
        let loss = match self.same_loss {
            Some(true) => "; its loss is bitwise equal to that of the first run",
            Some(false) => "; its loss differs from that of the first run",
            None => "",
        };
        let finite = if self.is_finite { "; its loss and gradients are finite" } else { "" };
        format!("{loss}{finite}")
    }
}
