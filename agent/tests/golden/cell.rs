//! One cell of ours held against msprobe's.

use crate::deviations::Deviation;

/// What is smaller becomes 0 in float16.
const HALF_OF_LEAST_FLOAT16: f64 = 1.0 / 33_554_432.0;

/// The sum of the products of signs from which an agreement comes.
fn signs(agreement: f64, elements: f64) -> f64 {
    ((2.0 * agreement - 1.0) * elements).round()
}

/// How a cell of ours stands to msprobe's.
pub(crate) enum Verdict {
    Identical,
    Listed(Deviation),
    Different,
}

/// A cell of both sides, and what a difference may come from.
pub(crate) struct Cell<'a> {
    pub(crate) name: &'a str,
    pub(crate) ours: &'a str,
    pub(crate) theirs: &'a str,
    pub(crate) ndigits: Option<u32>,
    /// Of `zeros`.
    pub(crate) eps: f64,
    pub(crate) is_direction: bool,
    /// Of the tensor, for a cell that is a share of them.
    pub(crate) elements: Option<f64>,
    pub(crate) shares_bool_column: bool,
    pub(crate) dtype: &'a str,
}

impl Cell<'_> {
    pub(crate) fn judge(&self) -> Verdict {
        if self.ours == self.theirs {
            return Verdict::Identical;
        }
        if self.dtype.starts_with("torch.float8") && self.theirs == "nan" {
            return Verdict::Listed(Deviation::Float8Measured);
        }
        let (Ok(ours), Ok(theirs)) = (self.ours.parse::<f64>(), self.theirs.parse::<f64>()) else {
            return Verdict::Different;
        };
        let is_integer = self.name == "nans" || self.dtype.starts_with("torch.int") || self.dtype == "torch.uint8";
        if is_integer && ours == theirs {
            return Verdict::Listed(Deviation::CountsStayIntegers);
        }
        if ours == 0.0 && theirs == 0.0 {
            return Verdict::Listed(Deviation::SignOfZero);
        }
        if self.name == "zeros" && self.dtype == "torch.float16" && theirs == 0.0 && self.eps < HALF_OF_LEAST_FLOAT16 {
            return Verdict::Listed(Deviation::HalfEps);
        }
        match self.ndigits {
            None => self.judge_v2(ours, theirs),
            Some(ndigits) => self.judge_v1(ours, theirs, ndigits),
        }
    }

    fn judge_v1(&self, ours: f64, theirs: f64, ndigits: u32) -> Verdict {
        let scale = 10f64.powi(ndigits as i32);
        let rounded = |value: f64| (value * scale).round_ties_even() / scale;
        if let Some(elements) = self.elements
            && (rounded(self.single_ratio(ours, elements)), rounded(self.ratio(ours, elements))) == (theirs, ours)
        {
            return Verdict::Listed(Deviation::RatioInFloat64);
        }
        if self.shares_bool_column && matches!(self.name, "min" | "max") && rounded(theirs) == ours {
            return Verdict::Listed(Deviation::BoolColumnUnrounded);
        }
        // One unit of the last decimal, and never more than a few units in the last place of a float64.
        let last_decimal = 1.000_001 / scale;
        let is_sum = matches!(self.name, "mean" | "norm");
        if is_sum && (ours - theirs).abs() <= last_decimal + 4.0 * f64::EPSILON * theirs.abs() {
            return Verdict::Listed(Deviation::SummationOrder);
        }
        Verdict::Different
    }

    /// The ratio of two integers that our cell shows, in float64.
    fn ratio(&self, ours: f64, elements: f64) -> f64 {
        if self.is_direction {
            f64::midpoint(signs(ours, elements) / elements, 1.0)
        } else {
            (ours * elements).round() / elements
        }
    }

    /// The same as msprobe computes it, each operation in float32.
    fn single_ratio(&self, ours: f64, elements: f64) -> f64 {
        let single = if self.is_direction {
            f32::midpoint(signs(ours, elements) as f32 / elements as f32, 1.0)
        } else {
            (ours * elements).round() as f32 / elements as f32
        };
        f64::from(single)
    }

    fn judge_v2(&self, ours: f64, theirs: f64) -> Verdict {
        let (narrow, answer) = (ours as f32, theirs as f32);
        if f64::from(answer) != theirs {
            return Verdict::Different;
        }
        let one_unit_apart = narrow == answer.next_up() || narrow == answer.next_down();
        let is_sum = matches!(self.name, "mean" | "norm");
        if narrow == answer {
            Verdict::Listed(Deviation::V2InFloat64)
        } else if is_sum && one_unit_apart {
            Verdict::Listed(Deviation::SummationOrder)
        } else {
            Verdict::Different
        }
    }
}
