//! How far two runs of the same code may be apart: four bounds, each with its reason.
//!
//! ```text
//! difference / magnitude  >  printed digits + largest of ( round-off | growth | spread of golden runs )   ─▶ they part
//! ```
//!
//! - **Printed digits**: half a unit of the last decimal, of either run.
//! - **Round-off**: what another order of summing gives in one step, from equal inputs.
//! - **Growth**: noise grows steadily along a training, a fault jumps. A series may be ten times as far apart as it, or the
//!   median of its kind, ever was before; and more where what comes before it in the same step has grown more.
//! - **Spread**: with several golden runs, how far these are from one another, now or before.

use serde::Serialize;
use trainmon_core::Dtype;
use trainmon_noise::{of_sum, unit_roundoff};

/// A series may grow by this factor from one common step to the next. Trainings that differ in the order of summing only
/// stay below 5 from the fifth step on (`offline/tests/scripts/make_monitor_runs.py`).
pub(super) const GROWTH: f64 = 10.0;
/// A series this many times as far apart as ever before, though round-off of one step might explain it: where a fault shows in
/// the same step, it began there.
pub(super) const FAINT_GROWTH: f64 = 30.0;
/// In its first steps an optimizer turns round-off into whole steps (Adam divides a gradient near nothing by itself), and a
/// series has no past to be measured by: this factor instead.
pub(super) const EARLY_GROWTH: f64 = 100.0;
/// What comes before may have grown by this factor in a step, and what follows from it with it.
pub(super) const MOST_UPSTREAM_GROWTH: f64 = 10.0;
/// So many steps are first ones.
pub(super) const EARLY_STEPS: u32 = 4;
/// Layers a rounding error goes through, and what cancels in their sums.
const DEPTH: f64 = 64.0;
/// As above of single elements.
const ELEMENT_DEPTH: f64 = 8.0;
/// Roundings of an element from equal inputs, as in an optimizer.
const ROUNDINGS: f64 = 16.0;
/// Lengths where the files tell no shape.
const UNKNOWN_LENGTH: f64 = 1024.0;
/// A gradient this far below the median of its kind is what is left of sums that cancel: round-off and nothing else, such as
/// that of a key's bias in attention.
const NOTHING_BUT_ROUNDOFF: f64 = 1e-4;
/// As above where elements have 8 or 11 bits.
const NOTHING_BUT_ROUNDOFF_16: f64 = 2e-2;
/// A tensor's magnitude counts as no less than this share of the median of its kind.
pub(super) const LEAST_SHARE: f64 = 1e-2;
/// So many steps equal to the last digit: the code gives the same bits each time, and no difference is noise.
pub(super) const DETERMINISTIC_STEPS: u64 = 3;
/// A setting that was computed in float64 twice.
pub(super) const SETTING: f64 = 1e-9;
/// The statistics are sums in float64 themselves.
pub(super) const SAME_BITS: f64 = 1e-12;

trainmon_core::named_enum! {
    /// Where a bound comes from; its words stand behind the number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum BoundSource: words {
        /// The decimals that were printed.
        PrintedDigits = "printed digits",
        /// Another order of summing.
        RoundOff = "round-off of one step",
        /// What the series, or the median of its kind, has shown before, times ten.
        Growth = "growth of the noise so far",
        /// How far golden runs are from one another.
        GoldenSpread = "spread of the golden runs",
        /// The runs were equal to the last digit for several steps.
        EqualUntilThen = "equal to the last digit until then",
        /// A setting or whole numbers: nothing is rounded.
        Exact = "a setting or whole numbers: no noise",
        /// NaN, infinity or another shape on one side: no bound.
        NoBound = "no bound holds",
    }
}

/// A bound on a difference, relative to the magnitude of what differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) source: BoundSource,
}

