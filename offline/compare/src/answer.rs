//! Two captures of one or more steps and ranks, and the answer to where they part.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use trainmon_dump::capture::{Document, DumpKind, RankFiles, StepFiles, Task, Tree, find};

use super::deviation::is_one_kind;
use super::error::CompareError;
use super::evaluation::{Evaluation, Sides};
use super::first::{Divergence, Finding, Kind, Noise, RankCapture, Rewritten, Rounding, Walked, first_divergence};
use super::input::Capture;
use super::judge::GoldenSpreads;
use super::matching::{Matching, Pair, fuse};
use super::meter::Meter;
use super::pairing::{RankPair, pair, step_name};
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

/// The search over steps.
#[derive(Default)]
struct Search {
    noise: Noise,
    first_rounding: Option<(u64, u64, String)>,
    found: Option<(u64, Divergence)>,
    /// The first step in which a part is computed otherwise.
    rewritten: Option<(u64, Divergence)>,
    /// The first step in which calls differ and no value does: kept until values differ in a later one.
    calls: Option<(u64, Divergence)>,
    /// Tensors of optimizers that are put down to rounding.
    unsure: Vec<String>,
    compared: usize,
    unseen: usize,
    unread: usize,
    is_untold: bool,
    /// Tensors of some rank could be held against each other.
    is_seen: bool,
    /// One side has the tree of calls and nothing else.
    is_half_structure: bool,
}

impl Search {
    /// Looks at a step, unless an earlier one has it already, and gives what it found there.
    fn step(&mut self, captures: &StepCaptures, thresholds: &Thresholds, matching: &Matching) -> Option<Divergence> {
        if self.found.is_some() {
            return None;
        }
        let ranks: Vec<RankCapture<'_>> = captures
            .ranks
            .iter()
            .map(|captures| RankCapture {
                rank: captures.rank,
                sides: captures.sides(),
                spreads: captures.spreads.as_ref(),
            })
            .collect();
        self.is_seen |= ranks.iter().any(|rank| is_comparable(rank.sides.target, rank.sides.golden));
        let is_structure = |capture: &Capture| capture.document.task == Task::Structure;
        self.is_half_structure |=
            ranks.iter().any(|rank| is_structure(rank.sides.target) != is_structure(rank.sides.golden));
        let divergence = first_divergence(&ranks, &mut self.noise, thresholds, matching);
        for (rank, walked) in &divergence.walked {
            self.compared += walked.compared;
            self.unseen += walked.unseen;
            self.unread += walked.unread;
            self.is_untold |= walked.is_untold;
            if let (Some((operator, _)), None) = (&walked.first_rounding, &self.first_rounding) {
                self.first_rounding = Some((captures.step, *rank, operator.clone()));
            }
        }
        let is_rewritten = divergence.walked.iter().any(|(_, walked)| !walked.rewritten.is_empty());
        if is_rewritten && self.rewritten.is_none() {
            self.rewritten = Some((captures.step, divergence.clone()));
        }
        if self.unsure.is_empty() {
            self.unsure.extend(divergence.walked.iter().flat_map(|(_, walked)| walked.unsure.iter().cloned()));
        }
        if has_values(&divergence) {
            self.found = Some((captures.step, divergence.clone()));
            self.blame_update(&divergence);
        } else if !divergence.origins.is_empty() && self.calls.is_none() {
            self.calls = Some((captures.step, divergence.clone()));
        }
        Some(divergence)
    }

    /// A parameter that differs at the beginning of a step comes of the update before it: where one side made other calls there, they
    /// are the place.
    fn blame_update(&mut self, divergence: &Divergence) {
        let Some((step, mut before)) = self.calls.take() else { return };
        let is_of_update = divergence.origins.first().is_some_and(|(_, found)| found.kind == Kind::Parameter);
        for (rank, calls) in before.origins.iter_mut().filter(|(_, calls)| calls.is_update) {
            let found = divergence.origins.iter().find(|(other, _)| other == rank);
            calls.suspects = found.map(|(_, found)| found.suspects.clone()).unwrap_or_default();
        }
        if is_of_update && has_values(&before) {
            self.found = Some((step, before));
        }
    }

