//! Two checkpoints, tensor by tensor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::prelude::*;
use serde::Serialize;
use trainmon_core::{Dtype, Shape};
use trainmon_distance::{Distance, Quotient};
use trainmon_report::{Progress, first_of};

use super::contents::Checkpoint;
use super::detect;
use super::error::CheckpointError;
use super::layout::{Dialect, Layout};

/// Tensors of so many bytes are compared at the same time, on all cores.
const BATCH_BYTES: u64 = 256 << 20;

/// How two tensors of one name compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The same numbers, all of them.
    Identical,
    /// No element differs by more than one unit in the last place of the coarser dtype.
    Rounding,
    /// Some element differs by more.
    Different,
    /// The shapes differ: there is nothing to measure.
    Shape,
}

/// Two tensors of one name.
#[derive(Clone, Debug, Serialize)]
pub struct TensorRow {
    /// The name.
    pub name: String,
    /// The outcome.
    pub verdict: Verdict,
    /// Of each.
    pub dtype: [String; 2],
    /// Of each.
    pub shape: [Vec<i64>; 2],
    /// Elements of each.
    pub numel: [u64; 2],
    /// What was measured; nothing if the shapes differ.
    pub distance: Option<Measures>,
}

/// Numbers about two tensors of one shape; what is infinite or no number is `null` in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Measures {
    /// Euclidean norm of the difference.
    pub l2: f64,
    /// The same divided by the second's norm; none if that is zero.
    pub relative_l2: Option<f64>,
    /// Cosine of the angle; 1 if both are zero, none if one is.
    pub cos: Option<f64>,
    /// Largest difference of two elements.
    pub max_abs: f64,
    /// Index of that element, one number for each axis.
    pub max_abs_at: Vec<i64>,
    /// Elements that differ.
    pub differing: u64,
    /// Of these, by more than one unit in the last place.
    pub beyond_rounding: u64,
    /// Infinite or NaN elements of each.
    pub non_finite: [u64; 2],
    /// Euclidean norms of each.
    pub norms: [f64; 2],
}

/// One side.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// What was given.
    pub path: PathBuf,
    /// How it is laid out.
    pub layout: Layout,
    /// Tensors that were read.
    pub tensors: usize,
    /// What a person should know about how.
    pub notes: Vec<String>,
    /// Tensors that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// Two checkpoints compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The checkpoint in question.
    pub target: Side,
    /// The one it is held against.
    pub golden: Side,
    /// Names both have, in order.
    pub tensors: Vec<TensorRow>,
    /// Names only the target has.
    pub target_only: Vec<String>,
    /// Names only the golden has.
    pub golden_only: Vec<String>,
    /// Numbers and texts that both have.
    pub values: usize,
    /// Those that are others.
    pub other_values: Vec<OtherValue>,
}

/// A number or text beside the tensors that is another in the golden.
#[derive(Clone, Debug, Serialize)]
pub struct OtherValue {
    /// Its name.
    pub name: String,
    /// As Python writes it.
    pub target: String,
    /// As above.
    pub golden: String,
}

