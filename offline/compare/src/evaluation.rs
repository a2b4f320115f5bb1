//! Every pair of values, held against each other once: the search, the tables and the page read what came of it.

use std::sync::OnceLock;

use trainmon_core::Dtype;

use super::deviation::{Deviation, What, deviation};
use super::euclidean::euclidean;
use super::item::{Address, Item};
use super::tensors::{TensorPair, read_pair};
use super::unwritten::Unwritten;
use crate::input::Capture;
use trainmon_distance::{Distance, Quotient};

/// A value beside its counterpart.
#[derive(Debug)]
struct Evaluated {
    golden: Address,
    /// By statistics, checksums and what else the JSON files have.
    stated: Deviation,
    /// By the tensors, read when they are first asked for; nothing where a side has no file.
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

/// What two tensors' elements tell.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each has a box of its own")]
pub(crate) enum Elements {
    /// One of them cannot be read, for this reason.
    Unreadable(String),
    /// Their sizes differ by more than ones: nothing can be held against each other.
    OtherShape {
        /// Whether one of them has no elements at all.
        is_empty: bool,
    },
    /// They are of one shape.
    Comparable {
        /// Whether they are the same to the bit.
        is_same: bool,
        /// What was measured. Not of tensors without elements; of the same ones only for tables.
        measured: Option<Measured>,
    },
}

/// The numbers of two tensors of one shape.
#[derive(Debug)]
pub(crate) struct Measured {
    /// One pass over both.
    pub(crate) distance: Distance,
    /// Whether they have one element.
    pub(crate) is_one: bool,
    /// The norm of their difference as numpy adds it up; for tables.
    pub(crate) euclidean: f64,
}

/// What is known of a rank's pairs in a step, in memory as long as its captures: some words for each value of the target.
#[derive(Debug)]
pub struct Evaluation {
    /// Where the values of each operator begin.
    starts: Vec<usize>,
    of: Vec<OnceLock<Evaluated>>,
    /// Whether what tables need of tensors is measured too.
    is_for_tables: bool,
    /// Whose numbers say nothing.
    unwritten: Unwritten,
}

impl Evaluation {
    /// Nothing is known yet. `is_for_tables`: tables will be made, which need more of tensors than the search.
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

/// A rank's two captures of a step, with what is known of their values.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'c> {
    /// The run in question.
    pub target: &'c Capture,
    /// The run it is held against.
    pub golden: &'c Capture,
    /// What is known already.
    pub evaluation: &'c Evaluation,
}

impl<'c> Sides<'c> {
    /// How far a value of the target is from one of the golden: by what the JSON files have and, where both have files of their
    /// tensors, by every element. This is the one number that search, tables and page go by.
    pub(crate) fn deviation(self, target: Address, golden: Address) -> Deviation {
        self.evaluated(target, golden, |evaluated| {
            let is_settled = !evaluated.stated.relative.is_finite() || self.is_unwritten(target, golden);
            if is_settled { evaluated.stated } else { merged(evaluated.stated, evaluated.elements(self, target)) }
        })
    }

    /// The same of values behind the place where the runs part: of their elements only what tables read anyway.
    pub(crate) fn deviation_behind(self, target: Address, golden: Address) -> Deviation {
        if self.evaluation.is_for_tables {
            return self.deviation(target, golden);
        }
        self.evaluated(target, golden, |evaluated| match evaluated.elements.get() {
            Some(_) => self.deviation(target, golden),
            None => evaluated.stated,
        })
    }

    /// Shows what the elements of both tell; nothing where one of them has no file of its own.
    pub(crate) fn elements<R>(self, target: Address, golden: Address, see: impl FnOnce(Option<&Elements>) -> R) -> R {
        self.evaluated(target, golden, |evaluated| see(evaluated.elements(self, target)))
    }

    /// Whether a file of one of their tensors cannot be read, so that statistics alone tell.
    pub(crate) fn is_unread(self, target: Address, golden: Address) -> bool {
        !self.is_unwritten(target, golden)
            && self.elements(target, golden, |elements| matches!(elements, Some(Elements::Unreadable(_))))
    }

    /// Whether both values are memory that nobody had written yet.
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
        // Where calls differ in number the search may pair a value with another than the table does: that pair is seen once, too.
        if known.golden == golden { see(known) } else { see(&evaluate()) }
    }
}

/// What statistics tell, and what elements tell beyond them.
fn merged(statistics: Deviation, elements: Option<&Elements>) -> Deviation {
    let Some(Elements::Comparable { is_same, measured }) = elements else { return statistics };
    // What only the elements tell is told now.
    let statistics = if statistics.what == What::Unseen { Deviation::NONE } else { statistics };
    let Some(distance) = measured.as_ref().filter(|_| !is_same).map(|measured| &measured.distance) else {
        return statistics;
    };
    if distance.odd > 0 {
        return Deviation::of(What::NotFinite);
    }
    let relative = distance.relative();
    // Beside a golden of zeros the statistics have said by how much of the target's size.
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

/// Quotients of integers are floats of double precision too.
fn quotient(target: Dtype, golden: Dtype) -> Quotient {
    let is_double = |dtype| {
        !matches!(
            dtype,
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::Bool | Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16
        )
    };
    if is_double(target) || is_double(golden) { Quotient::Double } else { Quotient::Single }
}
