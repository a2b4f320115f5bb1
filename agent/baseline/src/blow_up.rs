//! Trainings that blow up in both runs, where noise and faults can no longer be distinguished.
//!
//! If the loss explodes, each step multiplies every difference in all tensors: rounding grows as large as any fault
//! within a few steps, and one run may reach infinity a step before the other. This is a property of the training, not
//! of the target, and the golden run shows it on its own: its gradients or activations leave their early range. Values
//! beyond their tolerance in such steps are not reported as divergence.
//!
//! For each tensor, the smaller of both runs' magnitudes counts: if only the target blows up, that is a divergence.

use std::collections::BTreeSet;

use super::found::{BlowUp, Divergence, Judged};
use super::noise::BoundSource;

/// The growth of gradients over their maximum in the first quarter of the steps that counts as blow-up. For
/// activations, the same, but only if gradients or the loss have grown as well (activations alone grow during a healthy
/// training).
const RISE: f64 = 10.0;
/// The growth of gradients or the loss that is required in addition to that of activations.
const RISE_BESIDE: f64 = 2.0;
/// The first quarter of the steps is the reference.
const EARLY_SHARE: usize = 4;
/// A trajectory of this many steps is thinned to half, so that a training of months fits into memory.
const MOST_KEPT: usize = 1 << 16;
/// How many steps before and after the growth of magnitudes noise may exceed its tolerance.
const STEPS_AROUND: usize = 3;

/// The quantities whose magnitudes are tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Activations,
    Loss,
    Gradients,
}

impl Part {
    /// The quantity of a position in the step (`noise::place_of`). Each is tracked separately, because a step need not
    /// have all kinds.
    fn of(place: u8) -> Option<Self> {
        match place {
            3 => Some(Self::Activations),
            4 => Some(Self::Loss),
            5 | 6 | 8 => Some(Self::Gradients),
            _ => None,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Activations => "activations are",
            Self::Loss => "the loss is",
            Self::Gradients => "gradients are",
        }
    }
}

/// The root mean square of the magnitudes of one quantity, over the training.
#[derive(Debug)]
struct Trajectory {
    place: u8,
    /// The maximum up to each step, for the steps that are kept.
    largest: Vec<f64>,
    /// One in this many steps is kept.
    stride: usize,
    /// The number of steps so far.
    seen: usize,
    most: f64,
    /// The sum of squares in this step.
    squares: f64,
    count: u32,
}

impl Trajectory {
    fn of(place: u8) -> Self {
        Self { place, largest: Vec::new(), stride: 1, seen: 0, most: 0.0, squares: 0.0, count: 0 }
    }

    /// Ends the step. Returns this step's value divided by the maximum of the early part.
    fn close(&mut self) -> Option<f64> {
        let (squares, count) = (std::mem::take(&mut self.squares), std::mem::take(&mut self.count));
        if count == 0 {
            return None;
        }
        let now = (squares / f64::from(count)).sqrt();
        let early = self.largest.get(self.largest.len() / EARLY_SHARE).copied();
        self.most = self.most.max(now);
        if self.seen.is_multiple_of(self.stride) {
            self.largest.push(self.most);
        }
        self.seen += 1;
        if self.largest.len() > MOST_KEPT {
            let mut place = 0;
            self.largest.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride *= 2;
        }
        early.filter(|&early| early > 0.0).map(|early| now / early)
    }
}

/// Tracks one rank of both runs.
#[derive(Debug, Default)]
pub(super) struct BlowUpWatch {
    courses: Vec<Trajectory>,
    /// The last steps before this one.
    recent: Vec<u64>,
    /// The number of remaining steps that cannot be judged, after the last one that blew up.
    after: usize,
    /// All steps that cannot be judged.
    steps: BTreeSet<u64>,
    /// The growth in the first step that blew up.
    sign: Option<String>,
    /// The first and the last of those steps in which a value exceeded its tolerance.
    found: Option<(u64, u64)>,
}

impl BlowUpWatch {
    /// Adds a tensor's magnitude in both runs. NaN and infinities are skipped, because too large a loss scale also
    /// produces them.
    pub(super) fn saw(&mut self, place: u8, magnitudes: [f64; 2]) {
        if Part::of(place).is_none() || magnitudes.iter().any(|magnitude| !magnitude.is_finite()) {
            return;
        }
        let known = self.courses.iter().position(|course| course.place == place);
        let known = known.unwrap_or_else(|| {
            self.courses.push(Trajectory::of(place));
            self.courses.len() - 1
        });
        let course = &mut self.courses[known];
        course.squares += magnitudes[0].min(magnitudes[1]).powi(2);
        course.count += 1;
    }

