//! Finds and pairs the ranks of a graph.

use std::path::Path;

use trainmon_capture_files::{DumpKind, RankFiles, StepFiles, Tree, find};

use crate::error::GraphError;

/// A rank of a step.
pub(crate) struct RankInput<'t> {
    pub(crate) step: u64,
    pub(crate) rank: u64,
    pub(crate) target: &'t RankFiles,
    /// `None` without a baseline.
    pub(crate) golden: Option<&'t RankFiles>,
}

impl RankInput<'_> {
    /// The size of its documents; an unreadable one counts as empty.
    pub(crate) fn bytes(&self) -> u64 {
        let documents = std::iter::once(self.target).chain(self.golden).map(|files| &files.document);
        documents.filter_map(|path| Some(path.metadata().ok()?.len())).sum()
    }
}

/// The ranks in order, and steps and ranks of one side only.
#[derive(Default)]
pub(crate) struct Inputs<'t> {
    pub(crate) ranks: Vec<RankInput<'t>>,
    pub(crate) warnings: Vec<String>,
}

/// Finds the captures of a path. Of a framework's two parts, only the first is used.
pub(crate) fn captures(path: &Path, warnings: &mut Vec<String>) -> Result<Tree, GraphError> {
    let mut tree = find(path)?;
    let saved = tree.steps.iter().flat_map(|step| &step.ranks).find(|rank| rank.is_debug());
    if let Some(rank) = saved {
        return Err(GraphError::SavedValues { path: rank.document.clone() });
    }
    let part = tree.steps.first().map(|step| step.part.clone()).unwrap_or_default();
    if let Some(other) = tree.steps.iter().find(|step| step.part != part) {
        warnings.push(format!("`{}` in `{}` is left out: pass its directory", other.part, path.display()));
        tree.steps.retain(|step| step.part == part);
    }
    Ok(tree)
}

/// Every rank of a capture.
pub(crate) fn alone(target: &Tree) -> Inputs<'_> {
    let ranks = target.steps.iter().flat_map(|step| {
        let of_rank = |files| (step.step, files);
        step.ranks.iter().map(of_rank)
    });
    let ranks =
        ranks.map(|(step, files): (u64, &RankFiles)| RankInput { step, rank: files.rank, target: files, golden: None });
    Inputs { ranks: ranks.collect(), warnings: Vec::new() }
}

/// The steps and ranks that exist on both sides, by number. Two paths that name a step or a rank pair whatever their numbers.
pub(crate) fn paired<'t>(
    (target_path, target): (&Path, &'t Tree),
    (golden_path, golden): (&Path, &'t Tree),
) -> Result<Inputs<'t>, GraphError> {
    let [target_kind, golden_kind] = [target, golden].map(|tree| kind(tree.kind));
    let paths = || (target_path.to_path_buf(), golden_path.to_path_buf());
    if target_kind != golden_kind {
        let (target, golden) = paths();
        return Err(GraphError::AnotherKind { target, target_kind, golden, golden_kind });
    }
    let is_run = target.kind == DumpKind::Root;
    let mut inputs = Inputs::default();
    for step in &target.steps {
        match golden.steps.iter().find(|other| !is_run || other.step == step.step) {
            Some(other) => pair_ranks(step, other, target_kind == kind(DumpKind::Rank), &mut inputs),
            None => inputs.warnings.push(format!("step {} exists only in the target", step.step)),
        }
    }
    let alone = golden.steps.iter().filter(|step| is_run && !target.steps.iter().any(|other| other.step == step.step));
    inputs.warnings.extend(alone.map(|step| format!("step {} exists only in the baseline", step.step)));
    if inputs.ranks.is_empty() {
        let (target_path, golden_path) = paths();
        let (of_target, of_golden) = (listed(target), listed(golden));
        return Err(GraphError::NothingPairs { target: target_path, of_target, golden: golden_path, of_golden });
    }
    Ok(inputs)
}

fn pair_ranks<'t>(target: &'t StepFiles, golden: &'t StepFiles, is_one: bool, inputs: &mut Inputs<'t>) {
    let step = target.step;
    let is_same = |one: &RankFiles, other: &RankFiles| is_one || one.rank == other.rank;
    for files in &target.ranks {
        match golden.ranks.iter().find(|other| is_same(files, other)) {
            Some(other) => {
                inputs.ranks.push(RankInput { step, rank: files.rank, target: files, golden: Some(other) });
            }
            None => inputs.warnings.push(format!("step {step}, rank {} exists only in the target", files.rank)),
        }
    }
    let alone = golden.ranks.iter().filter(|other| !target.ranks.iter().any(|files| is_same(files, other)));
    inputs.warnings.extend(alone.map(|files| format!("step {step}, rank {} exists only in the baseline", files.rank)));
}

fn kind(kind: DumpKind) -> &'static str {
    match kind {
        DumpKind::File | DumpKind::Rank => "the capture of a rank",
        DumpKind::Step => "a directory of ranks",
        DumpKind::Root => "a directory of steps",
    }
}

/// The steps and ranks of a capture, for an error.
fn listed(tree: &Tree) -> String {
    let ranks = |step: &StepFiles| {
        let ranks: Vec<String> = step.ranks.iter().map(|files| files.rank.to_string()).collect();
        format!("step {} with rank {}", step.step, ranks.join(", "))
    };
    let mut steps: Vec<String> = tree.steps.iter().take(3).map(ranks).collect();
    if tree.steps.len() > 3 {
        steps.push("…".to_owned());
    }
    steps.join("; ")
}
