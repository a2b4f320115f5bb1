//! The tolerance between two runs of the same code: four limits, each with its reason.
//!
//! ```text
//! difference / magnitude  >  printed digits + largest of ( round-off | growth | spread of golden runs )   ─▶ they diverge
//! ```
//!
//! - **Printed digits**: half a unit of the last decimal, for either run.
//! - **Round-off**: the effect of another summation order in one step, from equal inputs.
//! - **Growth**: noise grows steadily during a training, a fault jumps. A series may differ by ten times as much as it,
//!   or the median of its kind, ever did before; by more if earlier quantities in the same step have grown more.
//! - **Spread**: with several golden runs, their differences from each other, now or before.

use serde::Serialize;
use trainmon_core::Dtype;
use trainmon_noise::{of_sum, unit_roundoff};

/// The allowed growth of a series from one common step to the next. Trainings that differ only in the summation order
/// stay below 5 from the fifth step on (`offline/tests/scripts/make_monitor_runs.py`).
pub(super) const GROWTH: f64 = 10.0;
/// A series that differs by this factor more than ever before counts although round-off of one step might explain it:
/// if a fault shows in the same step, it began there.
pub(super) const FAINT_GROWTH: f64 = 30.0;
/// The allowed growth in the first steps, in which an optimizer turns round-off into full-size updates (Adam divides a
/// tiny gradient by itself) and a series has no history.
pub(super) const EARLY_GROWTH: f64 = 100.0;
/// The growth that earlier quantities in a step may pass on to later ones.
pub(super) const MOST_UPSTREAM_GROWTH: f64 = 10.0;
/// The number of first steps.
pub(super) const EARLY_STEPS: u32 = 4;
/// The number of layers that a rounding error passes, including cancellation in their sums.
const DEPTH: f64 = 64.0;
/// The same for single elements.
const ELEMENT_DEPTH: f64 = 8.0;
/// The number of roundings of an element from equal inputs, as in an optimizer.
const ROUNDINGS: f64 = 16.0;
/// The assumed length if the files contain no shape.
const UNKNOWN_LENGTH: f64 = 1024.0;
/// A gradient this far below the median of its kind is the rest of cancelling sums, hence only round-off, such as that
/// of a key's bias in attention.
const NOTHING_BUT_ROUNDOFF: f64 = 1e-4;
/// The same for elements of 8 or 11 bits.
const NOTHING_BUT_ROUNDOFF_16: f64 = 2e-2;
/// The lower limit for a tensor's magnitude, as a share of the median of its kind.
pub(super) const LEAST_SHARE: f64 = 1e-2;
/// After this many bitwise equal steps, the code counts as deterministic, and no difference is noise.
pub(super) const DETERMINISTIC_STEPS: u64 = 3;
/// The tolerance for a setting that was computed in float64 twice.
pub(super) const SETTING: f64 = 1e-9;
/// The tolerance for statistics, which are sums in float64 themselves.
pub(super) const SAME_BITS: f64 = 1e-12;

trainmon_core::named_enum! {
    /// The origin of a tolerance; printed after the number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum BoundSource: words {
        /// The number of printed decimals.
        PrintedDigits = "printed digits",
        /// Another summation order.
        RoundOff = "round-off of one step",
        /// Ten times the previous value of the series, or of the median of its kind.
        Growth = "growth of the noise so far",
        /// The differences between golden runs.
        GoldenSpread = "spread of the golden runs",
        /// The runs were bitwise equal for several steps.
        EqualUntilThen = "equal to the last digit until then",
        /// A setting or whole numbers, which are not rounded.
        Exact = "a setting or whole numbers: no noise",
        /// NaN, infinity or another shape in one run: no tolerance applies.
        NoBound = "no bound holds",
    }
}

/// A tolerance for a difference, relative to the magnitude of the quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) source: BoundSource,
}

/// The class of a statistic, for judging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatisticClass {
    /// A sum over all elements, in which errors of elements cancel.
    Norm,
    /// The same for signed elements: its magnitude is that of the elements, not its own.
    Mean,
    /// A single element.
    Extreme,
    /// A share of elements: noise moves an element over a threshold.
    Share,
    /// A count of NaN or infinities.
    Count,
    /// A plain number.
    Plain,
    /// Says nothing about the difference of tensors.
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

/// How a tensor's numbers are computed, for judging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindClass {
    /// Long sums.
    Reduction,
    /// Computed from gradients, each element separately: moments, updates.
    Elementwise,
    /// Changed slightly by `Elementwise` quantities.
    Parameter,
    /// Set, not computed: the learning rate.
    Exact,
}

/// The position of a kind in a step's order of causes and effects: the start of the step, forward, loss, backward,
/// reduction, optimizer. Moments are measured before their update, so they belong to the start.
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
        // Collectives, and tensors that a script passes.
        _ => 7,
    }
}

/// Whether rows of a kind are in the order of their computation.
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

/// The properties of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowFacts {
    pub(super) kind: KindClass,
    /// The number of elements and the longest dimension.
    pub(super) size: Option<(f64, f64)>,
    /// The unit round-off of its elements.
    pub(super) unit: f64,
    /// The coarsest unit round-off of the computation.
    pub(super) coarsest: f64,
    /// Whether an earlier quantity in the run differs, so that the row was not computed from equal inputs.
    pub(super) has_noisy_inputs: bool,
}

/// Whether the row has no noise: a setting, or whole numbers.
pub(super) fn is_exact(row: RowFacts) -> bool {
    row.kind == KindClass::Exact || row.unit == 0.0
}

/// The largest effect of another summation order on a statistic in one step, relative to its magnitude.
///
/// A sum of `k` terms has an error of about `u √k`. Matrix products are summed in float32 or finer, and `k` is about
/// the longest dimension. Moments are computed from gradients, which are such sums. Elements of a coarser type are also
/// rounded individually. In a norm over `n` elements this error decreases, but not with `√n`, because their errors are
/// correlated.
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

/// The effect of another summation order on the longest sums of a network in one step.
pub(super) fn of_long_sums(unit: f64) -> f64 {
    DEPTH * of_sum(unit, UNKNOWN_LENGTH)
}

/// Whether a gradient this small compared with its kind is only round-off. Unknown for one that is printed as 0 with
/// few digits.
pub(super) fn is_nothing(magnitude: f64, median: f64, coarsest: f64, is_rounded: bool) -> bool {
    let share = if coarsest > unit_roundoff(Dtype::F32) { NOTHING_BUT_ROUNDOFF_16 } else { NOTHING_BUT_ROUNDOFF };
    (magnitude > 0.0 || is_rounded) && magnitude < share * median
}

/// The factor on the spread of the golden runs: the fewer there are, the less reliable it is.
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