/// What a statistic is, for judging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatisticClass {
    /// A sum over all elements: errors of elements cancel.
    Norm,
    /// As above, of signed elements: its magnitude is that of the elements, not its own.
    Mean,
    /// One element.
    Extreme,
    /// A share of elements: noise moves an element over a threshold.
    Share,
    /// A count of NaN or infinities.
    Count,
    /// A number of its own.
    Plain,
    /// Says nothing about how far apart tensors are.
    NotJudged,
}

impl StatisticClass {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "norm" | "std" => Self::Norm,
            "mean" => Self::Mean,
            "min" | "max" | "absmax" => Self::Extreme,
            "zeros" => Self::Share,
            "nans" | "infs" => Self::Count,
            "id" | "crc32" | "xor64" | "count" => Self::NotJudged,
            _ => Self::Plain,
        }
    }
}

/// What becomes of a tensor's numbers, for judging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindClass {
    /// Long sums.
    Reduction,
    /// Made of gradients, each element for itself: moments, updates.
    Elementwise,
    /// Changed a little by those.
    Parameter,
    /// Set, not computed: the learning rate.
    Exact,
}

/// Place of a kind in a step's chain of cause and effect: what a step starts from, forward, loss, backward, aggregation, the
/// optimizer. Moments are measured before they are brought up to date, so they belong to what it starts from.
pub fn place_of(kind: &str, name: &str) -> u8 {
    match (kind, name) {
        ("param_origin", _) => 0,
        (
            "exp_avg" | "exp_avg_sq" | "max_exp_avg_sq" | "momentum_buffer" | "square_avg" | "grad_avg" | "sum"
            | "optimizer_state",
            _,
        ) => 1,
        ("linear_hook" | "moe_router_weight_hook", _) => 2,
        ("actv" | "attention_hook" | "moe_router_logit_hook", _) => 3,
        ("run", "loss") => 4,
        ("actv_grad", _) => 5,
        ("grad_unreduced", _) => 6,
        ("grad_reduced", _) => 8,
        ("run", "grad_norm") => 9,
        ("run", "learning_rate") => 10,
        ("mg_direction" | "update" | "update_ratio", _) => 11,
        ("param_updated", _) => 12,
        // Collectives, and what a script shows of its own accord.
        _ => 7,
    }
}

/// Whether rows of a kind stand in the order in which they came to be.
pub(super) fn is_in_order(kind: &str) -> bool {
    matches!(kind, "actv" | "actv_grad" | "grad_unreduced" | "comm" | "cc" | "adhoc")
}

pub(super) fn class_of(kind: &str, name: &str) -> KindClass {
    match place_of(kind, name) {
        0 | 12 => KindClass::Parameter,
        1 | 11 => KindClass::Elementwise,
        10 => KindClass::Exact,
        _ => KindClass::Reduction,
    }
}

/// What is known of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowFacts {
    pub(super) kind: KindClass,
    /// Elements and longest dimension.
    pub(super) size: Option<(f64, f64)>,
    /// Unit round-off of its elements.
    pub(super) unit: f64,
    /// The coarsest unit round-off of anything that was computed with.
    pub(super) coarsest: f64,
    /// Whether something before it in the run differs: then it was not computed from equal inputs.
    pub(super) has_noisy_inputs: bool,
}

/// Whether there is no noise in it: a setting, or whole numbers.
pub(super) fn is_exact(row: RowFacts) -> bool {
    row.kind == KindClass::Exact || row.unit == 0.0
}

