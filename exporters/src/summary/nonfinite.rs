//! Elements that are NaN or infinite, counted or betrayed.

use trainmon_core::{Kind, Reading, Statistic};

use crate::MeasuredStatistics;

/// NaN and infinite elements. Where they were not counted, a statistic that is not finite proves at least one.
pub(crate) fn nonfinite_elements(reading: &Reading, kind: Kind, measured: MeasuredStatistics) -> u64 {
    let has = |statistic| measured.of(kind).contains(statistic);
    let counted = reading.nonfinite();
    if counted > 0 || (has(Statistic::Nans) && has(Statistic::Infs)) || reading.shape.elements() == 0 {
        return counted;
    }
    let betrays = |statistic| has(statistic) && !reading.value(statistic).is_finite();
    let betrayed =
        [Statistic::Norm, Statistic::Mean, Statistic::AbsMax, Statistic::Min, Statistic::Max].into_iter().any(betrays);
    u64::from(betrayed)
}

#[cfg(test)]
mod tests {
    use trainmon_core::StatisticSet;

    use super::*;

    #[test]
    fn a_nan_norm_betrays_an_element_nobody_counted() {
        let mut measured = MeasuredStatistics::everything();
        let counted = Reading { nans: 3, infs: 2, ..Reading::of_value(f64::NAN) };
        assert_eq!(nonfinite_elements(&counted, Kind::GradReduced, measured), 5);
        measured.set(Kind::GradReduced, StatisticSet::EMPTY.with(Statistic::Norm));
        let uncounted = Reading { nans: 0, ..Reading::of_value(f64::NAN) };
        assert_eq!(nonfinite_elements(&uncounted, Kind::GradReduced, measured), 1);
        let finite_norm = Reading { norm: 1.0, ..uncounted };
        assert_eq!(nonfinite_elements(&finite_norm, Kind::GradReduced, measured), 0);
    }
}
