//! The rules over a recorded run: step after step, without a clock and without anybody to deliver alerts to.

use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::Config;
use trainmon_core::{Alert, AlertRule, AlertTotals, Rank, StepBatch, TensorInfo};

use super::engine::{Engine, Outlet, Verdict};

/// The rules of a config, as they look at the steps of a training, for steps that were recorded.
///
/// `Stall` looks at the clock, and `Baseline`, `ReplicaMismatch` and `Straggler` on threads of a training: of a recorded run these find
/// nothing ([`RecordedRules::needs_training`]). No action of a rule is carried out.
#[derive(Debug)]
pub struct RecordedRules {
    engine: Engine,
    book: Arc<AlertTotals>,
}

/// What a recorded step led to.
#[derive(Clone, Debug, Default)]
pub struct RecordedVerdict {
    /// The alerts that begin or end with it, all that a training would have written.
    pub alerts: Vec<Alert>,
    /// Alerts beyond the most that are said of one step, by rule.
    pub unsaid: Vec<(AlertRule, u64)>,
    /// What the rules themselves have to say.
    pub notice: Option<String>,
}

impl RecordedRules {
    /// The rules of `config`, whose signals are those of the recorded run.
    pub fn new(config: &Config, rank: Rank) -> Self {
        let mut config = config.clone();
        config.alert.dump = false;
        config.alert.rules.retain(|rule| !Self::needs_training(rule.rule));
        let book = Arc::new(AlertTotals::default());
        Self { engine: Engine::new(&config, rank, Arc::clone(&book)), book }
    }

    /// Whether a rule looks at a training while it runs only.
    pub fn needs_training(rule: AlertRule) -> bool {
        matches!(rule, AlertRule::Stall | AlertRule::Baseline | AlertRule::ReplicaMismatch | AlertRule::Straggler)
    }

    /// Looks at the next step. `names[record.tensor.index()]` is a record's tensor.
    pub fn look_at(&mut self, batch: &StepBatch, names: &[TensorInfo]) -> RecordedVerdict {
        let Verdict { said, unsaid, notice, over: _, stop: _, findings: _ } =
            self.engine.look_at(batch, names, Instant::now());
        // An end that is sent when its incident is over was written when it came.
        let written = said.into_iter().filter(|raised| raised.outlet != Outlet::Sent);
        let alerts = written.map(|raised| raised.alert).collect();
        RecordedVerdict { alerts, unsaid, notice: notice.map(|notice| notice.message) }
    }

    /// Findings so far: those that go on and those that are not said included.
    pub fn totals(&self) -> &AlertTotals {
        &self.book
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::{AlertPhase, GradNorm, Step};

    #[test]
    fn recorded_steps_raise_the_alerts_of_a_training_and_no_rule_waits_for_a_clock() {
        let mut rules = RecordedRules::new(&Config::default(), Rank(0));
        let mut alerts = Vec::new();
        for step in 0..200 {
            let norm = if step == 150 { 40.0 } else { 1.0 + 0.05 * (step as f64 * 1.7).sin() };
            let batch = StepBatch {
                step: Step(step),
                grad_norm: GradNorm::Known(norm),
                loss: Some(2.0),
                ..StepBatch::default()
            };
            alerts.extend(rules.look_at(&batch, &[]).alerts);
        }
        let told: Vec<_> = alerts.iter().map(|alert| (alert.rule, alert.phase, alert.step.0)).collect();
        assert_eq!(told, [(AlertRule::Spike, AlertPhase::Begins, 150), (AlertRule::Spike, AlertPhase::Ends, 160)]);
        assert_eq!(rules.totals().snapshot().findings.iter().sum::<u64>(), 1);
    }
}