    fn answer(mut self, target_only: Vec<String>, golden_only: Vec<String>) -> Answer {
        let largest = self.noise.values().map(Rounding::largest).fold(0.0, f64::max);
        let found = self.found.take().or_else(|| self.rewritten.is_none().then(|| self.calls.take()).flatten());
        let (verdict, divergence) = match (found, self.first_rounding.take()) {
            // Two captures with nothing in common are no two runs that agree.
            (Some(_), _) if self.compared == 0 => (
                Verdict::CannotTell {
                    why: "no operator of one capture has a counterpart in the other",
                    capture: "both at the same level and scope, or say with -dm, -cm, -lm or -am what belongs together",
                },
                None,
            ),
            (Some((step, divergence)), _) if self.is_seen || has_values(&divergence) => {
                (parts(step, &divergence), Some(divergence))
            }
            (None, _) if self.is_half_structure => (
                Verdict::CannotTell {
                    why: "one capture is of structure alone; the structures agree, of values it says nothing",
                    capture: "task statistics or tensor on both sides",
                },
                None,
            ),
            // Arguments that agree do not speak for tensors that nobody could hold against each other.
            _ if self.compared == self.unseen || !self.is_seen => (
                Verdict::CannotTell {
                    why: "the captures have neither statistics nor checksums of one kind in common",
                    capture: "both with task statistics or tensor and the same summary_mode",
                },
                None,
            ),
            _ if self.is_untold => (
                Verdict::CannotTell {
                    why: "the checksum of a fused module does not follow from those of its parts, and behind it checksums differ",
                    capture: "statistics or tensors instead of checksums",
                },
                None,
            ),
            _ if self.rewritten.is_some() => {
                let rewritten = self.rewritten.take();
                let verdict = rewritten.as_ref().and_then(|(step, divergence)| otherwise(*step, divergence));
                (verdict.unwrap_or(Verdict::Same), rewritten.map(|(_, divergence)| divergence))
            }
            (_, Some((step, rank, operator))) => (Verdict::Rounding { step, rank, operator, largest }, None),
            (_, None) => (Verdict::Same, None),
        };
        let Self { compared, unseen, unread, unsure, .. } = self;
        Answer { verdict, divergence, compared, unseen, unread, unsure, target_only, golden_only }
    }
}

/// Whether it is about values, not calls alone.
fn has_values(divergence: &Divergence) -> bool {
    divergence.origins.iter().any(|(_, finding)| !finding.suspects.is_empty())
}

/// Whether tensors of two captures can be held against each other, if there are any.
fn is_comparable(target: &Capture, golden: &Capture) -> bool {
    let both = |has: fn(&Document) -> bool| has(&target.document) && has(&golden.document);
    let digest = |capture: &Capture| {
        capture.document.tensors().find_map(|tensor| tensor.digest.clone().filter(|digest| !digest.is_null()))
    };
    let has_no_tensors = |capture: &Capture| capture.document.tensors().next().is_none();
    both(Document::has_statistics)
        || both(|document| document.task == Task::Tensor)
        || has_no_tensors(target)
        || has_no_tensors(golden)
        || digest(target).zip(digest(golden)).is_some_and(|(one, other)| is_one_kind(&one, &other))
}

/// What is computed otherwise, and on which ranks in the same place.
fn otherwise(step: u64, divergence: &Divergence) -> Option<Verdict> {
    let first = divergence.walked.iter().find_map(|(_, walked)| walked.rewritten.first())?;
    let is_same = |walked: &Walked| walked.rewritten.iter().any(|one| one.finding.operator == first.finding.operator);
    let ranks = divergence.walked.iter().filter(|(_, walked)| is_same(walked)).map(|(rank, _)| *rank).collect();
    let places = divergence.walked.iter().map(|(_, walked)| walked.rewritten.len()).max().unwrap_or(1);
    Some(Verdict::Rewritten { step, ranks, rewritten: Box::new(first.clone()), places })
}

/// The first origin; with it the ranks that parted in the same operator by themselves.
fn parts(step: u64, divergence: &Divergence) -> Verdict {
    let Some((_, finding)) = divergence.origins.first() else { return Verdict::Same };
    let ranks =
        divergence.origins.iter().filter(|(_, other)| other.operator == finding.operator).map(|(rank, _)| *rank);
    let mut ranks: Vec<u64> = ranks.collect();
    ranks.sort_unstable();
    let finding = Box::new(finding.clone());
    if finding.suspects.is_empty() {
        return Verdict::OneSided { step, ranks, finding };
    }
    Verdict::Parts { step, ranks, finding }
}
