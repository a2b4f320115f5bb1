//! What a walk over a rank's operators can find.

use std::collections::HashMap;

use trainmon_capture_files::{Leaf, Section};

use crate::deviation::{Deviation, What};
use crate::item::{Address, Item};
use crate::judge::Bound;
use crate::location::Location;
use crate::python;

/// What kind of place a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its inputs agree, its outputs do not.
    Operator,
    /// It was called with another argument.
    Argument,
    /// A parameter it uses differs, though nothing before did.
    Parameter,
    /// It is the first to see data that nobody before it produced, and the data differs.
    Data,
    /// Its input differs from what was produced before it: something that was not captured ran in between.
    Between,
    /// Only the target ran it.
    TargetOnly,
    /// Only the golden ran it.
    GoldenOnly,
}

/// A value that differs at a finding.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Its name in the target; in the golden where the target has none.
    pub name: String,
    /// On which side of the operator it is.
    pub section: Section,
    /// By how much.
    pub deviation: Deviation,
    /// How much was allowed.
    pub bound: f64,
    /// What stands in the target and in the golden, where a few words say it.
    pub words: Option<[String; 2]>,
}

/// The first operator of a rank that nothing before it explains.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What kind of place.
    pub kind: Kind,
    /// The operator's name; the target's where it has it.
    pub operator: String,
    /// Its place in the order of execution.
    pub place: usize,
    /// Where it is in the target.
    pub target: Option<u32>,
    /// Where it is in the golden.
    pub golden: Option<u32>,
    /// What differs there, the leading one first.
    pub suspects: Vec<Suspect>,
    /// The largest difference among its inputs.
    pub input: f64,
    /// Where in the model and in its code; of origins and of what is computed otherwise.
    pub location: Location,
    /// Whether neither side has checksums: then a permutation of what goes in is not seen.
    pub has_no_digests: bool,
    /// Whether both sides were captured at the level that shows most.
    pub is_of_all_operators: bool,
    /// A tensor of bools that it is given and of which statistics tell only whether any is true.
    pub untold_mask: Option<String>,
    /// The golden's call of the same that has the data which the target has here, if the target has this one's there.
    pub permuted: Option<String>,
    /// What it looks like, where it leaves a mark of its own.
    pub looks_like: Option<String>,
    /// The parameter whose update it is part of, where that is known.
    pub parameter: Option<String>,
    /// Whether it is a call that one side lacks, made after the gradients: part of an update.
    pub is_update: bool,
}

impl Finding {
    /// One of which nothing is known yet but where it is.
    pub(super) fn at(kind: Kind, operator: String, place: usize, [target, golden]: [Option<u32>; 2]) -> Self {
        Self {
            kind,
            operator,
            place,
            target,
            golden,
            suspects: Vec::new(),
            input: 0.0,
            location: Location::default(),
            has_no_digests: false,
            is_of_all_operators: false,
            untold_mask: None,
            permuted: None,
            looks_like: None,
            parameter: None,
            is_update: false,
        }
    }
}

/// What makes an operator a finding, before it is known to be one.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: Kind,
    /// What differs, the leading one first.
    pub(super) suspects: Vec<Suspect>,
    /// The largest difference among its inputs.
    pub(super) input: f64,
}

/// A part of a rank's operators that one side computes otherwise, with results that agree.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// Where it begins.
    pub finding: Finding,
    /// The operator at which both sides are together again.
    pub until: String,
    /// How far the results are apart.
    pub apart: f64,
    /// The places it takes, from its first call of one side alone on.
    pub places: std::ops::RangeInclusive<usize>,
}

/// What a walk over a rank found.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// The first unexplained difference.
    pub finding: Option<Finding>,
    /// The first difference of the size of rounding, and its operator.
    pub first_rounding: Option<(String, f64)>,
    /// Operators that differ at all, of those that were looked at on both sides before the runs part.
    pub differing: usize,
    /// The first of them, by place and name.
    pub first_differing: Option<(usize, String)>,
    /// The first result that differs and is all rounding.
    pub first_residue: Option<String>,
    /// The largest difference put down to rounding.
    pub largest_rounding: f64,
    /// Operators that were looked at on both sides.
    pub compared: usize,
    /// Operators with neither statistics nor checksums.
    pub unseen: usize,
    /// Operators of an update of which arguments alone were judged.
    pub unjudged: usize,
    /// Values whose statistics agree, but whose tensors cannot be read on one side at least.
    pub unread: usize,
    /// Values in a finer dtype than the golden's whose numbers agree.
    pub finer: usize,
    /// Values that are a rank's part on one side and the whole on the other: they were not compared.
    pub parts: usize,
    /// Whether checksums differ behind a fused operator that has none to judge by: nobody can tell whether more than rounding does.
    pub is_untold: bool,
    /// Operators that differ after the finding, in order: how it spreads.
    pub spread: Vec<String>,
    /// Calls of one side alone that were passed on the way, in order.
    pub one_sided: Vec<OneSidedCall>,
    /// What is computed otherwise, with the same results.
    pub rewritten: Vec<Rewritten>,
    /// Tensors of an optimizer that are apart by what it makes of rounding: they are no finding, and a further golden run would tell.
    pub unsure: Vec<String>,
    /// What was judged of values that differ, by their place in the target: as far as the finding, or to the end.
    pub(crate) judged: HashMap<Address, Judged>,
}

