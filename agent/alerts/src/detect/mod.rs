//! The rules as state machines: each step adds a number and may produce a finding. No clock, no I/O, no model.
//!
//! A detector never stores a value that is not finite, so none can disable it, and detectors are independent, so none
//! hides another's findings. A checkpoint stores their state.

mod anomaly;
mod average;
mod beginning;
mod collapse;
mod level;
mod logarithm;
mod loss_spike;
mod spike;
mod tail;
mod trend;

use serde::{Deserialize, Serialize};
use trainmon_core::config::RuleArgs;
use trainmon_core::{AlertRule, AlertSignal, Expectation};

use self::anomaly::Anomaly;
use self::collapse::Collapse;
use self::level::InARow;
use self::loss_spike::LossSpike;
pub(crate) use self::spike::Spike;
use self::trend::Trend;

/// A finding of a rule in one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The value.
    pub value: f64,
    /// The expected values.
    pub expected: Expectation,
}

/// The state of a rule for one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Memory {
    /// `AnomalyTurbulence`, `AnomalyNan`: the running average.
    Anomaly(Anomaly),
    /// `Spike`: the window, and the tail of the residuals.
    Spike(Box<Spike>),
    /// `Spike` on a loss: the window, and the frequency of rises.
    LossSpike(Box<LossSpike>),
    /// `Collapse`: the current run of equal steps.
    Collapse(Collapse),
    /// `Dead`, `UpdateRatio`: the number of steps in a row.
    InARow(InARow),
    /// `Vanishing`, `Drift`: a fast and a slow average.
    Trend(Box<Trend>),
    /// `Drift` on a loss: the same, and the lowest value so far.
    LossTrend(Box<Trend>),
    /// `NonFinite`, `NormMismatch` and the rules evaluated elsewhere: no state.
    Nothing,
}

impl Memory {
    /// The state before the first value.
    pub(crate) fn new(rule: AlertRule, signal: AlertSignal) -> Self {
        match rule {
            AlertRule::Spike if signal == AlertSignal::Loss => Self::LossSpike(Box::default()),
            AlertRule::AnomalyTurbulence | AlertRule::AnomalyNan => Self::Anomaly(Anomaly::default()),
            AlertRule::Spike => Self::Spike(Box::default()),
            AlertRule::Collapse => Self::Collapse(Collapse::default()),
            AlertRule::Dead | AlertRule::UpdateRatio => Self::InARow(InARow::default()),
            AlertRule::Drift if signal == AlertSignal::Loss => Self::LossTrend(Box::default()),
            AlertRule::Vanishing | AlertRule::Drift => Self::Trend(Box::default()),
            AlertRule::NonFinite
            | AlertRule::NormMismatch
            | AlertRule::Stall
            | AlertRule::Baseline
            | AlertRule::ReplicaMismatch
            | AlertRule::Straggler => Self::Nothing,
        }
    }

    /// Adds the next value. `args` are those of the current config, which may differ from when the state was saved.
    /// `grad_norm` is the step's, for `Collapse`.
    pub(crate) fn observe(
        &mut self,
        rule: AlertRule,
        args: &RuleArgs,
        value: f64,
        grad_norm: Option<f64>,
    ) -> Option<Finding> {
        let expected = match (self, rule) {
            (Self::Collapse(collapse), _) => collapse.observe(args, value, grad_norm),
            (Self::Anomaly(average), AlertRule::AnomalyTurbulence) => average.turbulence(args, value),
            (Self::Anomaly(average), _) => average.nan_or_large(args, value),
            (Self::Spike(spike), _) => spike.observe(args, value),
            (Self::LossSpike(spike), _) => spike.observe(args, value),
            (Self::InARow(row), AlertRule::Dead) => row.dead(args, value),
            (Self::InARow(row), _) => row.above(args, value),
            (Self::Trend(trend), AlertRule::Vanishing) => trend.vanishing(args, value),
            (Self::Trend(trend), _) => trend.drift(args, value),
            (Self::LossTrend(trend), _) => trend.drift_of_loss(args, value),
            (Self::Nothing, AlertRule::NormMismatch) => level::far_from_one(args, value),
            (Self::Nothing, AlertRule::NonFinite) => level::non_finite(value),
            // `Stall` watches the clock; the others run on their own threads.
            (Self::Nothing, _) => None,
        };
        expected.map(|expected| Finding { value, expected })
    }

