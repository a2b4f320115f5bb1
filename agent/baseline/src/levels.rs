//! The usual distance of each series from the golden run's, for runs that are not equal up to rounding.
//!
//! Another dropout seed, data order or hardware on which noise has grown gives runs that agree in their statistics
//! only. For each norm, `d = ln(target / golden)` is tracked: its recent level with its variation, and its last value
//! with the variation per step. trainmon uses the better predictor of `d`: gradients vary around a level, norms of
//! parameters drift slowly.
//!
//! ```text
//! residual / scatter > limit (12, or more where residuals of its kind have a heavier tail), beyond the least that matters
//! or twice in a row > limit / 2, to the same side, where a series does not depend on its past (loss, activations, gradients)
//! ```
//!
//! The tail is learnt from how often residuals of a kind exceed 3 and 5 scatters: a power law through both,
//! extrapolated to one in 100,000 (a conservative limit, because tails bend).
//!
//! `docs/measurements.md` has the results of these numbers on clean pairs of runs and on injected faults.

use std::collections::HashMap;

/// The number of steps over which level and scatter are averaged.
const HORIZON: f64 = 64.0;
/// The number of values before a series is judged.
pub(crate) const MIN_SAMPLES: u32 = 32;
/// The lowest limit of residuals, in scatters. Clean pairs stay below 10 in five million values.
const DECISIVE: f64 = 12.0;
/// The highest limit, whatever the tail: a run that diverges must not be learnt as normal.
const MOST_DECISIVE: f64 = 200.0;
/// The allowance for a scatter from few values: after 32 values, the limit is a quarter higher; after 128, a sixteenth.
const YOUNG: f64 = 8.0;
/// The share of the limit that two residuals in a row on the same side must exceed. In clean pairs, the smaller one
/// stays below 4.2 scatters.
const IN_A_ROW: f64 = 0.5;
/// The marks for estimating the tail, in scatters.
const MARKS: [f64; 2] = [3.0, 5.0];
/// The initially assumed shares beyond the marks. Gradients of small transformers have these.
const ASSUMED_BEYOND: [f64; 2] = [0.011, 2e-4];
const ASSUMED: f64 = 300.0;
/// The share of residuals that may exceed the limit.
const RARITY: f64 = 1e-5;
/// The number of residuals after which older ones count half.
const TAIL_HORIZON: f64 = 200_000.0;
/// Residuals below this share of the minimum that matters are excluded from the tail, because noise that has yet to
/// grow starts with jumps.
const TAIL_FLOOR: f64 = 0.25;
/// The cap, in scatters, on residuals that enter level and scatter, so that one jump does not widen the band.
const WINSOR: f64 = 5.0;
/// The smallest change of a norm that matters, in logarithms, however little the series varies.
const FLOOR: f64 = 0.05;
/// The same for parameters, which change by ten-thousandths.
const PARAMETER_FLOOR: f64 = 1e-3;

/// The class of a series, for judging it by its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    /// A norm of parameters.
    Parameter,
    /// Accumulated over many steps: a moment, an update.
    Accumulated,
    /// Independent in each step: activation, gradient.
    Fresh,
    /// Like `Fresh`, and possibly near zero or negative: the loss.
    Signed,
}

/// The state of a series.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    seen: u32,
    last_step: u64,
    last: f64,
    mean: f64,
    variance: f64,
    /// The mean square of its change per step.
    moves: f64,
    /// The last residual in scatters, with its sign, and its step.
    residual: f64,
    /// The last residual, not yet added to the tail.
    unlearnt: Option<f64>,
    /// Whether exactly one run was ever zero.
    has_been_zero: bool,
    /// For a signed number, the usual magnitude of the golden run's value.
    size: f64,
}

/// A value far from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Excess {
    /// `ln(target / golden)`, infinite if one is zero; for a signed number, `(target - golden) / size`.
    pub(crate) found: f64,
    /// The expected value of `found`.
    pub(crate) expected: f64,
    /// The allowed distance from it.
    pub(crate) width: f64,
    /// The actual distance divided by the allowed one.
    pub(crate) times: f64,
    /// For a signed number, its usual magnitude.
    pub(crate) size: Option<f64>,
}

/// The levels of all series of a rank.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// By tensor and statistic.
    series: HashMap<(u32, u16), Level>,
    /// By kind.
    tails: HashMap<u16, Tail>,
}

