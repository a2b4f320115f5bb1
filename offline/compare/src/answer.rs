//! Compares two captures of one or more steps and ranks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use trainmon_capture_files::{DumpKind, RankFiles, StepFiles, Task, Tree, find};

pub(crate) use super::captures::RankCaptures;
pub use super::captures::StepCaptures;
use super::error::CompareError;
use super::evaluation::Evaluation;
use super::input::Capture;
use super::judge::GoldenSpreads;
use super::matching::{Matching, fuse};
use super::meter::Meter;
use super::pairing::{RankPair, pair, step_name};
use super::search::Search;
use super::thresholds::Thresholds;
pub use super::verdict::{CaptureAnswer, CaptureVerdict};

/// The options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Options<'m> {
    /// How operators and values pair.
    pub matching: &'m Matching,
    /// Whether fused modules stay fused, as in msprobe.
    pub is_compat: bool,
    /// Whether the caller makes tables of every step.
    pub is_for_tables: bool,
}

/// Compares two captures step by step and drops each step after `each` has received it. The target is compared with the first
/// baseline; further baselines measure the variation between such runs.
///
/// # Errors
/// See [`CompareError`], and the errors of `each`.
pub fn compare<E: From<CompareError>>(
    target: &Path,
    goldens: &[PathBuf],
    thresholds: &Thresholds,
    each: impl FnMut(&StepCaptures) -> Result<(), E>,
) -> Result<CaptureAnswer, E> {
    let options = Options { matching: &Matching::Name, is_compat: false, is_for_tables: false };
    compare_matched((target, goldens), thresholds, options, &Arc::default(), each)
}

/// Compares with a given matching of operators. `meter` receives the progress.
///
/// # Errors
/// See [`compare`].
pub fn compare_matched<E: From<CompareError>>(
    (target, goldens): (&Path, &[PathBuf]),
    thresholds: &Thresholds,
    options: Options<'_>,
    meter: &Arc<Meter>,
    mut each: impl FnMut(&StepCaptures) -> Result<(), E>,
) -> Result<CaptureAnswer, E> {
    let open = |path| find(path).map_err(CompareError::from);
    let Some((golden, others)) = goldens.split_first() else { return Err(E::from(CompareError::NoGolden)) };
    let (target_tree, golden_tree) = (open(target)?, open(golden)?);
    let others: Vec<Tree> = others.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
    let pairing = pair(&target_tree, &golden_tree);
    if pairing.pairs.is_empty() {
        return Err(E::from(CompareError::NothingPairs {
            target: target.to_path_buf(),
            of_target: described(&target_tree, &golden_tree),
            golden: golden.clone(),
            of_golden: described(&golden_tree, &target_tree),
        }));
    }
    meter.expect(both(&pairing.pairs));
    let mut search = Search::default();
    let mut left = pairing.pairs.len();
    for pairs in pairing.pairs.chunk_by(|one, next| one.step == next.step && one.part == next.part) {
        let mut step = read(pairs, &others, (target_tree.kind, options), meter)?;
        let match_and_read = |rank: &RankCaptures| {
            let pairs = options.matching.pairs(&rank.target, &rank.golden, options.is_compat);
            if options.is_for_tables {
                rank.read_tensors(&pairs);
            }
            pairs
        };
        // The search visits the operators in order and uses the tensors that the other thread has read.
        let (divergence, matched) = rayon::join(
            || search.step(&step, thresholds),
            || step.ranks.par_iter().map(match_and_read).collect::<Vec<_>>(),
        );
        for (rank, pairs) in step.ranks.iter_mut().zip(matched) {
            rank.pairs = pairs;
        }
        step.divergence = divergence;
        each(&step)?;
        meter.compared(both(pairs));
        left -= pairs.len();
        if left == 0 {
            // Freeing millions of values must not delay the answer.
            rayon::spawn(move || drop(step));
        }
    }
    Ok(search.answer(pairing.target_only, pairing.golden_only))
}

fn read(
    pairs: &[RankPair<'_>],
    others: &[Tree],
    (kind, options): (DumpKind, Options<'_>),
    meter: &Arc<Meter>,
) -> Result<StepCaptures, CompareError> {
    let one = |files: &RankFiles| Capture::read_metered(files, meter).map_err(CompareError::from);
    let ranks = pairs.par_iter().map(|pair| {
        let (target, golden) = rayon::join(|| one(pair.target), || one(pair.golden));
        let (mut target, mut golden) = (target?, golden?);
        let mut spreads = None;
        for files in others.iter().filter_map(|tree| same(tree, pair)) {
            spreads.get_or_insert_with(GoldenSpreads::default).add(&golden, &one(files)?);
        }
        // Only what both sides have is compared.
        match (target.document.task, golden.document.task) {
            (Task::Structure, Task::Structure) => {}
            (Task::Structure, _) => golden.keep_structure(),
            (_, Task::Structure) => target.keep_structure(),
            _ => {}
        }
        if !options.is_compat {
            fuse(&mut target, &mut golden);
        }
        let is_alone = matches!(kind, DumpKind::File | DumpKind::Rank);
        let is_debug = pair.target.is_debug();
        let evaluation = Evaluation::new(&target, &golden, options.is_for_tables);
        let aligned = options.matching.align(&target, &golden);
        let (rank, pairs) = (pair.rank, Vec::new());
        Ok(RankCaptures { rank, target, golden, spreads, aligned, pairs, evaluation, is_alone, is_debug })
    });
    let ranks: Result<Vec<RankCaptures>, CompareError> = ranks.collect();
    let (part, step) = pairs.first().map_or((String::new(), 0), |pair| (pair.part.to_owned(), pair.step));
    Ok(StepCaptures { part, step, is_alone: kind != DumpKind::Root, ranks: ranks?, divergence: None })
}

/// The files of both sides.
fn both<'p>(pairs: &'p [RankPair<'_>]) -> impl Iterator<Item = &'p RankFiles> {
    pairs.iter().flat_map(|pair| [pair.target, pair.golden])
}

/// The same rank and step of another baseline.
fn same<'t>(tree: &'t Tree, pair: &RankPair<'_>) -> Option<&'t RankFiles> {
    let is_meant =
        |step: &&StepFiles| tree.kind != DumpKind::Root || (step.step == pair.golden_step && step.part == pair.part);
    let ranks = &tree.steps.iter().find(is_meant)?.ranks;
    let is_one = matches!(tree.kind, DumpKind::File | DumpKind::Rank);
    ranks.iter().find(|files| is_one || files.rank == pair.golden.rank)
}

/// The steps of a capture; the ranks too, if it is no capture root or the other side has the same steps.
fn described(tree: &Tree, other: &Tree) -> String {
    let list = |numbers: &mut dyn Iterator<Item = String>| numbers.collect::<Vec<_>>().join(", ");
    let ranks = |step: &StepFiles| list(&mut step.ranks.iter().map(|rank| rank.rank.to_string()));
    if tree.kind != DumpKind::Root {
        return tree.steps.first().map_or_else(String::new, |step| format!("ranks {}", ranks(step)));
    }
    let is_common = |step: &&StepFiles| {
        other.kind == DumpKind::Root && other.steps.iter().any(|of| of.step == step.step && of.part == step.part)
    };
    if let Some(step) = tree.steps.iter().find(is_common) {
        return format!("ranks {} in {}", ranks(step), step_name(step));
    }
    let number = |step: &StepFiles| step_name(step).replacen("step ", "", 1);
    format!("steps {}", list(&mut tree.steps.iter().map(number)))
}