impl Comparison {
    /// Whether everything is there on both sides and the same within rounding.
    pub fn is_same(&self) -> bool {
        let unreadable = self.target.unreadable.len() + self.golden.unreadable.len();
        unreadable + self.target_only.len() + self.golden_only.len() + self.other_values.len() == 0
            && self.tensors.iter().all(|row| row.verdict <= Verdict::Rounding)
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.tensors.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// Compares two checkpoints. `tell` hears how far it is.
///
/// # Errors
/// One of them is no checkpoint, is incomplete or damaged.
pub fn compare(
    target: &Path,
    golden: &Path,
    dialect: Dialect,
    tell: &mut (dyn FnMut(Progress) + Send),
) -> Result<Comparison, CheckpointError> {
    let (mut target, mut golden) = (detect::open(target, dialect)?, detect::open(golden, dialect)?);
    if let Some(empty) = [&target, &golden].into_iter().find(|one| one.tensors.is_empty() && one.unreadable.is_empty())
    {
        return Err(CheckpointError::NoTensors { path: empty.path.clone() });
    }
    if dialect == Dialect::Ours {
        align(&mut target, &mut golden);
    }
    let common: Vec<&String> = target.tensors.keys().filter(|name| golden.tensors.contains_key(*name)).collect();
    let bytes = |name: &str| {
        let recipe = &target.tensors[name];
        recipe.shape.elements() as u64 * recipe.dtype.size() as u64
    };
    let total = common.iter().map(|name| bytes(name)).sum();
    let progress = Mutex::new((0u64, tell));
    let mut tensors = Vec::with_capacity(common.len());
    for batch in batches(&common, &bytes) {
        let rows: Vec<TensorRow> = batch
            .par_iter()
            .map(|name| {
                let row = compare_tensor(&target, &golden, name)?;
                if let Ok(mut progress) = progress.lock() {
                    progress.0 += bytes(name);
                    let done = progress.0;
                    (progress.1)(Progress { done, total });
                }
                Ok(row)
            })
            .collect::<Result<_, CheckpointError>>()?;
        tensors.extend(rows);
    }
    let only = |one: &Checkpoint, other: &Checkpoint| {
        let known: BTreeSet<&String> = other.tensors.keys().chain(other.unreadable.keys()).collect();
        one.tensors.keys().filter(|name| !known.contains(name)).cloned().collect()
    };
    let (target_only, golden_only) = (only(&target, &golden), only(&golden, &target));
    note_own_values(&mut target, &golden);
    note_own_values(&mut golden, &target);
    let in_both = target.values.iter().filter_map(|(name, one)| Some((name, one, golden.values.get(name)?)));
    let (values, others) = (in_both.clone().count(), in_both.filter(|(_, one, other)| one != other));
    let other_values = others
        .map(|(name, one, other)| OtherValue { name: name.clone(), target: one.clone(), golden: other.clone() })
        .collect();
    let (target, golden) = (side(target), side(golden));
    Ok(Comparison { target, golden, tensors, target_only, golden_only, values, other_values })
}

/// Runs of names whose tensors fit in the memory together.
fn batches<'n>(names: &'n [&'n String], bytes: &dyn Fn(&str) -> u64) -> Vec<&'n [&'n String]> {
    let mut batches = Vec::new();
    let (mut first, mut sum) = (0, 0u64);
    for (index, name) in names.iter().enumerate() {
        let own = bytes(name);
        if index > first && sum.saturating_add(own) > BATCH_BYTES {
            batches.push(&names[first..index]);
            (first, sum) = (index, 0);
        }
        sum = sum.saturating_add(own);
    }
    batches.push(&names[first..]);
    batches
}

fn side(checkpoint: Checkpoint) -> Side {
    let Checkpoint { path, layout, files: _, tensors, unreadable, values: _, notes } = checkpoint;
    Side { path, layout, tensors: tensors.len(), notes, unreadable: unreadable.into_iter().collect() }
}

fn compare_tensor(target: &Checkpoint, golden: &Checkpoint, name: &str) -> Result<TensorRow, CheckpointError> {
    let facts = [&target.tensors[name], &golden.tensors[name]];
    let row = |verdict, distance| TensorRow {
        name: name.to_owned(),
        verdict,
        dtype: facts.map(|recipe| recipe.dtype.to_string()),
        shape: facts.map(|recipe| recipe.shape.dims().to_vec()),
        numel: facts.map(|recipe| recipe.shape.elements() as u64),
        distance,
    };
    if facts[0].shape != facts[1].shape {
        return Ok(row(Verdict::Shape, None));
    }
    let (x, y) = (target.read(name)?, golden.read(name)?);
    let found = Distance::measure_on_all_cores(&x, &y, Quotient::Double);
    // Beyond 2^53 two integers may be one f64.
    let is_wide = matches!(x.dtype(), Dtype::I64 | Dtype::U64) && x.dtype() == y.dtype();
    let verdict = match () {
        () if found.beyond_unit > 0 || (is_wide && x.bytes() != y.bytes()) => Verdict::Different,
        () if found.differing > 0 => Verdict::Rounding,
        () => Verdict::Identical,
    };
    let is_complex = x.numbers() != x.elements();
    let (l2, norms, (max_abs, max_abs_at)) = (found.l2(), found.norms(), found.largest());
    let measures = Measures {
        l2,
        relative_l2: (norms[1] > 0.0).then(|| l2 / norms[1]),
        cos: cosine(&found),
        max_abs,
        max_abs_at: place(if is_complex { max_abs_at / 2 } else { max_abs_at }, x.shape()),
        differing: found.differing,
        beyond_rounding: found.beyond_unit,
        non_finite: found.not_finite,
        norms,
    };
    Ok(row(verdict, Some(measures)))
}

/// Notes the values that only one has.
fn note_own_values(one: &mut Checkpoint, other: &Checkpoint) {
    /// How many names the note shows.
    const SHOWN: usize = 3;
    let own: Vec<&String> = one.values.keys().filter(|name| !other.values.contains_key(*name)).collect();
    let (values, are) = if own.len() == 1 { ("value", "is") } else { ("values", "are") };
    let names = first_of(own.iter().copied(), SHOWN);
    if !own.is_empty() {
        one.notes.push(format!("{} {values} that {are} no tensor {are} here only: {names}", own.len()));
    }
}

/// The cosine of the angle between two tensors: 1 if both are zero, none if one is, or if an element is no number.
fn cosine(found: &Distance) -> Option<f64> {
    match found.norms() {
        _ if found.not_finite != [0, 0] => None,
        [0.0, 0.0] => Some(1.0),
        [a, b] if a == 0.0 || b == 0.0 => None,
        // Rounding can take it a hair beyond one.
        [a, b] => Some((found.product / a / b).clamp(-1.0, 1.0)),
    }
}

/// The index along each axis of an element counted row by row.
fn place(element: usize, shape: Shape) -> Vec<i64> {
    let mut rest = element as i64;
    let mut place: Vec<i64> = shape.dims().to_vec();
    for at in place.iter_mut().rev() {
        let size = (*at).max(1);
        (*at, rest) = (rest % size, rest / size);
    }
    place
}

/// What one framework puts before every name and another does not.
const PREFIXES: [&str; 6] = ["model.", "module.", "transformer.", "base_model.model.", "_orig_mod.", "state_dict."];

/// Names that one checkpoint alone has may be the other's but for what a framework puts before them: a model in a wrapper, beside an
/// optimizer's tensors that have one name in both.
fn align(a: &mut Checkpoint, b: &mut Checkpoint) {
    for prefix in PREFIXES {
        if strip(a, b, prefix) || strip(b, a, prefix) {
            return;
        }
    }
}

/// Takes a prefix off the names if that gives them one in common with the other's.
fn strip(one: &mut Checkpoint, other: &Checkpoint, prefix: &str) -> bool {
    let is_alone = |name: &str| !other.tensors.contains_key(name) && !other.unreadable.contains_key(name);
    let taken: BTreeSet<String> = one.tensors.keys().chain(one.unreadable.keys()).cloned().collect();
    let helps = |name: &&String| {
        let bare = name.strip_prefix(prefix).filter(|bare| !taken.contains(*bare));
        is_alone(name) && bare.is_some_and(|bare| other.tensors.contains_key(bare))
    };
    let found = one.tensors.keys().filter(helps).count();
    if found == 0 {
        return false;
    }
    let rename = |name: String| {
        let bare = name.strip_prefix(prefix).filter(|bare| is_alone(&name) && !taken.contains(*bare));
        bare.map_or(name.clone(), str::to_owned)
    };
    let is_all = one.tensors.keys().all(|name| is_alone(name));
    one.tensors = std::mem::take(&mut one.tensors).into_iter().map(|(name, it)| (rename(name), it)).collect();
    one.unreadable = std::mem::take(&mut one.unreadable).into_iter().map(|(name, it)| (rename(name), it)).collect();
    one.notes.push(if is_all {
        format!("`{prefix}` was taken off the names, which have nothing in common otherwise")
    } else {
        format!("`{prefix}` was taken off the names of {found} tensors, which the other has without it")
    });
    true
}
