//! The search over steps and its answer.

use trainmon_capture_files::{Document, Task};

use super::captures::StepCaptures;
use super::deviation::is_one_kind;
use super::first::{Divergence, Kind, Noise, RankCapture, Rounding, Walked, first_divergence};
use super::input::Capture;
use super::name::{Direction, OperatorName};
use super::thresholds::Thresholds;
use super::verdict::{CaptureAnswer, CaptureVerdict};

/// The state of the search over steps.
#[derive(Default)]
pub(super) struct Search {
    noise: Noise,
    first_rounding: Option<(u64, u64, String)>,
    /// The first differing result that is only rounding.
    first_residue: Option<(u64, u64, String)>,
    /// Update operators of which only the arguments were compared.
    unjudged: usize,
    found: Option<(u64, Divergence)>,
    /// The first step with rewritten code.
    rewritten: Option<(u64, Divergence)>,
    /// The first step in which calls differ but no value does: kept until values differ in a later step.
    calls: Option<(u64, Divergence)>,
    /// The same for the last step.
    last_calls: Option<(u64, Divergence)>,
    /// Optimizer tensors whose difference is attributed to rounding.
    unsure: Vec<String>,
    compared: usize,
    unseen: usize,
    unread: usize,
    finer: usize,
    parts: usize,
    is_untold: bool,
    /// Whether tensors of any rank were comparable.
    is_seen: bool,
    /// Whether one side has only the call tree.
    is_half_structure: bool,
}

impl Search {
    /// Searches a step, unless an earlier one has diverged, and returns its result.
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

    /// Moves the divergence to the previous step's update if a parameter differs at the beginning of a step and the calls of
    /// that update differ. `before` is the previous step, if its calls differ.
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

    pub(super) fn answer(mut self, target_only: Vec<String>, golden_only: Vec<String>) -> CaptureAnswer {
        let largest = self.noise.values().map(Rounding::largest).fold(0.0, f64::max);
        // Rewritten code has one-sided calls, but no one-sided gradients.
        let are_told = self.rewritten.is_none() || self.calls.as_ref().is_some_and(|(_, calls)| lacks_gradients(calls));
        let found = self.found.take().or_else(|| are_told.then(|| self.calls.take()).flatten());
        let (verdict, divergence) = match (found, self.first_rounding.take().or_else(|| self.first_residue.take())) {
            // Two captures with nothing in common do not agree.
            (Some(_), _) if self.compared == 0 => (
                CaptureVerdict::CannotTell {
                    why: "no operator of one capture has a counterpart in the other",
                    capture: "both at the same level and scope, or map the operators with `-dm`, `-cm`, `-lm` or `-am`",
                },
                None,
            ),
            (Some((step, divergence)), _) if self.is_seen || has_values(&divergence) => {
                (parts(step, &divergence), Some(divergence))
            }
            (None, _) if self.is_half_structure => (
                CaptureVerdict::CannotTell {
                    why: "the structures agree, but one capture has no values (task `structure`)",
                    capture: "both with task `statistics` or `tensor`",
                },
                None,
            ),
            // Equal arguments prove nothing about tensors that were not compared.
            _ if self.compared == self.unseen || !self.is_seen => (
                CaptureVerdict::CannotTell {
                    why: "the captures share neither statistics nor a type of checksum",
                    capture: "both with task `statistics` or `tensor` and the same `summary_mode`",
                },
                None,
            ),
            _ if self.is_untold => (
                CaptureVerdict::CannotTell {
                    why: "the checksum of a fused module does not follow from those of its parts, and later checksums differ",
                    capture: "statistics or tensors instead of checksums",
                },
                None,
            ),
            _ if self.rewritten.is_some() => {
                let rewritten = self.rewritten.take();
                let verdict = rewritten.as_ref().and_then(|(step, divergence)| otherwise(*step, divergence));
                (verdict.unwrap_or(CaptureVerdict::Same), rewritten.map(|(_, divergence)| divergence))
            }
            (_, Some((step, rank, operator))) => (CaptureVerdict::Rounding { step, rank, operator, largest }, None),
            (_, None) => (CaptureVerdict::Same, None),
        };
        let Self { compared, unseen, unread, finer, parts, unjudged, unsure, .. } = self;
        CaptureAnswer {
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

/// Whether values differ, not only calls.
fn has_values(divergence: &Divergence) -> bool {
    divergence.origins.iter().any(|(_, finding)| !finding.suspects.is_empty())
}

fn lacks_gradients(divergence: &Divergence) -> bool {
    let mut names = divergence.origins.iter().filter_map(|(_, finding)| OperatorName::parse(&finding.operator));
    names.any(|name| name.direction == Direction::ParameterGradient)
}

/// Whether tensors of two captures are comparable, if there are any.
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

/// The verdict for rewritten code, with the ranks that have it in the same place.
fn otherwise(step: u64, divergence: &Divergence) -> Option<CaptureVerdict> {
    let first = divergence.walked.iter().find_map(|(_, walked)| walked.rewritten.first())?;
    let is_same = |walked: &Walked| walked.rewritten.iter().any(|one| one.finding.operator == first.finding.operator);
    let ranks = divergence.walked.iter().filter(|(_, walked)| is_same(walked)).map(|(rank, _)| *rank).collect();
    let places = divergence.walked.iter().map(|(_, walked)| walked.rewritten.len()).max().unwrap_or(1);
    Some(CaptureVerdict::Rewritten { step, ranks, rewritten: Box::new(first.clone()), places })
}

/// The first origin, with the ranks that diverged in the same operator on their own.
fn parts(step: u64, divergence: &Divergence) -> CaptureVerdict {
    let Some((_, finding)) = divergence.origins.first() else { return CaptureVerdict::Same };
    let ranks =
        divergence.origins.iter().filter(|(_, other)| other.operator == finding.operator).map(|(rank, _)| *rank);
    let mut ranks: Vec<u64> = ranks.collect();
    ranks.sort_unstable();
    let finding = Box::new(finding.clone());
    if finding.suspects.is_empty() {
        let walked = || divergence.walked.iter().map(|(_, walked)| walked);
        let differing = walked().map(|walked| walked.differing).sum();
        let rounding = (differing, walked().map(|walked| walked.largest_rounding).fold(0.0, f64::max));
        return CaptureVerdict::OneSided { step, ranks, finding, rounding };
    }
    CaptureVerdict::Parts { step, ranks, finding }
}