    /// Whether this is the type of state that the rule uses for such a series.
    pub(crate) fn fits(&self, rule: AlertRule, signal: AlertSignal) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(&Self::new(rule, signal))
    }
}

/// A rule on one series in isolation, as the monitor runs it per step and series, for tests and comparisons.
#[derive(Clone, Debug)]
pub struct Detector {
    rule: AlertRule,
    args: RuleArgs,
    signal: AlertSignal,
    memory: Memory,
}

impl Detector {
    /// Creates the rule with these parameters for a series of this signal. `Stall` and `Baseline` never find anything
    /// here.
    pub fn new(rule: AlertRule, args: RuleArgs, signal: AlertSignal) -> Self {
        Self { rule, args: resolved(args, signal), signal, memory: Memory::new(rule, signal) }
    }

    /// Adds the next step's value. Cost: at most one pass over the window.
    pub fn observe(&mut self, value: f64) -> Option<Finding> {
        self.observe_with_norm(value, None)
    }

    /// Adds a loss with the step's gradient norm, which `Collapse` also uses.
    pub fn observe_with_norm(&mut self, value: f64, grad_norm: Option<f64>) -> Option<Finding> {
        self.memory.observe(self.rule, &self.args, value, grad_norm)
    }

    /// The state for a checkpoint.
    ///
    /// # Errors
    /// Never in practice: the state always serializes.
    pub fn state(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(&self.memory)
    }

    /// Restores a saved state.
    ///
    /// # Errors
    /// The value is not a state, or of another rule.
    pub fn load_state(&mut self, state: serde_json::Value) -> Result<(), serde_json::Error> {
        let memory: Memory = serde_json::from_value(state)?;
        if !memory.fits(self.rule, self.signal) {
            return Err(serde::de::Error::custom(format!("the state does not belong to rule {}", self.rule)));
        }
        self.memory = memory;
        Ok(())
    }
}

/// A norm is a spike only above 1.5 times its mean, however little it varies.
const NORM_FLOOR: f64 = 1.5;
/// A loss has a narrower range: recovering from 1.1 times its mean takes long.
const LOSS_FLOOR: f64 = 1.1;