/// The tail of the residuals of a kind.
#[derive(Clone, Copy, Debug)]
struct Tail {
    seen: f64,
    beyond: [f64; 2],
}

impl Default for Tail {
    fn default() -> Self {
        Self { seen: ASSUMED, beyond: ASSUMED_BEYOND.map(|share| share * ASSUMED) }
    }
}

impl Tail {
    fn learn(&mut self, in_scatters: f64) {
        self.seen += 1.0;
        for (count, mark) in self.beyond.iter_mut().zip(MARKS) {
            *count += f64::from(u8::from(in_scatters.abs() > mark));
        }
        if self.seen > TAIL_HORIZON {
            self.seen /= 2.0;
            self.beyond = self.beyond.map(|count| count / 2.0);
        }
    }

    /// The residual, in scatters, that one in 100,000 would exceed by the power law.
    fn limit(&self) -> f64 {
        let [first, second] = self.beyond.map(|count| count / self.seen);
        let exponent = (first / second).ln() / (MARKS[1] / MARKS[0]).ln();
        let reach = MARKS[1] * (second / RARITY).powf(1.0 / exponent);
        if exponent > 0.0 { reach.clamp(DECISIVE, MOST_DECISIVE) } else { MOST_DECISIVE }
    }
}

/// The identity of a series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesId {
    pub(crate) tensor: u32,
    pub(crate) statistic: u16,
    pub(crate) kind: u16,
    pub(crate) temper: Temper,
}

impl Levels {
    /// Adds a series' values of a step. Returns an excess if they are outside of their usual range. `golden` is the
    /// first golden run's value, or the geometric mean of several. Cost: a look-up and about twenty operations.
    pub(crate) fn take(&mut self, id: SeriesId, step: u64, target: f64, golden: f64) -> Option<Excess> {
        let level = self.series.entry((id.tensor, id.statistic)).or_default();
        let is_known = level.seen >= MIN_SAMPLES;
        if id.temper == Temper::Signed {
            return self.take_signed(id, step, target, golden);
        }
        let (target, golden) = (target.abs(), golden.abs());
        if (target > 0.0) != (golden > 0.0) {
            let was_never = !std::mem::replace(&mut level.has_been_zero, true);
            let found = if target > 0.0 { f64::INFINITY } else { f64::NEG_INFINITY };
            let beyond = Excess { found, expected: level.mean, width: 0.0, times: f64::INFINITY, size: None };
            return (is_known && was_never).then_some(beyond);
        }
        if target == 0.0 || !target.is_finite() || !golden.is_finite() {
            return None;
        }
        self.take_found(id, step, (target / golden).ln(), None)
    }

    /// Adds a number that may be near zero or negative, whose logarithm is meaningless. It is compared relative to its
    /// usual magnitude.
    fn take_signed(&mut self, id: SeriesId, step: u64, target: f64, golden: f64) -> Option<Excess> {
        if !target.is_finite() || !golden.is_finite() {
            return None;
        }
        let level = self.series.entry((id.tensor, id.statistic)).or_default();
        let share = (1.0 / (f64::from(level.seen) + 1.0)).max(1.0 / HORIZON);
        level.size += share * (golden.abs() - level.size);
        // A jump of both runs is no difference between them.
        let size = level.size.max(golden.abs());
        if size == 0.0 && target == 0.0 {
            return None;
        }
        let found = if size > 0.0 { (target - golden) / size } else { target.signum() };
        self.take_found(id, step, found, Some(size))
    }

