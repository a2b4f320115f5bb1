//! Comparison of the gradient norm that trainmon measures with the framework's: they must agree.

/// The relative tolerance between the two norms. A different order of summation and the epsilon of a clip coefficient
/// stay far below it; a missing scale factor, rank or parameter group exceeds it.
pub const GRAD_NORM_TOLERANCE: f64 = 0.01;

/// The global gradient norm of one step from two sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradNormCheck {
    /// The norm that trainmon measured.
    pub ours: f64,
    /// The norm that the framework reports.
    pub framework: f64,
}

impl GradNormCheck {
    /// `ours` divided by `framework`: 1 for equal norms, including two zeros and two infinities; NaN if either is NaN.
    pub fn ratio(&self) -> f64 {
        if self.ours == self.framework { 1.0 } else { self.ours / self.framework }
    }

    /// Whether the norms agree within [`GRAD_NORM_TOLERANCE`]. Two NaNs agree, and so do two infinities; one alone does
    /// not.
    pub fn agrees(&self) -> bool {
        (self.ours.is_nan() && self.framework.is_nan()) || (self.ratio() - 1.0).abs() <= GRAD_NORM_TOLERANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_part_beyond_one_percent_and_where_one_side_is_not_finite() {
        const INF: f64 = f64::INFINITY;
        for (ours, framework, agrees) in [
            (1.0, 1.0, true),
            (1.009, 1.0, true),
            (0.991, 1.0, true),
            (1.011, 1.0, false),
            (0.989, 1.0, false),
            (0.0, 0.0, true),
            (1e-30, 0.0, false),
            (0.0, 1.0, false),
            (f64::NAN, f64::NAN, true),
            (f64::NAN, 1.0, false),
            (1.0, f64::NAN, false),
            (INF, INF, true),
            (INF, 1.0, false),
            (1.0, INF, false),
            (INF, f64::NAN, false),
        ] {
            assert_eq!(GradNormCheck { ours, framework }.agrees(), agrees, "{ours} and {framework}");
        }
    }

    #[test]
    fn the_ratio_is_ours_over_the_frameworks() {
        assert_eq!(GradNormCheck { ours: 3.0, framework: 4.0 }.ratio(), 0.75);
        assert_eq!(GradNormCheck { ours: 0.0, framework: 0.0 }.ratio(), 1.0);
        assert!(GradNormCheck { ours: f64::NAN, framework: 1.0 }.ratio().is_nan());
    }
}