    /// Ends a step. Returns whether it cannot be judged. `has_noise`: the runs differed before it, so that there was a
    /// difference to multiply.
    pub(super) fn close(&mut self, step: u64, has_noise: bool) -> bool {
        let rises: Vec<(Part, f64)> =
            self.courses.iter_mut().filter_map(|course| Some((Part::of(course.place)?, course.close()?))).collect();
        let most = |wanted: &[Part]| {
            let of = rises.iter().filter(|(part, _)| wanted.contains(part));
            of.copied().max_by(|one, other| one.1.total_cmp(&other.1))
        };
        let gradients = most(&[Part::Gradients]).filter(|(_, rise)| *rise >= RISE);
        let beside = most(&[Part::Gradients, Part::Loss]).is_some_and(|(_, rise)| rise >= RISE_BESIDE);
        let sign = gradients.or(most(&[Part::Activations]).filter(|(_, rise)| *rise >= RISE && beside));
        if let Some((part, rise)) = sign {
            self.after = STEPS_AROUND + 1;
            self.steps.extend(self.recent.iter().copied());
            self.sign.get_or_insert_with(|| {
                let times = super::numbers::short(rise.round());
                format!("in both runs {} {times} times as large at step {step} as at first", part.words())
            });
        }
        if self.recent.len() == STEPS_AROUND {
            self.recent.remove(0);
        }
        if has_noise {
            self.recent.push(step);
        }
        let is_unjudged = self.after > 0 && has_noise;
        self.after = self.after.saturating_sub(1);
        if is_unjudged {
            self.steps.insert(step);
        }
        is_unjudged
    }

    /// Records that a value exceeded its tolerance in a step that cannot be judged.
    pub(super) fn excuse(&mut self, step: u64) {
        self.found = Some(widened(self.found, step));
    }

    /// Withdraws divergences reported shortly before both runs blew up, which was not yet detectable.
    pub(super) fn excuse_onset(&mut self, judged: &mut Judged) {
        let Self { steps, found, sign, .. } = self;
        judged.divergences.retain(|divergence| {
            let is_excused = steps.contains(&divergence.step) && !is_proof(divergence);
            if is_excused {
                *found = Some(widened(*found, divergence.step));
            }
            !is_excused
        });
        judged.blow_up = found.zip(sign.take()).map(|((first, last), sign)| BlowUp { first, last, sign });
    }
}

fn widened(range: Option<(u64, u64)>, step: u64) -> (u64, u64) {
    let (first, last) = range.unwrap_or((step, step));
    (first.min(step), last.max(step))
}

/// Whether this is a divergence regardless of noise: settings, shapes, code that should be deterministic.
pub(super) fn is_proof(divergence: &Divergence) -> bool {
    matches!(divergence.bound_source, BoundSource::Exact | BoundSource::EqualUntilThen) || divergence.note.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of these in which nothing can be judged; each number is a place's magnitude, alike in both runs.
    fn unjudged(courses: &[(u8, &[f64])]) -> Vec<u64> {
        let mut watch = BlowUpWatch::default();
        for step in 0..courses[0].1.len() {
            for (place, course) in courses {
                watch.saw(*place, [course[step], course[step]]);
            }
            watch.close(step as u64, true);
        }
        watch.steps.into_iter().collect()
    }

    const LOSS: u8 = 4;
    const ACTIVATIONS: u8 = 3;
    const GRADIENTS: u8 = 8;

    #[test]
    fn a_spike_of_the_gradients_takes_the_steps_around_it_and_no_others() {
        let mut course = [1.0; 40];
        course[20] = 11.0;
        assert_eq!(unjudged(&[(GRADIENTS, &course)]), [17, 18, 19, 20, 21, 22, 23]);
        course[20] = 9.0;
        assert_eq!(unjudged(&[(GRADIENTS, &course)]), [0u64; 0]);
    }

    #[test]
    fn activations_that_grow_alone_are_a_healthy_training() {
        let growing: Vec<f64> = (0..40).map(|step| 1.3f64.powi(step)).collect();
        let falling: Vec<f64> = (0..40).map(|step| 0.9f64.powi(step)).collect();
        assert_eq!(unjudged(&[(ACTIVATIONS, &growing), (LOSS, &falling), (GRADIENTS, &falling)]), [0u64; 0]);
        assert!(unjudged(&[(ACTIVATIONS, &growing), (LOSS, &growing)]).contains(&30));
    }

    #[test]
    fn gradients_that_were_nothing_at_first_and_those_that_are_no_numbers_tell_nothing() {
        let mut course = [0.0; 20];
        course[10..].fill(1.0);
        assert_eq!(unjudged(&[(GRADIENTS, &course)]), [0u64; 0]);
        let mut course = [1.0; 20];
        course[12] = f64::INFINITY;
        course[13] = f64::NAN;
        assert_eq!(unjudged(&[(GRADIENTS, &course)]), [0u64; 0]);
    }

    #[test]
    fn where_nothing_differed_before_there_is_nothing_to_multiply() {
        let mut watch = BlowUpWatch::default();
        for step in 0..20 {
            watch.saw(GRADIENTS, [2f64.powi(step); 2]);
            assert_eq!(watch.close(step.unsigned_abs().into(), step > 15), step > 15);
        }
        assert_eq!(watch.steps.into_iter().collect::<Vec<_>>(), [16, 17, 18, 19]);
    }

    #[test]
    fn of_two_runs_the_smaller_magnitude_counts() {
        let mut watch = BlowUpWatch::default();
        for step in 0..20 {
            watch.saw(GRADIENTS, [1.0, if step > 10 { 1e6 } else { 1.0 }]);
            assert!(!watch.close(step, true));
        }
    }
}
