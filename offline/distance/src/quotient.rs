//! How a difference relates to the size of the value.

/// The precision of relative differences. If the baseline is 0, the epsilon of the type is added to both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotient {
    /// In float32, as msprobe does for tensors of at most that precision.
    Single,
    /// In float64.
    Double,
}

impl Quotient {
    pub(crate) fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Double if b == 0.0 => (a + f64::EPSILON - f64::EPSILON).abs() / f64::EPSILON,
            Self::Double => ((a - b) / b).abs(),
            Self::Single => {
                let (a, b) = (a as f32, b as f32);
                let (a, b) = if b == 0.0 { (a + f32::EPSILON, f32::EPSILON) } else { (a, b) };
                f64::from(((a - b) / b).abs())
            }
        }
    }
}
