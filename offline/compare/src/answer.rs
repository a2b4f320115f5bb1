//! Two captures of one or more steps and ranks, and the answer to where they part.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use trainmon_dump::capture::{DumpKind, RankFiles, StepFiles, Task, Tree, find};

use super::error::CompareError;
use super::evaluation::{Evaluation, Sides};
use super::first::{Divergence, Finding, Rewritten};
use super::input::Capture;
use super::judge::GoldenSpreads;
use super::matching::{Matching, Pair, fuse};
use super::meter::Meter;
use super::pairing::{RankPair, pair, step_name};
use super::search::Search;
use super::thresholds::Thresholds;

/// A step's two captures of every rank, in memory.
#[derive(Debug)]
pub struct StepCaptures {
    /// `graph`, `pynative` or empty.
    pub part: String,
    /// The target's number.
    pub step: u64,
    /// Whether one step was named, not a directory of steps.
    pub is_alone: bool,
    /// By rank.
    pub ranks: Vec<RankCaptures>,
    /// What the search saw in it; `None` if they have parted in an earlier step.
    pub divergence: Option<Divergence>,
}

/// A rank's two captures of a step.
#[derive(Debug)]
pub struct RankCaptures {
    /// Its number.
    pub rank: u64,
    /// The run in question.
    pub target: Capture,
    /// The run it is held against.
    pub golden: Capture,
    /// How far further golden runs are from it.
    pub spreads: Option<GoldenSpreads>,
    /// Which values belong together.
    pub pairs: Vec<Pair>,
    /// What is known of them.
    pub evaluation: Evaluation,
    /// Whether one rank was named, not a directory of ranks.
    pub is_alone: bool,
    /// Whether it holds values a script saved by name.
    pub is_debug: bool,
}

impl RankCaptures {
    /// Both captures, with what is known of their values.
    pub fn sides(&self) -> Sides<'_> {
        Sides { target: &self.target, golden: &self.golden, evaluation: &self.evaluation }
    }

    /// Reads all tensors that a table shows, on all cores.
    fn read_tensors(&self, pairs: &[Pair]) {
        if [&self.target, &self.golden].into_iter().all(|capture| capture.document.task == Task::Tensor) {
            pairs.par_iter().for_each(|pair| {
                if let (Some(target), Some(golden)) = (pair.target, pair.golden) {
                    self.sides().elements(target, golden, |_| ());
                }
            });
        }
    }
}

/// What is to be done on the way.
#[derive(Clone, Copy, Debug)]
pub struct Options<'m> {
    /// What belongs together.
    pub matching: &'m Matching,
    /// Whether parts of fused modules are left as they are, as msprobe does.
    pub is_compat: bool,
    /// Whether tables are made of every step.
    pub is_for_tables: bool,
}

/// Where two runs part, if they do.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing that can be seen differs.
    Same,
    /// Differences are of the size of rounding: the first operator that has one, on which rank, in which step, and the largest.
    Rounding {
        /// In which step.
        step: u64,
        /// On which rank.
        rank: u64,
        /// The first operator that differs.
        operator: String,
        /// The largest difference of all.
        largest: f64,
    },
    /// A part is computed otherwise on one side, with the same results; nothing else differs by more than rounding.
    Rewritten {
        /// In which step first.
        step: u64,
        /// On which ranks.
        ranks: Vec<u64>,
        /// Where, until where, and how far the results are apart.
        rewritten: Box<Rewritten>,
        /// In how many places of this step.
        places: usize,
    },
    /// No value differs by more than rounding, but one side made calls the other did not: the first of them.
    OneSided {
        /// In which step.
        step: u64,
        /// On which ranks.
        ranks: Vec<u64>,
        /// Where.
        finding: Box<Finding>,
    },
    /// They part.
    Parts {
        /// In which step.
        step: u64,
        /// On which rank first, or on which ranks in the same operator.
        ranks: Vec<u64>,
        /// Where.
        finding: Box<Finding>,
    },
    /// The captures hold nothing that could tell.
    CannotTell {
        /// Why.
        why: &'static str,
        /// What to capture to know.
        capture: &'static str,
    },
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Where they part.
    pub verdict: Verdict,
    /// The step that has it, with all that its ranks say.
    pub divergence: Option<Divergence>,
    /// Operators that were looked at on both sides.
    pub compared: usize,
    /// Of these, with neither statistics nor checksums.
    pub unseen: usize,
    /// Values of which statistics alone were held against each other, because a file of their tensors cannot be read.
    pub unread: usize,
    /// Tensors of an optimizer that are apart by what it makes of rounding, of the first step that has any.
    pub unsure: Vec<String>,
    /// Steps and ranks of one side alone.
    pub target_only: Vec<String>,
    /// The same of the golden.
    pub golden_only: Vec<String>,
}

/// Compares step after step, each read when its turn comes; `each` is given every step before it is dropped again. Of several
/// golden runs the first is what the target is held against; the others say how far such runs are apart.
///
/// # Errors
/// See [`CompareError`], and what `each` fails with.
pub fn compare<E: From<CompareError>>(
    target: &Path,
    goldens: &[PathBuf],
    thresholds: &Thresholds,
    each: impl FnMut(&StepCaptures) -> Result<(), E>,
) -> Result<Answer, E> {
    let options = Options { matching: &Matching::Name, is_compat: false, is_for_tables: false };
    compare_matched((target, goldens), thresholds, options, &Arc::default(), each)
}

/// The same with operators matched as asked for. `meter` says meanwhile how far it is.
///
/// # Errors
/// See [`compare`].
pub fn compare_matched<E: From<CompareError>>(
    (target, goldens): (&Path, &[PathBuf]),
    thresholds: &Thresholds,
    options: Options<'_>,
    meter: &Arc<Meter>,
    mut each: impl FnMut(&StepCaptures) -> Result<(), E>,
) -> Result<Answer, E> {
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
        // The search goes through all operators one after the other, and finds the tensors that were read meanwhile.
        let (divergence, matched) = rayon::join(
            || search.step(&step, thresholds, options.matching),
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
            // Nobody needs to wait until millions of values are given back.
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
        // What is there on both sides is held against each other.
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
        let evaluation = Evaluation::new(&target, options.is_for_tables);
        let (rank, pairs) = (pair.rank, Vec::new());
        Ok(RankCaptures { rank, target, golden, spreads, pairs, evaluation, is_alone, is_debug })
    });
    let ranks: Result<Vec<RankCaptures>, CompareError> = ranks.collect();
    let (part, step) = pairs.first().map_or((String::new(), 0), |pair| (pair.part.to_owned(), pair.step));
    Ok(StepCaptures { part, step, is_alone: kind != DumpKind::Root, ranks: ranks?, divergence: None })
}

/// The files of either side.
fn both<'p>(pairs: &'p [RankPair<'_>]) -> impl Iterator<Item = &'p RankFiles> {
    pairs.iter().flat_map(|pair| [pair.target, pair.golden])
}

/// The same rank and step of another golden run.
fn same<'t>(tree: &'t Tree, pair: &RankPair<'_>) -> Option<&'t RankFiles> {
    let is_meant =
        |step: &&StepFiles| tree.kind != DumpKind::Root || (step.step == pair.golden_step && step.part == pair.part);
    let ranks = &tree.steps.iter().find(is_meant)?.ranks;
    let is_one = matches!(tree.kind, DumpKind::File | DumpKind::Rank);
    ranks.iter().find(|files| is_one || files.rank == pair.golden.rank)
}

/// The steps of a capture; of one that is none, or whose steps the other has as well, the ranks too.
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