/// How far another order of summing can take a statistic in one step, relative to its magnitude.
///
/// A sum of `k` terms is off by about `u √k`; matrix products are summed in float32 at the coarsest, and `k` is about the
/// longest dimension. Moments are made of gradients, which are such sums. Elements of a coarser type are rounded besides, each for itself: in a norm over `n` of them that goes
/// down, though not with `√n`, since their errors hang together.
pub(super) fn round_off(statistic: StatisticClass, row: RowFacts) -> f64 {
    let (elements, longest) = row.size.unwrap_or((UNKNOWN_LENGTH, UNKNOWN_LENGTH));
    if statistic == StatisticClass::Share {
        return 4.0 / elements.max(1.0) + 1e-3;
    }
    if row.kind == KindClass::Parameter || (row.kind == KindClass::Elementwise && !row.has_noisy_inputs) {
        return ROUNDINGS * row.unit;
    }
    let coarsest = row.unit.max(row.coarsest);
    let summed_in = coarsest.min(unit_roundoff(Dtype::F32));
    let of_sums = of_sum(summed_in, longest);
    let of_elements = match statistic {
        _ if coarsest <= summed_in => 0.0,
        StatisticClass::Extreme => coarsest,
        _ => coarsest / elements.max(1.0).powf(0.25),
    };
    DEPTH * of_sums + ELEMENT_DEPTH * of_elements
}

/// How far another order of summing takes the longest sums of a network in one step.
pub(super) fn of_long_sums(unit: f64) -> f64 {
    DEPTH * of_sum(unit, UNKNOWN_LENGTH)
}

/// Whether a gradient this small beside its like is nothing but round-off; of one that is printed as 0 with few digits nobody
/// knows.
pub(super) fn is_nothing(magnitude: f64, median: f64, coarsest: f64, is_rounded: bool) -> bool {
    let share = if coarsest > unit_roundoff(Dtype::F32) { NOTHING_BUT_ROUNDOFF_16 } else { NOTHING_BUT_ROUNDOFF };
    (magnitude > 0.0 || is_rounded) && magnitude < share * median
}

/// How much a golden run may differ from those it is measured with: the fewer there are, the less they tell.
pub(super) fn spread_factor(golden_runs: usize) -> f64 {
    match golden_runs {
        0..=2 => 10.0,
        3 => 6.0,
        _ => 4.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: f64 = 5.960_464_477_539_063e-8;

    fn row(kind: KindClass, elements: f64, longest: f64, unit: f64) -> RowFacts {
        RowFacts { kind, size: Some((elements, longest)), unit, coarsest: 0.0, has_noisy_inputs: false }
    }

    #[test]
    fn round_off_grows_with_the_length_of_the_sum_and_the_coarseness_of_the_type() {
        let norm = |row| round_off(StatisticClass::Norm, row);
        let small = norm(row(KindClass::Reduction, 64.0, 8.0, F32));
        let large = norm(row(KindClass::Reduction, 1e6, 1024.0, F32));
        let half = norm(row(KindClass::Reduction, 1e6, 1024.0, 2f64.powi(-8)));
        assert!(small < large && large < 2e-4 && large < half && half < 0.01, "{small} {large} {half}");
        assert_eq!(norm(row(KindClass::Elementwise, 1e6, 1024.0, F32)), 16.0 * F32);
    }

    #[test]
    fn settings_and_whole_numbers_have_no_noise() {
        assert!(is_exact(row(KindClass::Exact, 1.0, 1.0, F32)));
        assert!(is_exact(row(KindClass::Reduction, 1e6, 1024.0, 0.0)));
        assert!(!is_exact(row(KindClass::Elementwise, 1e6, 1024.0, F32)));
    }

    #[test]
    fn a_gradient_in_float32_of_a_computation_in_bfloat16_is_as_coarse_as_that() {
        let mut facts = row(KindClass::Reduction, 1e6, 1024.0, F32);
        let fine = round_off(StatisticClass::Norm, facts);
        facts.coarsest = 2f64.powi(-8);
        assert!(round_off(StatisticClass::Norm, facts) > 5.0 * fine);
    }

    #[test]
    fn a_step_begins_with_what_it_starts_from_and_ends_with_the_update() {
        let order = ["param_origin", "exp_avg", "actv", "actv_grad", "grad_unreduced", "grad_reduced", "param_updated"];
        let places: Vec<u8> = order.iter().map(|kind| place_of(kind, "fc.weight")).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(
            place_of("actv", "x") < place_of("run", "loss") && place_of("run", "loss") < place_of("actv_grad", "x")
        );
    }
}
