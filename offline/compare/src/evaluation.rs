//! Compares each pair of values once; the search, the tables and the page read the result.

use std::sync::OnceLock;

use trainmon_core::Dtype;

use super::deviation::{Deviation, What, deviation};
use super::euclidean::euclidean;
use super::item::{Address, Item};
use super::tensors::{TensorPair, read_pair};
use super::unwritten::Unwritten;
use crate::input::Capture;
use trainmon_distance::{Distance, Quotient};

/// A value and its counterpart.
#[derive(Debug)]
struct Evaluated {
    golden: Address,
    /// The difference by statistics, checksums and other facts of the JSON files.
    stated: Deviation,
    /// The difference by the tensors, read on first use; `None` if a side has no file.
    elements: OnceLock<Option<Box<Elements>>>,
}

impl Evaluated {
    fn elements(&self, sides: Sides<'_>, target: Address) -> Option<&Elements> {
        let elements = self.elements.get_or_init(|| {
            let (one, other) = sides.items(target, self.golden);
            let pair = read_pair(sides.target, sides.golden, one, other)?;
            Some(Box::new(Elements::of(pair, sides.evaluation.is_for_tables)))
        });
        elements.as_deref()
    }
}

/// The result of comparing two tensors element by element.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each has a box of its own")]
pub(crate) enum Elements {
    /// A tensor that cannot be read, with the reason.
    Unreadable(String),
    /// Shapes that differ in more than sizes of 1: not comparable.
    OtherShape {
        /// Whether one of them is empty.
        is_empty: bool,
    },
    /// Tensors of the same shape.
    Comparable {
        /// Whether they are bitwise equal.
        is_same: bool,
        /// The measures; `None` for empty tensors and, without tables, for equal ones.
        measured: Option<Measured>,
    },
}

/// The measures of two tensors of the same shape.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The distances, from one pass.
    pub(crate) distance: Distance,
    /// Whether they have one element.
    pub(crate) is_one: bool,
    /// The norm of the difference in numpy's summation order; for tables.
    pub(crate) euclidean: f64,
}

/// The compared pairs of a rank and step, in memory as long as its captures: a few words per value of the target.
#[derive(Debug)]
pub struct Evaluation {
    /// The index of the first value of each operator.
    starts: Vec<usize>,
    of: Vec<OnceLock<Evaluated>>,
    /// Whether to measure what only tables need.
    is_for_tables: bool,
    /// Values in unwritten memory.
    unwritten: Unwritten,
}

impl Evaluation {
    /// Starts empty. `is_for_tables`: tables follow, which need more measures than the search.
    pub fn new(target: &Capture, golden: &Capture, is_for_tables: bool) -> Self {
        let mut starts = Vec::with_capacity(target.document.operators.len());
        let mut count = 0;
        for operator in &target.document.operators {
            starts.push(count);
            count += operator.values.len();
        }
        let mut of = Vec::new();
        of.resize_with(count, OnceLock::new);
        Self { starts, of, is_for_tables, unwritten: Unwritten::of(target, golden) }
    }
}

/// The two captures of a rank and step, with their evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'c> {
    /// The capture under test.
    pub target: &'c Capture,
    /// The baseline.
    pub golden: &'c Capture,
    /// The results so far.
    pub evaluation: &'c Evaluation,
}

impl<'c> Sides<'c> {
    /// Returns the difference between a value of the target and one of the baseline: from the JSON files and, if both have
    /// tensor files, from every element. Search, tables and page all use this number.
    pub(crate) fn deviation(self, target: Address, golden: Address) -> Deviation {
        self.evaluated(target, golden, |evaluated| {
            let is_settled = !evaluated.stated.relative.is_finite() || self.is_unwritten(target, golden);
            if is_settled { evaluated.stated } else { merged(evaluated.stated, evaluated.elements(self, target)) }
        })
    }

    /// Returns the difference of values after the divergence: reads only tensors that the tables read as well.
    pub(crate) fn deviation_behind(self, target: Address, golden: Address) -> Deviation {
        if self.evaluation.is_for_tables {
            return self.deviation(target, golden);
        }
        self.evaluated(target, golden, |evaluated| match evaluated.elements.get() {
            Some(_) => self.deviation(target, golden),
            None => evaluated.stated,
        })
    }

