//! The ways in which our files may differ from msprobe's, each with its reason.

/// A listed difference. `docs/msprobe-compatibility.md` explains each by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deviation {
    SummationOrder,
    RatioInFloat64,
    CountsStayIntegers,
    BoolColumnUnrounded,
    V2InFloat64,
    V2UnreducedRows,
    V2MoreStatistics,
    MoreMoments,
    StepsFile,
    DirectionNotRecorded,
    CollectTimesZero,
    RanksWithoutLauncher,
    Float8Measured,
    StaleRows,
    HalfEps,
    SignOfZero,
    MissingIsNoAnomaly,
    FindingPerStatistic,
    NoRuleHidesAnother,
    HistoryStaysFinite,
    FirstSeenOrder,
    LateMoments,
    DynamicFirstStep,
    RealMicroStep,
    CallPerFiring,
}

impl Deviation {
    pub(crate) const ALL: [Self; 25] = [
        Self::SummationOrder,
        Self::RatioInFloat64,
        Self::CountsStayIntegers,
        Self::BoolColumnUnrounded,
        Self::V2InFloat64,
        Self::V2UnreducedRows,
        Self::V2MoreStatistics,
        Self::MoreMoments,
        Self::StepsFile,
        Self::DirectionNotRecorded,
        Self::CollectTimesZero,
        Self::RanksWithoutLauncher,
        Self::Float8Measured,
        Self::StaleRows,
        Self::HalfEps,
        Self::SignOfZero,
        Self::MissingIsNoAnomaly,
        Self::FindingPerStatistic,
        Self::NoRuleHidesAnother,
        Self::HistoryStaysFinite,
        Self::FirstSeenOrder,
        Self::LateMoments,
        Self::DynamicFirstStep,
        Self::RealMicroStep,
        Self::CallPerFiring,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SummationOrder => "summation-order",
            Self::RatioInFloat64 => "ratio-in-float64",
            Self::CountsStayIntegers => "counts-stay-integers",
            Self::BoolColumnUnrounded => "bool-column-unrounded",
            Self::V2InFloat64 => "v2-in-float64",
            Self::V2UnreducedRows => "v2-unreduced-rows",
            Self::V2MoreStatistics => "v2-more-statistics",
            Self::MoreMoments => "more-moments",
            Self::StepsFile => "steps-file",
            Self::DirectionNotRecorded => "direction-not-recorded",
            Self::CollectTimesZero => "collect-times-zero",
            Self::RanksWithoutLauncher => "ranks-without-launcher",
            Self::Float8Measured => "float8-measured",
            Self::StaleRows => "stale-rows",
            Self::HalfEps => "half-eps",
            Self::SignOfZero => "sign-of-zero",
            Self::MissingIsNoAnomaly => "missing-is-no-anomaly",
            Self::FindingPerStatistic => "finding-per-statistic",
            Self::NoRuleHidesAnother => "no-rule-hides-another",
            Self::HistoryStaysFinite => "history-stays-finite",
            Self::FirstSeenOrder => "first-seen-order",
            Self::LateMoments => "late-moments",
            Self::DynamicFirstStep => "dynamic-first-step",
            Self::RealMicroStep => "real-micro-step",
            Self::CallPerFiring => "call-per-firing",
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::SummationOrder => "float64 sums in another order: the last decimal, or a few units in the last place",
            Self::RatioInFloat64 => "msprobe rounds zeros and mg_direction through float32",
            Self::CountsStayIntegers => {
                "pandas turns integers into floats when another row of the column is a float or has no tensor"
            }
            Self::BoolColumnUnrounded => "pandas does not round a module's min and max when one input is bool",
            Self::V2InFloat64 => "msprobe's V2 narrows every statistic to float32",
            Self::V2UnreducedRows => "msprobe's V2 loses its hooks before reduction; we write the rows",
            Self::V2MoreStatistics => {
                "msprobe's V2 drops every statistic but five without a word; we write what is asked"
            }
            Self::MoreMoments => "state of SGD, RMSprop and Adagrad, which msprobe does not look at",
            Self::StepsFile => "steps.csv: loss, norm and the monitor's own cost per step",
            Self::DirectionNotRecorded => "the golden data lacks that step's gradient: nothing to compare",
            Self::CollectTimesZero => "msprobe measures one step when asked for none",
            Self::RanksWithoutLauncher => "msprobe writes nothing when ranks are listed in a run without launcher",
            Self::Float8Measured => "msprobe has nan where torch lacks an operator for float8",
            Self::StaleRows => "msprobe repeats the last numbers of a tensor that had no gradient in this step",
            Self::HalfEps => "msprobe compares float16 with an eps that is zero in float16: nothing is below it",
            Self::SignOfZero => "of zeros with both signs msprobe and we may keep different ones",
            Self::MissingIsNoAnomaly => {
                "msprobe finds NaN in a module's input that has no gradient at all, in every step"
            }
            Self::FindingPerStatistic => {
                "of several statistics of one tensor and step msprobe keeps the last in anomaly.json; we keep each"
            }
            Self::NoRuleHidesAnother => "msprobe asks no further rule after one that fired; we ask all",
            Self::HistoryStaysFinite => "msprobe's running average is NaN for ever after one NaN; ours leaves it out",
            Self::FirstSeenOrder => {
                "msprobe writes modules in the order in which the run first met them, we in the order of the step"
            }
            Self::LateMoments => {
                "msprobe keeps the optimizer state it saw first: moments that come into being later have no rows"
            }
            Self::DynamicFirstStep => {
                "with `dynamic_on` from the start we measure from the first step; msprobe looks at the file when that is over"
            }
            Self::RealMicroStep => "msprobe says micro-batch 0 in every finding; we say which it was",
            Self::CallPerFiring => {
                "msprobe numbers a gradient in every micro-batch as a call, we the one that is measured"
            }
        }
    }
}
