//! The baseline of the task `diff_check`: checksums of an earlier capture, compared while a step is captured.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use trainmon_capture_files::{
    CaptureError, Document, DumpKind, Leaf, Operator, RankFiles, Section, TensorFacts, Tree, WriteError, find,
    parse_document,
};

/// A tensor's sizes and checksum; the checksum is `None` if the elements are unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) sizes: Vec<u64>,
    pub(crate) crc: Option<u32>,
}

impl Sum {
    fn of(facts: &TensorFacts) -> Self {
        let text = facts.digest.as_ref().and_then(|digest| digest.text());
        let crc = text.and_then(|text| u32::from_str_radix(text, 16).ok());
        Self { sizes: facts.sizes().unwrap_or_default(), crc }
    }

    /// Whether sizes and checksums are equal. If a checksum is missing, only the sizes are compared.
    fn agrees(&self, other: &Self) -> bool {
        self.sizes == other.sizes && self.crc.zip(other.crc).is_none_or(|(one, other)| one == other)
    }
}

/// Checksums of an entry's input and output tensors.
#[derive(Debug, Default)]
struct Sums {
    inputs: Vec<Sum>,
    outputs: Vec<Sum>,
}

/// The entries of the baseline capture.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    entries: HashMap<Box<str>, Sums, FixedState>,
    /// Calls that have begun: whether their inputs agree.
    begun: Mutex<HashMap<String, bool, FixedState>>,
    differing: AtomicU64,
}

impl Bench {
    /// Loads the capture of the same step and rank. If `path` is a single capture, its step and rank are ignored.
    pub(crate) fn load(path: &Path, step: u64, rank: u64) -> Result<Self, WriteError> {
        let failed = |source: CaptureError| WriteError::Bench { source };
        let tree = find(path).map_err(failed)?;
        let none = || WriteError::NoBench { path: path.to_path_buf(), step, rank };
        let document = &rank_in(&tree, step, rank).ok_or_else(none)?.document;
        let unread = |source| failed(CaptureError::Read { path: document.clone(), source });
        let text = std::fs::read(document).map_err(unread)?;
        Ok(Self::of(&parse_document(&text, document).map_err(failed)?))
    }

    fn of(document: &Document) -> Self {
        let entries = document.operators.iter().map(|operator| (operator.name.clone(), sums_of(operator)));
        Self { entries: entries.collect(), ..Self::default() }
    }

    /// Takes the inputs or outputs of an entry, or both. Returns whether the outputs differ although the inputs are equal.
    /// An entry that the baseline lacks does not differ.
    pub(crate) fn differs(&self, name: &str, inputs: Option<&[Sum]>, outputs: Option<&[Sum]>) -> bool {
        let Some(sums) = self.entries.get(name) else { return false };
        let mut begun = self.begun.lock();
        if let Some(inputs) = inputs {
            let _earlier = begun.insert(name.to_owned(), agree(inputs, &sums.inputs));
        }
        let Some(outputs) = outputs else { return false };
        let inputs_agree = begun.remove(name).unwrap_or(sums.inputs.is_empty());
        inputs_agree && !agree(outputs, &sums.outputs)
    }

    /// Counts a differing entry and returns the total.
    pub(crate) fn count(&self) -> u64 {
        self.differing.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn agree(ours: &[Sum], theirs: &[Sum]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(one, other)| one.agrees(other))
}

fn rank_in(tree: &Tree, step: u64, rank: u64) -> Option<&RankFiles> {
    let step = match (tree.kind, &tree.steps[..]) {
        (DumpKind::File | DumpKind::Rank | DumpKind::Step, [only]) => only,
        (_, steps) => steps.iter().find(|one| one.step == step)?,
    };
    match (tree.kind, &step.ranks[..]) {
        (DumpKind::File | DumpKind::Rank, [only]) => Some(only),
        (_, ranks) => ranks.iter().find(|one| one.rank == rank),
    }
}

fn sums_of(operator: &Operator) -> Sums {
    let mut sums = Sums::default();
    for value in &operator.values {
        let Leaf::Tensor(facts) = &value.leaf else { continue };
        match value.section {
            Section::Input => sums.inputs.push(Sum::of(facts)),
            Section::Output | Section::ParameterGradient => sums.outputs.push(Sum::of(facts)),
            Section::Parameter | Section::Saved => {}
        }
    }
    sums
}