    /// Passes the comparison of the elements to `see`; `None` if a side has no file.
    pub(crate) fn elements<R>(self, target: Address, golden: Address, see: impl FnOnce(Option<&Elements>) -> R) -> R {
        self.evaluated(target, golden, |evaluated| see(evaluated.elements(self, target)))
    }

    /// Whether a tensor file of the pair cannot be read, so that only statistics count.
    pub(crate) fn is_unread(self, target: Address, golden: Address) -> bool {
        !self.is_unwritten(target, golden)
            && self.elements(target, golden, |elements| matches!(elements, Some(Elements::Unreadable(_))))
    }

    /// Whether both values are unwritten memory.
    pub(crate) fn is_unwritten(self, target: Address, golden: Address) -> bool {
        let (one, other) = self.items(target, golden);
        self.evaluation.unwritten.has(one, other)
    }

    /// Both values.
    pub(crate) fn items(self, target: Address, golden: Address) -> (Item<'c>, Item<'c>) {
        (self.target.at(target), self.golden.at(golden))
    }

    fn evaluated<R>(self, target: Address, golden: Address, see: impl FnOnce(&Evaluated) -> R) -> R {
        let evaluate = || {
            let (one, other) = self.items(target, golden);
            let found = deviation(one, other);
            let says_nothing = matches!(found.what, What::Numbers | What::NotFinite | What::Digest);
            let is_left_out = says_nothing && self.evaluation.unwritten.has(one, other);
            let stated = if is_left_out { Deviation::NONE } else { found };
            Evaluated { golden, stated, elements: OnceLock::new() }
        };
        let Evaluation { starts, of, .. } = self.evaluation;
        let known = of[starts[target.operator as usize] + target.value as usize].get_or_init(evaluate);
        // If the numbers of calls differ, the search may pair a value differently from the table: that pair is evaluated again.
        if known.golden == golden { see(known) } else { see(&evaluate()) }
    }
}

/// The difference by statistics, extended by that of the elements.
fn merged(statistics: Deviation, elements: Option<&Elements>) -> Deviation {
    let Some(Elements::Comparable { is_same, measured }) = elements else { return statistics };
    // Only the elements have a result.
    let statistics = if statistics.what == What::Unseen { Deviation::NONE } else { statistics };
    let Some(distance) = measured.as_ref().filter(|_| !is_same).map(|measured| &measured.distance) else {
        return statistics;
    };
    if distance.odd > 0 {
        return Deviation::of(What::NotFinite);
    }
    let relative = distance.relative();
    // For a zero baseline, the statistics already have the difference relative to the target.
    if relative > statistics.relative && (relative.is_finite() || !statistics.is_some()) {
        let what = if statistics.what == What::Dtype { What::Dtype } else { What::Numbers };
        return Deviation { what, relative };
    }
    statistics
}

impl Elements {
    fn of(pair: Result<TensorPair, String>, is_for_tables: bool) -> Self {
        let pair = match pair {
            Ok(pair) => pair,
            Err(why) => return Self::Unreadable(why),
        };
        let TensorPair { target, golden } = &pair;
        let is_empty = target.elements() == 0 || golden.elements() == 0;
        if !pair.is_comparable() {
            return Self::OtherShape { is_empty };
        }
        let is_same = pair.is_same();
        let measured = (!is_empty && (is_for_tables || !is_same)).then(|| {
            let distance = pair.distance(quotient(target.dtype(), golden.dtype()));
            let is_one = golden.shape().dims().iter().all(|&size| size == 1);
            let is_shown = is_for_tables && !is_one && distance.odd == 0;
            Measured { euclidean: if is_shown { euclidean(target, golden) } else { f64::NAN }, distance, is_one }
        });
        Self::Comparable { is_same, measured }
    }
}

/// The precision of quotients; those of integers are in double precision too.
fn quotient(target: Dtype, golden: Dtype) -> Quotient {
    let is_double = |dtype| {
        !matches!(
            dtype,
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::Bool | Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16
        )
    };
    if is_double(target) || is_double(golden) { Quotient::Double } else { Quotient::Single }
}
