//! By what a tensor is known again without its elements.

use trainmon_capture_files::TensorFacts;

/// By what a tensor is known again: views and transposes keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint {
    elements: u64,
    max: u64,
    min: u64,
}

impl Fingerprint {
    /// A tensor's.
    pub(super) fn of(tensor: &TensorFacts) -> Self {
        let bits = |at: usize| tensor.statistics[at].number().map_or(u64::MAX, f64::to_bits);
        Self { elements: tensor.elements().unwrap_or(0), max: bits(0), min: bits(1) }
    }

    /// The same of what has the other sign.
    pub(super) fn negated(self) -> Self {
        let negated = |bits: u64| if bits == u64::MAX { bits } else { (-f64::from_bits(bits)).to_bits() };
        Self { elements: self.elements, max: negated(self.min), min: negated(self.max) }
    }
}