    fn take_found(&mut self, id: SeriesId, step: u64, found: f64, size: Option<f64>) -> Option<Excess> {
        let level = self.series.entry((id.tensor, id.statistic)).or_default();
        let is_known = level.seen >= MIN_SAMPLES;
        let outlook = level.outlook(step);
        let Outlook { expected, scatter } = outlook;
        let residual = found - expected;
        let in_scatters = if scatter > 0.0 { residual / scatter } else { residual.signum() * f64::MAX };
        let floor = if id.temper == Temper::Parameter { PARAMETER_FLOOR } else { FLOOR };
        let tail = self.tails.entry(id.kind).or_default();
        // Most residuals are small: the limit is needed for the others only.
        let limit = if in_scatters.abs() > IN_A_ROW * DECISIVE { tail.limit() } else { DECISIVE };
        let limit = limit * (1.0 + YOUNG / f64::from(level.seen.max(1)));
        let is_far = is_known && residual.abs() > floor;
        let before = std::mem::replace(&mut level.residual, if is_far { in_scatters } else { 0.0 });
        let is_pair = matches!(id.temper, Temper::Fresh | Temper::Signed)
            && before.signum() == in_scatters.signum()
            && before.abs().min(in_scatters.abs()) > IN_A_ROW * limit;
        let limit = if is_pair { IN_A_ROW * limit } else { limit };
        let is_beyond = is_far && in_scatters.abs() > limit;
        // Added one step later, because the first of two in a row is excluded from the tail.
        let of_tail = if residual.abs() > TAIL_FLOOR * floor { in_scatters } else { 0.0 };
        let unlearnt = std::mem::replace(&mut level.unlearnt, Some(of_tail).filter(|_| is_known && !is_beyond));
        if let Some(unlearnt) = unlearnt.filter(|_| !is_beyond) {
            tail.learn(unlearnt);
        }
        level.learn(step, found, is_known);
        let width = (limit * scatter).max(floor);
        is_beyond.then_some(Excess { found, expected, width, times: residual.abs() / width, size })
    }

    /// Forgets all series, as after an alert: the usual values are then learnt again.
    pub(crate) fn forget(&mut self) {
        self.series.clear();
    }
}

/// The prediction for a series.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    expected: f64,
    scatter: f64,
}

impl Level {
    /// The number of steps since the last value, over which changes may have added up.
    fn gap(&self, step: u64) -> f64 {
        step.saturating_sub(self.last_step).max(1) as f64
    }

    fn outlook(&self, step: u64) -> Outlook {
        let (around_level, around_last) = (self.variance.sqrt(), self.moves.sqrt() * self.gap(step));
        if around_last < around_level {
            Outlook { expected: self.last, scatter: around_last }
        } else {
            Outlook { expected: self.mean, scatter: around_level }
        }
    }

