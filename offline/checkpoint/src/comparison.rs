//! Compares two checkpoints, tensor by tensor.

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

/// The size of a batch of tensors that is compared in parallel on all cores.
const BATCH_BYTES: u64 = 256 << 20;

/// The comparison result of two tensors of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorVerdict {
    /// All elements are equal.
    Identical,
    /// No element differs by more than one unit in the last place of the coarser dtype.
    Rounding,
    /// Some element differs by more.
    Different,
    /// The shapes differ: nothing can be measured.
    Shape,
}

/// Two tensors of one name.
#[derive(Clone, Debug, Serialize)]
pub struct TensorRow {
    /// The name.
    pub name: String,
    /// The outcome.
    pub verdict: TensorVerdict,
    /// The dtype of each.
    pub dtype: [String; 2],
    /// The shape of each.
    pub shape: [Vec<i64>; 2],
    /// The number of elements of each.
    pub numel: [u64; 2],
    /// The measured distances; `None` if the shapes differ.
    pub distance: Option<Measures>,
}

/// Distances between two tensors of one shape; infinite and NaN values are `null` in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Measures {
    /// Euclidean norm of the difference.
    pub l2: f64,
    /// `l2` divided by the norm of the second tensor; `None` if that norm is zero.
    pub relative_l2: Option<f64>,
    /// Cosine of the angle; 1 if both tensors are zero, `None` if one is.
    pub cos: Option<f64>,
    /// Largest absolute difference of two elements.
    pub max_abs: f64,
    /// Index of that element, one number for each axis.
    pub max_abs_at: Vec<i64>,
    /// The number of elements that differ.
    pub differing: u64,
    /// Of these, the number that differ by more than one unit in the last place.
    pub beyond_rounding: u64,
    /// The number of infinite or NaN elements of each.
    pub non_finite: [u64; 2],
    /// Euclidean norms of each.
    pub norms: [f64; 2],
}

/// One side of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The path that was passed.
    pub path: PathBuf,
    /// The checkpoint's layout.
    pub layout: Layout,
    /// The number of tensors that were read.
    pub tensors: usize,
    /// Notes on how the checkpoint was read.
    pub notes: Vec<String>,
    /// Tensors that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// The comparison of two checkpoints.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The checkpoint under test.
    pub target: Side,
    /// The baseline.
    pub golden: Side,
    /// Tensors in both checkpoints, by name.
    pub tensors: Vec<TensorRow>,
    /// Names only in the target.
    pub target_only: Vec<String>,
    /// Names only in the baseline.
    pub golden_only: Vec<String>,
    /// The number of numbers and texts in both checkpoints.
    pub values: usize,
    /// Numbers and texts that differ.
    pub other_values: Vec<OtherValue>,
}

/// A number or text beside the tensors that differs between the checkpoints.
#[derive(Clone, Debug, Serialize)]
pub struct OtherValue {
    /// The name.
    pub name: String,
    /// The target's value in Python syntax.
    pub target: String,
    /// The baseline's value in Python syntax.
    pub golden: String,
}

impl Comparison {
    /// Whether both checkpoints contain the same names and all values are equal within rounding.
    pub fn is_same(&self) -> bool {
        let unreadable = self.target.unreadable.len() + self.golden.unreadable.len();
        unreadable + self.target_only.len() + self.golden_only.len() + self.other_values.len() == 0
            && self.tensors.iter().all(|row| row.verdict <= TensorVerdict::Rounding)
    }

    /// The number of tensors with this verdict.
    pub fn count(&self, verdict: TensorVerdict) -> usize {
        self.tensors.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// Compares two checkpoints. Calls `progress` with the progress.
///
/// # Errors
/// One of them is not a checkpoint, is incomplete or damaged.
pub fn compare(
    target: &Path,
    golden: &Path,
    dialect: Dialect,
    progress: &mut (dyn FnMut(Progress) + Send),
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
    let progress = Mutex::new((0u64, progress));
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

/// Batches of names whose tensors fit into memory together.
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
        return Ok(row(TensorVerdict::Shape, None));
    }
    let (x, y) = (target.read(name)?, golden.read(name)?);
    let found = Distance::measure_on_all_cores(&x, &y, Quotient::Double);
    // Beyond 2^53, two different integers may convert to the same f64.
    let is_wide = matches!(x.dtype(), Dtype::I64 | Dtype::U64) && x.dtype() == y.dtype();
    let verdict = match () {
        () if found.beyond_unit > 0 || (is_wide && x.bytes() != y.bytes()) => TensorVerdict::Different,
        () if found.differing > 0 => TensorVerdict::Rounding,
        () => TensorVerdict::Identical,
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

/// Adds a note about values that only one checkpoint has.
fn note_own_values(one: &mut Checkpoint, other: &Checkpoint) {
    /// The number of names in the note.
    const SHOWN: usize = 3;
    let own: Vec<&String> = one.values.keys().filter(|name| !other.values.contains_key(*name)).collect();
    let values = if own.len() == 1 { "non-tensor value" } else { "non-tensor values" };
    let names = first_of(own.iter().copied(), SHOWN);
    if !own.is_empty() {
        one.notes.push(format!("{} {values} only in this checkpoint: {names}", own.len()));
    }
}

/// The cosine of the angle between two tensors: 1 if both are zero, `None` if one is zero or an element is not finite.
fn cosine(found: &Distance) -> Option<f64> {
    match found.norms() {
        _ if found.not_finite != [0, 0] => None,
        [0.0, 0.0] => Some(1.0),
        [a, b] if a == 0.0 || b == 0.0 => None,
        // Rounding can push it slightly beyond one.
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

/// Prefixes that some frameworks add to every name.
const PREFIXES: [&str; 6] = ["model.", "module.", "transformer.", "base_model.model.", "_orig_mod.", "state_dict."];

/// Aligns names that differ only in a framework's prefix, such as those of a wrapped model beside optimizer tensors
/// with equal names.
fn align(a: &mut Checkpoint, b: &mut Checkpoint) {
    for prefix in PREFIXES {
        if strip(a, b, prefix) || strip(b, a, prefix) {
            return;
        }
    }
}

/// Removes a prefix from the names if that gives them a name in common with the other checkpoint.
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
        format!("removed the prefix `{prefix}` from the names: with it, none matches the other checkpoint")
    } else {
        format!(
            "removed the prefix `{prefix}` from the names of {found} tensors, which the other checkpoint has without it"
        )
    });
    true
}
