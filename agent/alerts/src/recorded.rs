//! The alert rules for a recorded run: step by step, without a clock and without delivery.

use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::Config;
use trainmon_core::{Alert, AlertRule, AlertTotals, Rank, StepBatch, TensorInfo};

use super::engine::{Engine, Outlet, StepVerdict};

/// The rules of a config for recorded steps.
///
/// `Stall` needs the clock, and `Baseline`, `ReplicaMismatch` and `Straggler` need threads of the training; these find
/// nothing in a recorded run ([`RecordedRules::needs_training`]). No actions are executed.
#[derive(Debug)]
pub struct RecordedRules {
    engine: Engine,
    totals: Arc<AlertTotals>,
}

/// The results of one recorded step.
#[derive(Clone, Debug, Default)]
pub struct RecordedVerdict {
    /// The alerts that begin or end in it, all that a training would have recorded.
    pub alerts: Vec<Alert>,
    /// The number of alerts beyond the limit per step, by rule.
    pub unsaid: Vec<(AlertRule, u64)>,
    /// A message of the rules themselves.
    pub notice: Option<String>,
}

impl RecordedRules {
    /// Creates the rules of `config`, whose signals are those of the recorded run.
    pub fn new(config: &Config, rank: Rank) -> Self {
        let mut config = config.clone();
        config.alert.dump = false;
        config.alert.rules.retain(|rule| !Self::needs_training(rule.rule));
        let totals = Arc::new(AlertTotals::default());
        Self { engine: Engine::new(&config, rank, Arc::clone(&totals)), totals }
    }

    /// Whether a rule works only during a training.
    pub fn needs_training(rule: AlertRule) -> bool {
        matches!(rule, AlertRule::Stall | AlertRule::Baseline | AlertRule::ReplicaMismatch | AlertRule::Straggler)
    }

    /// Evaluates the next step. `names[record.tensor.index()]` is a record's tensor.
    pub fn look_at(&mut self, batch: &StepBatch, names: &[TensorInfo]) -> RecordedVerdict {
        let StepVerdict { said, unsaid, notice, over: _, stop: _, findings: _ } =
            self.engine.look_at(batch, names, Instant::now());
        // A deferred end was already recorded when the alert ended.
        let written = said.into_iter().filter(|raised| raised.outlet != Outlet::Sent);
        let alerts = written.map(|raised| raised.alert).collect();
        RecordedVerdict { alerts, unsaid, notice: notice.map(|notice| notice.message) }
    }

    /// The findings so far, including those of ongoing alerts and unreported ones.
    pub fn totals(&self) -> &AlertTotals {
        &self.totals
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