    fn learn(&mut self, step: u64, found: f64, is_known: bool) {
        let inside = |value: f64, scatter: f64| {
            if is_known { value.clamp(-WINSOR * scatter, WINSOR * scatter) } else { value }
        };
        let seen = f64::from(self.seen);
        let share = (1.0 / (seen + 1.0)).max(1.0 / HORIZON);
        let change = inside(found - self.mean, self.variance.sqrt());
        if self.seen > 0 {
            let moved = inside((found - self.last) / self.gap(step), self.moves.sqrt());
            self.moves += (1.0 / seen).max(1.0 / HORIZON) * (moved * moved - self.moves);
        }
        self.mean += share * change;
        self.variance = (1.0 - share) * (self.variance + share * change * change);
        (self.last, self.last_step) = (found, step);
        self.seen = self.seen.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRADIENT: SeriesId = SeriesId { tensor: 0, statistic: 0, kind: 0, temper: Temper::Fresh };
    const PARAMETER: SeriesId = SeriesId { tensor: 0, statistic: 0, kind: 0, temper: Temper::Parameter };

    /// Values of a normal distribution, the same in every run.
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    /// The steps found beyond, of values scattered around a level (`walk` 0) or drifting.
    fn found(id: SeriesId, steps: u64, scatter: f64, walk: f64, planted: impl Fn(u64) -> f64) -> Vec<u64> {
        let (mut levels, mut noise, mut level) = (Levels::default(), Noise(7), 0.0);
        let mut found = Vec::new();
        for step in 0..steps {
            level += walk * noise.normal();
            let target = (level + scatter * noise.normal()).exp() * planted(step);
            if levels.take(id, step, target, 1.0).is_some() {
                found.push(step);
            }
        }
        found
    }

    #[test]
    fn scatter_and_drift_are_no_findings_over_many_steps() {
        assert_eq!(found(GRADIENT, 20_000, 0.1, 0.0, |_| 1.0), [0; 0]);
        assert_eq!(found(PARAMETER, 20_000, 0.0, 1e-4, |_| 1.0), [0; 0]);
    }

    #[test]
    fn a_loss_may_cross_zero_and_a_leap_of_it_is_found_there() {
        let loss = SeriesId { temper: Temper::Signed, ..GRADIENT };
        let found = |planted: u64| {
            let (mut levels, mut noise) = (Levels::default(), Noise(11));
            let beyond = |step: &u64| {
                let golden = 1.0 - 0.005 * *step as f64 + 0.05 * noise.normal();
                let leap = if *step == planted { 3.0 } else { 0.0 };
                levels.take(loss, *step, golden + 0.02 * noise.normal() + leap, golden).is_some()
            };
            (0..600).filter(beyond).collect::<Vec<u64>>()
        };
        assert_eq!(found(1000), [0; 0], "from 1 to -2, through zero");
        assert_eq!(found(200), [200], "where it is all but zero");
        assert_eq!(found(400), [400], "below");
    }

    /// Raise it to 40 for a measurement by hand.
    const RUNS: u64 = 4;

    /// Runs in which anything was found, of those with 25 gradients over 2,000 steps whose scatter has this distribution.
    fn wrong_runs(scatter: impl Fn(&mut Noise) -> f64) -> usize {
        let is_wrong = |seed: &u64| {
            let (mut levels, mut noise) = (Levels::default(), Noise(seed * 1_000_003));
            (0..2_000).any(|step| {
                (0..25).any(|tensor| {
                    let target = (0.1 * scatter(&mut noise)).exp();
                    levels.take(SeriesId { tensor, ..GRADIENT }, step, target, 1.0).is_some()
                })
            })
        };
        (1..=RUNS).filter(is_wrong).count()
    }

    /// Student's t: normal over the root of a mean of squares.
    fn student(noise: &mut Noise, freedom: u32) -> f64 {
        let squares: f64 = (0..freedom).map(|_| noise.normal().powi(2)).sum();
        noise.normal() / (squares / f64::from(freedom)).sqrt()
    }

    #[test]
    fn runs_of_two_thousand_steps_are_hardly_ever_wrong_even_with_heavy_tails() {
        let found = [1_000, 8].map(|freedom| match freedom {
            1_000 => wrong_runs(Noise::normal),
            freedom => wrong_runs(|noise| student(noise, freedom)),
        });
        let is_silent = found[0] == 0 && found.iter().all(|&wrong| wrong <= 1);
        assert!(is_silent, "normal, and Student's t with 8 degrees of freedom: {found:?} of {RUNS}");
    }

    #[test]
    fn a_leap_of_a_parameter_is_found_in_its_step_and_once() {
        assert_eq!(found(PARAMETER, 400, 0.0, 1e-4, |step| if step < 150 { 1.0 } else { 1.005 }), [150]);
    }

    #[test]
    fn a_gradient_is_found_where_it_is_twelve_scatters_out_or_six_twice_in_a_row() {
        let factor = |from: u64, scatters: f64| move |step| if step == from { f64::exp(0.05 * scatters) } else { 1.0 };
        assert_eq!(found(GRADIENT, 400, 0.05, 0.0, factor(200, 20.0)), [200]);
        assert_eq!(found(GRADIENT, 400, 0.05, 0.0, factor(200, 8.0)), [0; 0]);
        let twice = |step: u64| if (200..202).contains(&step) { f64::exp(0.5) } else { 1.0 };
        assert_eq!(found(GRADIENT, 400, 0.05, 0.0, twice), [201]);
    }

    #[test]
    fn a_gap_is_no_leap() {
        let mut levels = Levels::default();
        let mut drift = Noise(3);
        let mut level = 0.0;
        for step in 0..500 {
            level += 1e-3 * drift.normal();
            let is_lost = step % 100 > 60;
            if !is_lost {
                assert_eq!(levels.take(PARAMETER, step, f64::exp(level), 1.0), None, "step {step}");
            }
        }
    }

    #[test]
    fn a_weight_that_becomes_zero_is_found_and_one_that_often_is_not() {
        let mut levels = Levels::default();
        for step in 0..100 {
            assert_eq!(levels.take(PARAMETER, step, 1.0 + 1e-4 * (step % 3) as f64, 1.0), None);
        }
        assert!(levels.take(PARAMETER, 100, 0.0, 1.0).is_some());
        for step in 101..300 {
            assert_eq!(levels.take(GRADIENT, step, f64::from(u8::from(step % 2 == 0)), 1.0), None);
        }
    }

    #[test]
    fn what_was_forgotten_is_learnt_anew_before_it_is_judged() {
        let mut levels = Levels::default();
        assert!((0..100).all(|step| levels.take(PARAMETER, step, 1.0, 1.0).is_none()));
        levels.forget();
        for step in 100..131 {
            assert_eq!(levels.take(PARAMETER, step, (step as f64).exp(), 1.0), None);
        }
    }
}
