//! The findings of a walk over a rank's operators.

use std::collections::HashMap;

use trainmon_capture_files::{Leaf, Section};

use crate::deviation::{Deviation, What};
use crate::item::{Address, Item};
use crate::judge::Bound;
use crate::location::Location;
use crate::python;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The inputs agree, the outputs do not.
    Operator,
    /// The call has another argument.
    Argument,
    /// A parameter differs, although nothing before it does.
    Parameter,
    /// It is the first to receive data that no operator produced, and the data differ.
    Data,
    /// Its input differs from what was produced before: code that was not captured ran in between.
    Between,
    /// Only the target has it.
    TargetOnly,
    /// Only the baseline has it.
    GoldenOnly,
}

/// A differing value of a finding.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Its name in the target, or in the baseline if the target lacks it.
    pub name: String,
    /// The section of the operator that it belongs to.
    pub section: Section,
    /// The difference.
    pub deviation: Deviation,
    /// The tolerance.
    pub bound: f64,
    /// The values of target and baseline, if they fit into a few words.
    pub words: Option<[String; 2]>,
}

/// The first operator of a rank that no earlier difference explains.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// The operator's name; the target's if it has the operator.
    pub operator: String,
    /// The place in the order of execution.
    pub place: usize,
    /// The index in the target.
    pub target: Option<u32>,
    /// The index in the baseline.
    pub golden: Option<u32>,
    /// The differing values, the leading one first.
    pub suspects: Vec<Suspect>,
    /// The largest difference among the inputs.
    pub input: f64,
    /// The place in the model and its code; for origins and rewritten code.
    pub location: Location,
    /// Whether neither side has checksums, so that permuted inputs are not visible.
    pub has_no_digests: bool,
    /// Whether both sides were captured at the most detailed level.
    pub is_of_all_operators: bool,
    /// A bool input whose statistics show only whether any element is true.
    pub untold_mask: Option<String>,
    /// The baseline's call of the same function that has the target's data, if the two are exchanged.
    pub permuted: Option<String>,
    /// The pattern of the difference, if it has one.
    pub looks_like: Option<String>,
    /// The parameter that it updates, if known.
    pub parameter: Option<String>,
    /// Whether it is a one-sided call after the gradients: part of an update.
    pub is_update: bool,
}

impl Finding {
    /// A finding of which only the place is known.
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

/// The properties that may make an operator a finding.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: Kind,
    /// The differing values, the leading one first.
    pub(super) suspects: Vec<Suspect>,
    /// The largest difference among the inputs.
    pub(super) input: f64,
}

/// Rewritten code: a part of a rank's operators that one side computes differently, with results that agree.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The first operator.
    pub finding: Finding,
    /// The operator at which both sides continue together.
    pub until: String,
    /// The difference of the results.
    pub apart: f64,
    /// The places that it covers, from its first one-sided call on.
    pub places: std::ops::RangeInclusive<usize>,
}

/// The result of a walk over a rank.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// The first unexplained difference.
    pub finding: Option<Finding>,
    /// The first difference of the size of rounding, and the operator.
    pub first_rounding: Option<(String, f64)>,
    /// The number of operators that differ at all, among those compared before the divergence.
    pub differing: usize,
    /// The first of them, by place and name.
    pub first_differing: Option<(usize, String)>,
    /// The first differing result that is only rounding.
    pub first_residue: Option<String>,
    /// The largest difference attributed to rounding.
    pub largest_rounding: f64,
    /// The number of operators compared.
    pub compared: usize,
    /// The number of operators with neither statistics nor checksums.
    pub unseen: usize,
    /// Update operators of which only the arguments were compared.
    pub unjudged: usize,
    /// Values with equal statistics, of which at least one tensor cannot be read.
    pub unread: usize,
    /// Values in a finer dtype than the baseline's, whose numbers agree.
    pub finer: usize,
    /// Values that are a rank's part on one side and whole on the other, not compared.
    pub parts: usize,
    /// Whether checksums differ after a fused operator without checksums, so that the size of the difference is unknown.
    pub is_untold: bool,
    /// Operators that differ after the finding, in order.
    pub spread: Vec<String>,
    /// One-sided calls before the finding, in order.
    pub one_sided: Vec<OneSidedCall>,
    /// Rewritten code with the same results.
    pub rewritten: Vec<Rewritten>,
    /// Optimizer tensors whose difference may be amplified rounding; another baseline would decide.
    pub unsure: Vec<String>,
    /// The tolerances of differing values, by their place in the target: up to the finding, or to the end.
    pub(crate) judged: HashMap<Address, Judged>,
}

/// A call that one side lacks.
#[derive(Clone, Debug)]
pub struct OneSidedCall {
    /// The name.
    pub operator: String,
    /// The place in the order of execution.
    pub place: usize,
    /// Whether the target has it.
    pub is_target: bool,
}

/// The search's tolerance for a differing value that is not the divergence. Tables use the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// The tolerance.
    pub bound: Bound,
    /// Why it may differ by more; `None` if it does not.
    pub excuse: Option<Excuse>,
}

/// Why a value beyond its tolerance is not the divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// Only rounding on both sides, or derived from such a value.
    Residue,
    /// Part of rewritten code with results that agree.
    Rewritten,
    /// One side has fused parameters, so it is unknown which call updates which one.
    Unassigned,
    /// The checksum of a fused operator does not follow from those of its parts.
    Untold,
    /// One side broadcasts the first rank's running statistics, the other keeps them per rank.
    Broadcast,
    /// In a buffer that may be partly unwritten.
    Unwritten,
}

impl Excuse {
    /// The text for tables.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Residue => "only rounding error: the rest of a sum that cancels",
            Self::Rewritten => "one side computes this with other code",
            Self::Unassigned => "one side has fused parameters: it is unknown which call updates which one",
            Self::Untold => "the checksum of a fused operator does not follow from those of its parts",
            Self::Broadcast => "one side broadcasts these running statistics, the other keeps each rank's own",
            Self::Unwritten => "a buffer that may be unwritten: compared where an operator reads it",
        }
    }
}

/// A value, its difference, and the variation between baselines.
pub(super) struct Compared<'c> {
    pub(super) item: Item<'c>,
    /// The address in the target, if it has the value.
    pub(super) at: Option<Address>,
    pub(super) twin: Option<Item<'c>>,
    /// Whether only the baseline has the value.
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

/// The text for a missing value.
const ABSENT: &str = "absent";

/// The kind of a value, if the other side has none or another kind.
fn sort(item: Item<'_>) -> String {
    match &item.value.leaf {
        Leaf::Nothing => "None".to_owned(),
        Leaf::Tensor(_) => "a tensor".to_owned(),
        Leaf::Plain { value, .. } => python::text(value),
        Leaf::Group { .. } => "a group of ranks".to_owned(),
    }
}

/// The texts of the differing property on both sides.
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
