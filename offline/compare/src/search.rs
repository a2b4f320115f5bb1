//! The search over steps: what each shows, and the answer in the end.

use trainmon_capture_files::{Document, Task};

use super::captures::StepCaptures;
use super::deviation::is_one_kind;
use super::first::{Divergence, Kind, Noise, RankCapture, Rounding, Walked, first_divergence};
use super::input::Capture;
use super::name::{Direction, OperatorName};
use super::thresholds::Thresholds;
use super::verdict::{Answer, Verdict};

/// The search over steps.
#[derive(Default)]
pub(super) struct Search {
    noise: Noise,
    first_rounding: Option<(u64, u64, String)>,
    /// The first result that is all rounding.
    first_residue: Option<(u64, u64, String)>,
    /// Operators of updates that were not judged but for their arguments.
    unjudged: usize,
    found: Option<(u64, Divergence)>,
    /// The first step in which a part is computed otherwise.
    rewritten: Option<(u64, Divergence)>,
    /// The first step in which calls differ and no value does: kept until values differ in a later one.
    calls: Option<(u64, Divergence)>,
    /// The same of the step looked at last.
    last_calls: Option<(u64, Divergence)>,
    /// Tensors of optimizers that are put down to rounding.
    unsure: Vec<String>,
    compared: usize,
    unseen: usize,
    unread: usize,
    finer: usize,
    parts: usize,
    is_untold: bool,
    /// Tensors of some rank could be held against each other.
    is_seen: bool,
    /// One side has the tree of calls and nothing else.
    is_half_structure: bool,
}

impl Search {
    /// Looks at a step, unless an earlier one has it already, and gives what it found there.
    pub(super) fn step(&mut self, captures: &StepCaptures, thresholds: &Thresholds) -> Option<Divergence> {
        if self.found.is_some() {
            return None;
        }
        let ranks: Vec<RankCapture<'_>> = captures
            .ranks
            .iter()
            .map(|captures| RankCapture {
                rank: captures.rank,
                sides: captures.sides(),
                aligned: &captures.aligned,
                spreads: captures.spreads.as_ref(),
            })
            .collect();
        self.is_seen |= ranks.iter().any(|rank| is_comparable(rank.sides.target, rank.sides.golden));
        let is_structure = |capture: &Capture| capture.document.task == Task::Structure;
        self.is_half_structure |=
            ranks.iter().any(|rank| is_structure(rank.sides.target) != is_structure(rank.sides.golden));
        let divergence = first_divergence(&ranks, &mut self.noise, thresholds);
        for (rank, walked) in &divergence.walked {
            self.compared += walked.compared;
            self.unseen += walked.unseen;
            self.unread += walked.unread;
            self.finer += walked.finer;
            self.parts += walked.parts;
            self.is_untold |= walked.is_untold;
            self.unjudged += walked.unjudged;
            if let (Some(operator), None) = (&walked.first_residue, &self.first_residue) {
                self.first_residue = Some((captures.step, *rank, operator.clone()));
            }
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
        let before = self.last_calls.take();
        if has_values(&divergence) {
            self.found = Some((captures.step, divergence.clone()));
            self.blame_update(&divergence, before);
        } else if !divergence.origins.is_empty() {
            self.calls.get_or_insert_with(|| (captures.step, divergence.clone()));
            self.last_calls = Some((captures.step, divergence.clone()));
        }
        Some(divergence)
    }

    /// A parameter that differs at the beginning of a step comes of the update before it: where one side made other calls there, they
    /// are the place. `before` is the step before, if its calls differ.
    fn blame_update(&mut self, divergence: &Divergence, before: Option<(u64, Divergence)>) {
        let Some((step, mut before)) = before else { return };
        let is_of_update = divergence.origins.first().is_some_and(|(_, found)| found.kind == Kind::Parameter);
        for (rank, calls) in before.origins.iter_mut().filter(|(_, calls)| calls.is_update) {
            let found = divergence.origins.iter().find(|(other, _)| other == rank);
            calls.suspects = found.map(|(_, found)| found.suspects.clone()).unwrap_or_default();
        }
        if is_of_update && has_values(&before) {
            self.found = Some((step, before));
        }
    }

    pub(super) fn answer(mut self, target_only: Vec<String>, golden_only: Vec<String>) -> Answer {
        let largest = self.noise.values().map(Rounding::largest).fold(0.0, f64::max);
        // Code that was written otherwise has calls of one side alone, but no gradients of one side alone.
        let are_told = self.rewritten.is_none() || self.calls.as_ref().is_some_and(|(_, calls)| lacks_gradients(calls));
        let found = self.found.take().or_else(|| are_told.then(|| self.calls.take()).flatten());
        let (verdict, divergence) = match (found, self.first_rounding.take().or_else(|| self.first_residue.take())) {
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
        let Self { compared, unseen, unread, finer, parts, unjudged, unsure, .. } = self;
        Answer {
            verdict,
            divergence,
            compared,
            unseen,
            unread,
            finer,
            parts,
            unjudged,
            unsure,
            target_only,
            golden_only,
        }
    }
}

/// Whether it is about values, not calls alone.
fn has_values(divergence: &Divergence) -> bool {
    divergence.origins.iter().any(|(_, finding)| !finding.suspects.is_empty())
}

fn lacks_gradients(divergence: &Divergence) -> bool {
    let mut names = divergence.origins.iter().filter_map(|(_, finding)| OperatorName::parse(&finding.operator));
    names.any(|name| name.direction == Direction::ParameterGradient)
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
        let walked = || divergence.walked.iter().map(|(_, walked)| walked);
        let differing = walked().map(|walked| walked.differing).sum();
        let rounding = (differing, walked().map(|walked| walked.largest_rounding).fold(0.0, f64::max));
        return Verdict::OneSided { step, ranks, finding, rounding };
    }
    Verdict::Parts { step, ranks, finding }
}
