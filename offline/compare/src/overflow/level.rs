//! The severity of an operator's NaN and infinities.

use trainmon_capture_files::{Operator, Section, Value};

use super::non_finite::is_bad;
use crate::name::OperatorName;
use crate::write_only::is_read;

/// The severity, with msprobe's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The inputs contain some, the outputs none.
    Medium,
    /// Inputs and outputs contain some; or the norm grows more than a hundredfold.
    High,
    /// The outputs contain some, the inputs none.
    Critical,
}

impl Level {
    /// The word in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// The growth of a norm that indicates a coming overflow.
const GROWTH: f64 = 100.0;

/// An operator's level; `None` if it has no anomaly. Unwritten memory and receive buffers are ignored.
pub fn level(operator: &Operator) -> Option<Level> {
    let name = OperatorName::parse(&operator.name)?;
    if name.gives_unwritten_memory() {
        return None;
    }
    let inputs = || operator.values.iter().filter(move |value| value.section.is_input() && is_read(name, &value.place));
    let outputs = || operator.values.iter().filter(|value| !value.section.is_input());
    match (inputs().any(is_bad), outputs().any(is_bad)) {
        (false, true) => return Some(Level::Critical),
        (true, true) => return Some(Level::High),
        (true, false) => return Some(Level::Medium),
        (false, false) => {}
    }
    let largest = |norms: &mut dyn Iterator<Item = f64>| norms.filter(|norm| norm.is_finite()).fold(0.0, f64::max);
    let input = largest(&mut inputs().filter_map(norm));
    let output = largest(&mut outputs().filter_map(norm));
    let grows = if input == 0.0 { output > GROWTH } else { output / input > GROWTH };
    (grows && operator.values.iter().any(|value| value.section == Section::Input)).then_some(Level::High)
}

fn norm(value: &Value) -> Option<f64> {
    value.tensor()?.statistics[3].number()
}
