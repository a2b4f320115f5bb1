//! How far a result may be from its counterpart, and where that bound comes from.

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

/// What decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'j> {
    /// The numbers.
    pub thresholds: &'j Thresholds,
    /// How far golden runs are apart, if there are several.
    pub spreads: Option<&'j GoldenSpreads>,
    /// Over how much the parameters' gradients of the operators' capture are summed.
    pub positions: &'j Positions<'j>,
}

/// Errors of several inputs add up: a result may be apart by so many times its condition.
const CONDITIONS: f64 = 2.0;

/// A bound and its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    /// A part of the value's own size.
    pub bound: f64,
    /// Where it comes from.
    pub source: Source,
}

impl Bound {
    /// This bound, or how far golden runs are apart where that is more.
    pub(crate) fn or_spread(self, spread: f64) -> Self {
        if spread > self.bound { Self { bound: spread, source: Source::Spread } } else { self }
    }
}

/// Where a bound comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// The round-off of sums in another order, inputs being the same.
    Rounding,
    /// What the inputs are apart, grown; and round-off.
    Inputs {
        /// The largest difference of an input.
        input: f64,
    },
    /// How far golden runs are apart.
    Spread,
    /// A line of the thresholds' file.
    Thresholds,
    /// Nothing may differ here: arguments, data, checksums of what nobody computed.
    Exact,
}

impl Source {
    /// The words for it.
    pub(crate) fn words(self) -> Cow<'static, str> {
        match self {
            Self::Inputs { input } => format!("inputs apart by {input:.1e}, and round-off").into(),
            Self::Rounding => "round-off".into(),
            Self::Spread => "spread of the golden runs".into(),
            Self::Thresholds => "thresholds".into(),
            Self::Exact => "exact".into(),
        }
    }
}

impl Judge<'_> {
    /// What an operator's outputs may be apart by if its inputs are apart by `input`.
    pub(crate) fn bound(&self, operator: &Operator, input: f64) -> Bound {
        let name = OperatorName::parse(&operator.name);
        if let Some(bound) = name.and_then(|name| self.thresholds.of_operator(name)) {
            return Bound { bound, source: Source::Thresholds };
        }
        let is_module = name.is_some_and(|name| name.family() == "Module");
        let growth = if is_module { self.thresholds.module_growth } else { self.thresholds.growth };
        let condition = condition(operator, name);
        let rounding = self.thresholds.rounding_factor * rounding(operator, self.positions);
        let rounding = rounding.min(self.thresholds.ceiling.max(coarse(operator)));
        // Each input is rounded to its dtype: that is an error too, and grows as others do.
        let (growth, rounding) = (growth.max(CONDITIONS * condition), rounding.max(condition * coarsest(operator)));
        let source = if input > 0.0 { Source::Inputs { input } } else { Source::Rounding };
        Bound { bound: input * growth + rounding, source }
    }

    /// What a value of the golden may be apart by for its golden runs' sake; 0 where nothing is known.
    pub(crate) fn spread(&self, golden: &Operator, place: &str) -> f64 {
        let known = self.spreads.and_then(|spreads| spreads.of.get(&*golden.name)?.get(place));
        known.map_or(0.0, |spread| spread * self.thresholds.spread_factor)
    }
}

/// A few units of round-off: more than any ceiling where the dtype itself is coarse.
pub(crate) fn coarse(operator: &Operator) -> f64 {
    8.0 * coarsest(operator)
}

/// How far golden runs are apart, value by value.
#[derive(Clone, Debug, Default)]
pub struct GoldenSpreads {
    of: HashMap<Box<str>, HashMap<Arc<str>, f64>>,
}

impl GoldenSpreads {
    /// Takes in another golden run of the same rank and step. What only one of them has is not known.
    pub fn add(&mut self, golden: &Capture, other: &Capture) {
        let others: HashMap<&str, &Operator> =
            other.document.operators.iter().map(|operator| (&*operator.name, operator)).collect();
        for operator in &golden.document.operators {
            let Some(other) = others.get(&*operator.name) else { continue };
            let places = self.of.entry(operator.name.clone()).or_default();
            for value in &operator.values {
                let Some(twin) = other.values.iter().find(|twin| twin.place == value.place) else { continue };
                let apart = deviation(Item { operator: other, value: twin }, Item { operator, value });
                // An argument that golden runs have otherwise, as a seed, says nothing.
                let is_measured = apart.relative.is_finite() || apart.what == What::Argument;
                if is_measured && apart.what != What::Unseen {
                    let spread = places.entry(value.place.clone()).or_insert(0.0);
                    *spread = spread.max(apart.relative);
                }
            }
        }
    }
}
