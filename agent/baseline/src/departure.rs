//! A deviation of a series from the golden run, as text and numbers.

use std::fmt;

use crate::found::Divergence;
use crate::levels::Excess;
use crate::names::TensorKey;
use crate::noise::{is_in_order, place_of};
use crate::numbers::short;

/// The range of values that would not have been a deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The lower limit.
    pub lower: f64,
    /// The upper limit.
    pub upper: f64,
}

/// A series beyond run-to-run variation, in the first step in which it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Departure {
    /// The step.
    pub step: u64,
    /// The tensor and kind.
    pub tensor: TensorKey,
    /// The statistic; `shape` if the shapes differ.
    pub statistic: String,
    /// The training's value.
    pub target: f64,
    /// The golden run's value; with several golden runs, the geometric mean or the first one's.
    pub golden: f64,
    /// The allowed range; `None` if no tolerance applies.
    pub bounds: Option<Bounds>,
    /// The origin of the allowed range, in words.
    pub source: String,
    /// The deviation divided by the allowed deviation.
    pub excess: f64,
    /// The number of other series that deviate in the same step.
    pub others: usize,
    /// The row of its kind, if rows are in order.
    pub(crate) row: usize,
}

impl Departure {
    /// Converts a divergence of the noise model.
    pub(crate) fn of_divergence(divergence: &Divergence, others: usize) -> Self {
        let Divergence {
            step, tensor, statistic, target, golden, difference, bound, bound_source, note, place, ..
        } = divergence;
        let scale = (target - golden).abs() / difference;
        let width = if difference.is_finite() && scale.is_finite() { Some(bound * scale) } else { None };
        Self {
            step: *step,
            tensor: tensor.clone(),
            statistic: statistic.clone(),
            target: *target,
            golden: *golden,
            bounds: width.map(|width| Bounds { lower: golden - width, upper: golden + width }),
            source: note.clone().unwrap_or_else(|| bound_source.words().to_owned()),
            excess: divergence.excess(),
            others,
            row: place.1,
        }
    }

    /// Creates a deviation from the series' usual level.
    pub(crate) fn of_level(step: u64, tensor: TensorKey, statistic: &str, values: [f64; 2], beyond: Excess) -> Self {
        let [_, golden] = values;
        let Excess { expected, width, times: excess, size, .. } = beyond;
        let bound = |offset: f64| match size {
            Some(size) => golden + size * (expected + offset),
            None => golden.abs() * (expected + offset).exp(),
        };
        let bounds = Some(Bounds { lower: bound(-width), upper: bound(width) });
        let bounds = bounds.filter(|_| golden != 0.0 || size.is_some());
        let source = "its usual distance from the golden run's";
        Self { bounds, excess, ..Self::without_noise(step, tensor, statistic, values, source) }
    }

    /// Creates a deviation of a value that has no noise or is not a number.
    pub(crate) fn without_noise(step: u64, tensor: TensorKey, statistic: &str, values: [f64; 2], source: &str) -> Self {
        let [target, golden] = values;
        let (statistic, source) = (statistic.to_owned(), source.to_owned());
        Self { step, tensor, statistic, target, golden, bounds: None, source, excess: f64::INFINITY, others: 0, row: 0 }
    }
}

/// As a clause: ``grad_reduced norm of `h.3.fc.weight` at step 150 is 1.31 times the golden run's (0.2, golden run 0.153); …``.
impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, tensor, statistic, target, golden, bounds, source, others, .. } = self;
        let TensorKey { kind, name, vpp_stage, micro_step } = tensor;
        if kind == crate::steps::RUN_KIND {
            write!(f, "{name}")?;
        } else if kind == statistic {
            write!(f, "{kind} of `{name}`")?;
        } else {
            write!(f, "{kind} {statistic} of `{name}`")?;
        }
        if *vpp_stage > 0 {
            write!(f, " in model chunk {vpp_stage}")?;
        }
        if let Some(micro_step) = micro_step.filter(|&micro_step| micro_step > 0) {
            write!(f, " in micro-batch {micro_step}")?;
        }
        write!(f, " at step {step}")?;
        if statistic == "shape" {
            write!(f, " differs from the golden run's: {source}")?;
            return write_others(f, *others);
        }
        let ratio = target / golden;
        if ratio.is_finite() && ratio > 0.0 && short(ratio) != "1" {
            write!(f, " is {} times the golden run's", short(ratio))?;
        } else {
            write!(f, " differs from the golden run's")?;
        }
        write!(f, " ({}, golden run {})", short(*target), short(*golden))?;
        if let Some(Bounds { lower, upper }) = bounds.filter(|bounds| bounds.lower <= 0.0 && bounds.upper >= 0.0) {
            // A multiple of a number around zero is meaningless.
            write!(f, "; allowed {} to {} ({source})", short(lower), short(upper))?;
            return write_others(f, *others);
        }
        let bounds = bounds.filter(|_| *golden != 0.0);
        let times = bounds.map(|Bounds { lower, upper }| [lower / golden, upper / golden].map(short));
        match times {
            Some([least, most]) if least != most => {
                let (least, most) = if *golden < 0.0 { (most, least) } else { (least, most) };
                write!(f, "; allowed {least} to {most} times ({source})")?;
            }
            _ => write!(f, "; {source}")?,
        }
        write_others(f, *others)
    }
}

fn write_others(f: &mut fmt::Formatter<'_>, others: usize) -> fmt::Result {
    match others {
        0 => Ok(()),
        1 => write!(f, "; 1 other series diverges in this step"),
        _ => write!(f, "; {others} other series diverge in this step"),
    }
}

/// The most likely cause among the deviations of a step: the earliest in the order of a step, then by row if rows are
/// in order, then the largest excess.
pub(crate) fn leading(mut departures: Vec<Departure>) -> Option<Departure> {
    let others = departures.len().checked_sub(1)?;
    let row = |departure: &Departure| if is_in_order(&departure.tensor.kind) { departure.row } else { 0 };
    let place = |departure: &Departure| place_of(&departure.tensor.kind, &departure.tensor.name);
    departures.sort_by(|one, other| {
        let by_place = place(one).cmp(&place(other)).then(row(one).cmp(&row(other)));
        by_place.then(other.excess.total_cmp(&one.excess))
    });
    let mut first = departures.swap_remove(0);
    first.others = others;
    Some(first)
}
