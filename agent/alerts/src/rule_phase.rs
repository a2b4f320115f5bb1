//! Ongoing alerts: reported once when they begin and once when they end.

use serde::{Deserialize, Serialize};
use trainmon_core::{AlertRule, Step};

/// The number of steps without a finding after which an alert ends. Echoes of a spike come within a few steps.
const QUIET_STEPS: u32 = 10;

/// The alert state of one rule on one series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RulePhase {
    /// The number of findings since it began; 0 outside of an alert.
    findings: u64,
    quiet_steps: u32,
    /// The step of the first finding.
    #[serde(default)]
    quiet_since: Option<Step>,
}

/// A change to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleChange {
    /// The alert begins.
    Begins,
    /// The alert ended after this many findings; everything has been normal since that step.
    Ends(u64, Step),
}

impl RulePhase {
    /// Records the outcome of a step.
    pub(crate) fn step(&mut self, rule: AlertRule, step: Step, found: bool) -> Option<RuleChange> {
        if found {
            self.findings += 1;
            (self.quiet_steps, self.quiet_since) = (0, None);
            return (self.findings == 1).then_some(RuleChange::Begins);
        }
        if self.findings == 0 {
            return None;
        }
        self.quiet_steps += 1;
        let since = *self.quiet_since.get_or_insert(step);
        // Two norms agree or do not; there are no echoes to wait for.
        let patience = if rule == AlertRule::NormMismatch { 1 } else { QUIET_STEPS };
        if self.quiet_steps < patience {
            return None;
        }
        let Self { findings, .. } = std::mem::take(self);
        Some(RuleChange::Ends(findings, since))
    }

    /// Whether there is no state to save.
    pub(crate) fn is_well(self) -> bool {
        self.findings == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_said_when_it_begins_and_when_it_is_over() {
        let (mut rule_phase, mut now) = (RulePhase::default(), 0);
        let mut step = |found| {
            now += 1;
            rule_phase.step(AlertRule::Spike, Step(now), found)
        };
        assert_eq!(step(false), None);
        assert_eq!(step(true), Some(RuleChange::Begins));
        assert_eq!([step(true), step(false), step(true)], [None; 3]);
        for _ in 1..QUIET_STEPS {
            assert_eq!(step(false), None);
        }
        assert_eq!(step(false), Some(RuleChange::Ends(3, Step(6))));
        assert_eq!(step(false), None);
        assert_eq!(step(true), Some(RuleChange::Begins));
    }

    #[test]
    fn norms_that_agree_again_agree_at_once() {
        let mut rule_phase = RulePhase::default();
        rule_phase.step(AlertRule::NormMismatch, Step(1), true);
        let over = rule_phase.step(AlertRule::NormMismatch, Step(2), false);
        assert_eq!(over, Some(RuleChange::Ends(1, Step(2))));
    }
}