/// The parameters for series of this signal, with defaults filled in.
pub(crate) fn resolved(args: RuleArgs, signal: AlertSignal) -> RuleArgs {
    let own = if signal == AlertSignal::Loss { LOSS_FLOOR } else { NORM_FLOOR };
    RuleArgs { floor: Some(args.floor.unwrap_or(own)), ..args }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;

    pub(super) fn detector(rule: AlertRule) -> Detector {
        Detector::new(rule, RuleArgs::of_rule(rule), AlertSignal::Grad)
    }

    /// A calm series with a slow wave, from a fixed recipe.
    pub(super) fn calm(step: usize) -> f64 {
        1.0 + 0.05 * (step as f64 * 0.7).sin() + 0.03 * (step as f64 * 2.3).cos()
    }

    /// Indices of the values in which the rule found something.
    fn hits(rule: AlertRule, values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        let mut detector = detector(rule);
        values.into_iter().enumerate().filter(|&(_, x)| detector.observe(x).is_some()).map(|(i, _)| i).collect()
    }

    #[test]
    fn nothing_is_found_in_a_calm_a_constant_and_a_zero_series() {
        for rule in AlertRule::ALL.into_iter().filter(|rule| *rule != AlertRule::NormMismatch) {
            let allowed =
                |hits: Vec<usize>| matches!(rule, AlertRule::Dead | AlertRule::UpdateRatio) || hits.is_empty();
            assert!(allowed(hits(rule, (0..3000).map(calm))), "{rule} on a calm series");
            assert!(allowed(hits(rule, std::iter::repeat_n(2.5, 3000))), "{rule} on a constant series");
            assert!(allowed(hits(rule, std::iter::repeat_n(0.0, 3000))), "{rule} on zeros");
        }
        assert_eq!(hits(AlertRule::NormMismatch, [1.0, 1.009, 0.991]), [0usize; 0]);
    }

    #[test]
    fn only_the_rules_for_it_speak_of_values_that_are_not_finite() {
        for rule in AlertRule::ALL {
            let found = hits(rule, (0..300).map(|step| if step % 3 == 0 { NAN } else { calm(step) }));
            let speaks = match rule {
                AlertRule::AnomalyNan | AlertRule::NonFinite => found == (0..300).step_by(3).collect::<Vec<_>>(),
                // A ratio that is no number does not agree; the calm series itself is too far from 1 for it.
                AlertRule::NormMismatch => found.contains(&0),
                // Above 0.01 all along, but a NaN interrupts the row.
                _ => found.is_empty(),
            };
            assert!(speaks, "{rule}: {found:?}");
            let all_nan = hits(rule, std::iter::repeat_n(NAN, 300));
            let expects_all = matches!(rule, AlertRule::AnomalyNan | AlertRule::NonFinite | AlertRule::NormMismatch);
            assert_eq!(all_nan.len(), if expects_all { 300 } else { 0 }, "{rule} on NaN alone");
        }
        assert_eq!(hits(AlertRule::NonFinite, [1.0, INF, -INF, 2.0]), [1, 2]);
        assert_eq!(hits(AlertRule::AnomalyNan, [1.0, INF, -INF, 2.0]), [1, 2]);
        assert_eq!(hits(AlertRule::AnomalyTurbulence, [1.0, INF, 1.0, -INF]), [1, 3]);
    }

    #[test]
    fn a_value_that_is_not_finite_blinds_no_rule() {
        let series = |step: usize| match step {
            200 => NAN,
            201 => INF,
            210 => 30.0,
            _ => calm(step),
        };
        for rule in [AlertRule::Spike, AlertRule::AnomalyTurbulence] {
            assert!(hits(rule, (0..400).map(series)).contains(&210), "{rule}");
        }
        let sinking = |step: usize| if step == 500 { NAN } else { calm(step) / if step < 600 { 1.0 } else { 100.0 } };
        assert!(hits(AlertRule::Vanishing, (0..900).map(sinking)).len() > 100);
        let rising = |step: usize| if step == 500 { INF } else { calm(step) * if step < 600 { 1.0 } else { 3.0 } };
        assert!(hits(AlertRule::Drift, (0..900).map(rising)).len() > 100);
        assert_eq!(hits(AlertRule::Dead, (0..40).map(|step| if step == 5 { NAN } else { 0.0 }))[0], 15);
    }

    #[test]
    fn a_resumed_detector_finds_what_one_that_was_never_stopped_finds() {
        let series = |step: usize| match step % 97 {
            13 => 4.0 * calm(step),
            14 => NAN,
            40..=60 => 0.0,
            _ => calm(step) * (1.0 + step as f64 / 300.0),
        };
        for rule in AlertRule::ALL {
            let values: Vec<f64> = (0..700).map(series).collect();
            let mut whole = detector(rule);
            let expected: Vec<Option<Finding>> = values.iter().map(|&value| whole.observe(value)).collect();
            for stop in [0, 1, 63, 64, 65, 128, 300, 512, 699] {
                let mut first = detector(rule);
                for &value in &values[..stop] {
                    first.observe(value);
                }
                let text = first.state().unwrap().to_string();
                let mut second = detector(rule);
                second.load_state(serde_json::from_str(&text).unwrap()).unwrap();
                let found: Vec<_> = values[stop..].iter().map(|&value| second.observe(value)).collect();
                assert_eq!(format!("{found:?}"), format!("{:?}", &expected[stop..]), "{rule}, stopped at {stop}");
            }
        }
    }

    #[test]
    fn a_state_of_another_rule_is_refused() {
        let state = detector(AlertRule::Spike).state().unwrap();
        let error = detector(AlertRule::Drift).load_state(state).unwrap_err();
        assert!(error.to_string().contains("not belong to rule Drift"), "{error}");
    }
}
