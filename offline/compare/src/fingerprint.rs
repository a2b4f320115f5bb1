//! Fingerprints that identify a tensor without its elements.

use trainmon_capture_files::TensorFacts;

/// A fingerprint of a tensor that views and transposes keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint {
    elements: u64,
    max: u64,
    min: u64,
}

impl Fingerprint {
    /// The fingerprint of a tensor.
    pub(super) fn of(tensor: &TensorFacts) -> Self {
        let bits = |at: usize| tensor.statistics[at].number().map_or(u64::MAX, f64::to_bits);
        Self { elements: tensor.elements().unwrap_or(0), max: bits(0), min: bits(1) }
    }

    /// The fingerprint of the negated tensor.
    pub(super) fn negated(self) -> Self {
        let negated = |bits: u64| if bits == u64::MAX { bits } else { (-f64::from_bits(bits)).to_bits() };
        Self { elements: self.elements, max: negated(self.min), min: negated(self.max) }
    }
}
