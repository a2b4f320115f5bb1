//! The number of elements that are NaN or infinite, counted or inferred.

use trainmon_core::{Kind, Reading, Statistic};

use crate::MeasuredStatistics;

/// The number of NaN and infinite elements. If they were not counted, a statistic that is not finite proves at least
/// one.
pub(crate) fn nonfinite_elements(reading: &Reading, kind: Kind, measured: MeasuredStatistics) -> u64 {
    let has = |statistic| measured.of(kind).contains(statistic);
    let stats = match reading {
        Reading::Tensor(stats) => stats,
        // The other plain numbers are about the first.
        Reading::Values(values) => return u64::from(values.get().first().is_some_and(|first| !first.is_finite())),
    };
    let counted = stats.nonfinite();
    if counted > 0 || (has(Statistic::Nans) && has(Statistic::Infs)) || stats.shape.elements() == 0 {
        return counted;
    }
    let betrays = |statistic| has(statistic) && !stats.value(statistic).is_finite();
    let betrayed =
        [Statistic::Norm, Statistic::Mean, Statistic::AbsMax, Statistic::Min, Statistic::Max].into_iter().any(betrays);
    u64::from(betrayed)
}

#[cfg(test)]
mod tests {
    use trainmon_core::{StatisticSet, TensorStats};

    use super::*;

    #[test]
    fn a_nan_norm_betrays_an_element_nobody_counted() {
        let mut measured = MeasuredStatistics::everything();
        let counted = TensorStats { nans: 3, infs: 2, ..TensorStats::of_value(f64::NAN) };
        assert_eq!(nonfinite_elements(&counted.into(), Kind::GradReduced, measured), 5);
        measured.set(Kind::GradReduced, StatisticSet::EMPTY.with(Statistic::Norm));
        let uncounted = TensorStats { nans: 0, ..TensorStats::of_value(f64::NAN) };
        assert_eq!(nonfinite_elements(&uncounted.into(), Kind::GradReduced, measured), 1);
        let finite_norm = TensorStats { norm: 1.0, ..uncounted };
        assert_eq!(nonfinite_elements(&finite_norm.into(), Kind::GradReduced, measured), 0);
    }
}
