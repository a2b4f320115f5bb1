//! The tolerance of a result, and its source.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use trainmon_capture_files::Operator;

use super::condition::condition;
use super::deviation::{What, deviation};
use super::input::Capture;
use super::item::Item;
use super::name::OperatorName;
use super::rounding::{Positions, coarsest, rounding};
use super::thresholds::Thresholds;

/// The inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'j> {
    /// The thresholds.
    pub thresholds: &'j Thresholds,
    /// The variation between baselines, if there are several.
    pub spreads: Option<&'j GoldenSpreads>,
    /// The lengths of sums in parameter gradients of the operators' capture.
    pub positions: &'j Positions<'j>,
}

/// The tolerance of a result in conditions: errors of several inputs add up.
const CONDITIONS: f64 = 2.0;

/// A tolerance and its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    /// The tolerance, relative to the value's size.
    pub bound: f64,
    /// The source.
    pub source: BoundSource,
}

impl Bound {
    /// This tolerance, or the variation between baselines if larger.
    pub(crate) fn or_spread(self, spread: f64) -> Self {
        if spread > self.bound { Self { bound: spread, source: BoundSource::Spread } } else { self }
    }
}

/// The source of a tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BoundSource {
    /// The round-off of sums in another order, with equal inputs.
    Rounding,
    /// The amplified difference of the inputs, and round-off.
    Inputs {
        /// The largest difference of an input.
        input: f64,
    },
    /// The variation between baselines.
    Spread,
    /// The thresholds file.
    Thresholds,
    /// No difference allowed: arguments, data, checksums of values that no operator computed.
    Exact,
}

impl BoundSource {
    /// The text for tables.
    pub(crate) fn words(self) -> Cow<'static, str> {
        match self {
            Self::Inputs { input } => format!("inputs differ by {input:.1e}, plus round-off").into(),
            Self::Rounding => "round-off".into(),
            Self::Spread => "spread of the baselines".into(),
            Self::Thresholds => "thresholds".into(),
            Self::Exact => "exact".into(),
        }
    }
}

impl Judge<'_> {
    /// The tolerance of an operator's outputs if its inputs differ by `input`.
    pub(crate) fn bound(&self, operator: &Operator, input: f64) -> Bound {
        let name = OperatorName::parse(&operator.name);
        if let Some(bound) = name.and_then(|name| self.thresholds.of_operator(name)) {
            return Bound { bound, source: BoundSource::Thresholds };
        }
        let is_module = name.is_some_and(|name| name.family() == "Module");
        let growth = if is_module { self.thresholds.module_growth } else { self.thresholds.growth };
        let condition = condition(operator, name);
        let rounding = self.thresholds.rounding_factor * rounding(operator, self.positions);
        let rounding = rounding.min(self.thresholds.ceiling.max(coarse(operator)));
        // The rounding of each input to its dtype is an error too, and grows like the others.
        let (growth, rounding) = (growth.max(CONDITIONS * condition), rounding.max(condition * coarsest(operator)));
        let source = if input > 0.0 { BoundSource::Inputs { input } } else { BoundSource::Rounding };
        Bound { bound: input * growth + rounding, source }
    }

    /// The variation of a baseline value between baselines; 0 if unknown.
    pub(crate) fn spread(&self, golden: &Operator, place: &str) -> f64 {
        let known = self.spreads.and_then(|spreads| spreads.of.get(&*golden.name)?.get(place));
        known.map_or(0.0, |spread| spread * self.thresholds.spread_factor)
    }
}

/// A few units of round-off: more than any ceiling if the dtype itself is coarse.
pub(crate) fn coarse(operator: &Operator) -> f64 {
    8.0 * coarsest(operator)
}

/// The variation between baselines, value by value.
#[derive(Clone, Debug, Default)]
pub struct GoldenSpreads {
    of: HashMap<Box<str>, HashMap<Arc<str>, f64>>,
}

impl GoldenSpreads {
    /// Adds another baseline of the same rank and step. Values that only one of them has stay unknown.
    pub fn add(&mut self, golden: &Capture, other: &Capture) {
        let others: HashMap<&str, &Operator> =
            other.document.operators.iter().map(|operator| (&*operator.name, operator)).collect();
        for operator in &golden.document.operators {
            let Some(other) = others.get(&*operator.name) else { continue };
            let places = self.of.entry(operator.name.clone()).or_default();
            for value in &operator.values {
                let Some(twin) = other.values.iter().find(|twin| twin.place == value.place) else { continue };
                let apart = deviation(Item { operator: other, value: twin }, Item { operator, value });
                // An argument that varies between baselines, such as a seed, is not compared.
                let is_measured = apart.relative.is_finite() || apart.what == What::Argument;
                if is_measured && apart.what != What::Unseen {
                    let spread = places.entry(value.place.clone()).or_insert(0.0);
                    *spread = spread.max(apart.relative);
                }
            }
        }
    }
}