/// A call that one side lacks.
#[derive(Clone, Debug)]
pub struct OneSidedCall {
    /// Its name.
    pub operator: String,
    /// Its place in the order of execution.
    pub place: usize,
    /// Whether it is the target's.
    pub is_target: bool,
}

/// What the search allows a value that differs, and found to be no place where the runs part. Tables say the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// How far it may be apart.
    pub bound: Bound,
    /// Why it may be further than that; `None` where it need not.
    pub excuse: Option<Excuse>,
}

/// Why a value that is beyond its bound is no place where the runs part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// All of it is rounding on both sides, or was made of such a value.
    Residue,
    /// One side computes this part otherwise, with results that agree.
    Rewritten,
    /// One side has parameters fused: which call updates which nobody can tell.
    Unassigned,
    /// The checksum of a fused operator does not follow from those of its parts.
    Untold,
    /// One side gives all ranks the first rank's running statistics, the other keeps each rank's own.
    Broadcast,
    /// It is in a buffer of which a part may not be written yet.
    Unwritten,
}

impl Excuse {
    /// The words for it in tables.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Residue => "all of it is rounding, what is left of a sum that cancels",
            Self::Rewritten => "one side computes this part otherwise",
            Self::Unassigned => "one side has parameters fused: it is not known which call updates which",
            Self::Untold => "the checksum of a fused operator does not follow from those of its parts",
            Self::Broadcast => "one side gives all ranks these running statistics, the other keeps each rank's own",
            Self::Unwritten => "a buffer that may not be written yet: judged where an operator computes with it",
        }
    }
}

/// A value, how far it is apart, and how far the golden runs are among themselves.
pub(super) struct Compared<'c> {
    pub(super) item: Item<'c>,
    /// Where it is in the target, which may lack it.
    pub(super) at: Option<Address>,
    pub(super) twin: Option<Item<'c>>,
    /// Whether the value is the golden's, and the target has none.
    pub(super) is_golden: bool,
    pub(super) deviation: Deviation,
    pub(super) spread: f64,
    /// Whether its tensor, or the counterpart's, cannot be read.
    pub(super) is_unread: bool,
}

pub(super) fn suspect(compared: &Compared<'_>, bound: f64) -> Suspect {
    let (item, deviation) = (compared.item, compared.deviation);
    let words = match compared.twin {
        Some(twin) => words(deviation.what, item, twin),
        None if compared.is_golden => Some([ABSENT.to_owned(), sort(item)]),
        None => Some([sort(item), ABSENT.to_owned()]),
    };
    Suspect { name: item.name(), section: item.value.section, deviation, bound, words }
}

/// A side that has no such value.
const ABSENT: &str = "absent";

/// What a value is, where the other side has none or one of another sort.
fn sort(item: Item<'_>) -> String {
    match &item.value.leaf {
        Leaf::Nothing => "None".to_owned(),
        Leaf::Tensor(_) => "a tensor".to_owned(),
        Leaf::Plain { value, .. } => python::text(value),
        Leaf::Group { .. } => "a group of ranks".to_owned(),
    }
}

/// What two values have of what they differ in.
fn words(what: What, item: Item<'_>, twin: Item<'_>) -> Option<[String; 2]> {
    let of = |item: Item<'_>| {
        Some(match (what, &item.value.leaf) {
            (What::Presence, _) => sort(item),
            (What::Argument, Leaf::Plain { value, .. } | Leaf::Group { ranks: value, .. }) => python::text(value),
            (What::Dtype, Leaf::Tensor(tensor)) => python::text(&tensor.dtype),
            (What::Shape, Leaf::Tensor(tensor)) => python::text(&tensor.shape),
            (What::Digest, Leaf::Tensor(tensor)) => python::text(tensor.digest.as_ref()?),
            (What::Numbers | What::NotFinite, Leaf::Tensor(tensor)) => {
                let [max, min, mean, norm] = [0, 1, 2, 3].map(|at: usize| python::text(&tensor.statistics[at]));
                format!("max {max}, min {min}, mean {mean}, norm {norm}")
            }
            _ => return None,
        })
    };
    Some([of(item)?, of(twin)?])
}
