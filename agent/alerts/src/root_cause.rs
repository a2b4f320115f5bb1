//! Root cause analysis: which signal of which layer left its own usual range first.

use serde::{Deserialize, Serialize};
use trainmon_core::{AlertSignal, FirstMove, Kind, Step, TensorId, number};

use super::places::{Layer, Places};
use super::step_summary::{AFTER_REDUCTION, Reach, StepSummary, SummedSignals};

/// The signals with bands, in the order of [`AlertSignal::place_in_step`]. If several left their band in one step, the
/// first in this order is reported. Moments read before the optimizer's step show earlier steps, so they leave their
/// band earlier.
const SIGNALS: [AlertSignal; 16] = [
    AlertSignal::LearningRate,
    AlertSignal::Kind(Kind::Scalar),
    AlertSignal::Kind(Kind::Actv),
    AlertSignal::Loss,
    AlertSignal::Grad,
    AlertSignal::Kind(Kind::GradReduced),
    AlertSignal::Kind(Kind::ExpAvg),
    AlertSignal::Kind(Kind::ExpAvgSq),
    AlertSignal::Kind(Kind::MaxExpAvgSq),
    AlertSignal::Kind(Kind::MomentumBuffer),
    AlertSignal::Kind(Kind::SquareAvg),
    AlertSignal::Kind(Kind::GradAvg),
    AlertSignal::Kind(Kind::Sum),
    AlertSignal::Kind(Kind::OptimizerState),
    AlertSignal::Kind(Kind::Update),
    AlertSignal::Kind(Kind::ParamUpdated),
];

/// Whether the signal is a number of the whole run, not a norm of each layer.
fn is_number(signal: AlertSignal) -> bool {
    matches!(signal, AlertSignal::LearningRate | AlertSignal::Loss | AlertSignal::Kind(Kind::Scalar))
}

/// Parts of the names of logged numbers that are inputs of a step. Others are results: a perplexity, a norm, a
/// throughput.
const OF_INPUTS: [&str; 8] = ["batch", "seq", "token", "length", "temperature", "epoch", "scale", "lr"];
const OF_RESULTS: [&str; 4] = ["per_sec", "/s", "throughput", "time"];

/// How many measured steps an alert may lag behind its cause. In the only run with published figures, it was a handful.
const LOOKBACK_STEPS: u64 = 16;
/// A signal that has been back in its band for longer than this is unrelated to the alert.
const MAX_QUIET_STEPS: u64 = 2;
/// How many measured steps in a row a band ignores values outside of it: longer than any rule waits by default.
const FROZEN_STEPS: u64 = 48;
/// The number of steps before a band is used.
const MIN_SAMPLES: u64 = 16;
/// The number of steps that a band averages over.
const HORIZON: f64 = 64.0;
/// Hundreds of bands are watched at once; with three deviations, one would always be exceeded.
const DEVIATIONS: f64 = 5.0;

/// The smallest relative distance from the mean that counts, for signals with little variation.
fn floor(signal: AlertSignal) -> f64 {
    match signal {
        // A parameter changes by thousandths per step, so 2 % is a jump.
        AlertSignal::Kind(Kind::ParamUpdated) => 0.02,
        // A loss changes by hundredths.
        AlertSignal::Loss => 0.1,
        _ => 0.5,
    }
}

/// The recent band of one signal of one layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Band {
    #[serde(with = "number")]
    mean: f64,
    #[serde(with = "number")]
    variance: f64,
    samples: u64,
    /// The latest exit from the band.
    departure: Option<BandExit>,
    /// The latest measured step outside the band.
    last_outside: Option<u64>,
    /// The number of measured steps in a row outside the band.
    #[serde(default)]
    outside: u64,
    /// Whether there was another exit shortly before the latest one.
    #[serde(default)]
    repeats: bool,
}

/// An exit from a band.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct BandExit {
    /// The index among the measured steps.
    look: u64,
    step: Step,
    #[serde(with = "number")]
    value: f64,
    #[serde(with = "number")]
    mean: f64,
    tensor: Option<String>,
}

impl Band {
    /// Adds a value. Returns whether it is the first one outside the band.
    fn leaves(&mut self, value: f64, floor: f64, look: u64) -> bool {
        let width = (DEVIATIONS * self.variance.sqrt()).max(floor * self.mean.abs());
        let is_outside = self.samples >= MIN_SAMPLES && (!value.is_finite() || (value - self.mean).abs() > width);
        let was_outside = self.last_outside.is_some_and(|last| look.saturating_sub(last) <= MAX_QUIET_STEPS);
        let leaves = is_outside && !was_outside;
        if leaves {
            let since = self.departure.as_ref().map(|before| look.saturating_sub(before.look));
            self.repeats = since.is_some_and(|looks| looks as f64 <= HORIZON);
        }
        self.outside = if is_outside { self.outside + 1 } else { 0 };
        // A lasting change becomes usual, but only after the rules that wait for several steps have reported it.
        // Repeated exits become usual soon.
        if value.is_finite() && (!is_outside || self.repeats || self.outside > FROZEN_STEPS) {
            // Values outside enter clamped to the band's edge, so that one jump does not widen the band.
            let inside = if is_outside { value.clamp(self.mean - width, self.mean + width) } else { value };
            self.samples += 1;
            let share = (1.0 / self.samples as f64).max(1.0 / HORIZON);
            let change = inside - self.mean;
            self.mean += share * change;
            self.variance = (1.0 - share) * (self.variance + share * change * change);
        }
        if is_outside {
            self.last_outside = Some(look);
        }
        leaves
    }
}

/// The bands of every signal and layer.
#[derive(Debug, Default)]
pub(crate) struct RootCause {
    /// By signal, in the order of [`SIGNALS`], and layer.
    bands: Vec<Vec<Band>>,
    /// The number of measured steps so far.
    looks: u64,
    /// Whether the last step had gradients from both sides of the reduction.
    has_both_sides: bool,
    /// Reused buffer.
    values: Vec<Option<(f64, TensorId)>>,
}

impl RootCause {
    /// Requests the sums that the bands need.
    pub(crate) fn want(wanted: &mut SummedSignals) {
        for signal in SIGNALS {
            wanted.add(signal);
        }
    }

    /// Updates the bands with a step; steps without measured tensors are ignored. Cost: about 10 ns per signal and
    /// layer.
    pub(crate) fn observe(&mut self, step: Step, step_summary: &StepSummary, places: &Places) {
        let look = self.looks + 1;
        self.bands.resize_with(SIGNALS.len(), Vec::new);
        self.has_both_sides = step_summary.has_both_sides();
        let signals = SIGNALS.into_iter().enumerate();
        for (order, signal) in signals.clone().filter(|&(_, signal)| !is_number(signal)) {
            if signal == AFTER_REDUCTION && !self.has_both_sides {
                continue;
            }
            step_summary.layers(places, signal, Reach::Whole, &mut self.values);
            self.take(order, signal, (look, step), places);
        }
        if self.looks != look {
            return;
        }
        for (order, signal) in signals.filter(|&(_, signal)| is_number(signal)) {
            self.values.clear();
            if signal == AlertSignal::Kind(Kind::Scalar) {
                self.fill_scalars(step_summary, places);
            } else {
                self.values.push(step_summary.global(signal, Reach::Whole).map(|value| (value, TensorId(0))));
            }
            self.take(order, signal, (look, step), places);
        }
    }

    fn fill_scalars(&mut self, step_summary: &StepSummary, places: &Places) {
        for &(tensor, value) in step_summary.scalars() {
            let name = places.tensor(tensor).map_or("", |info| &info.name);
            let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
            if !has(&OF_INPUTS) || has(&OF_RESULTS) {
                continue;
            }
            if self.values.len() <= tensor.index() {
                self.values.resize(tensor.index() + 1, None);
            }
            self.values[tensor.index()] = Some((value, tensor));
        }
    }

    /// Adds the values of a signal, one per band.
    fn take(&mut self, order: usize, signal: AlertSignal, (look, step): (u64, Step), places: &Places) {
        let bands = &mut self.bands[order];
        if bands.len() < self.values.len() {
            bands.resize_with(self.values.len(), Band::default);
        }
        for (band, value) in bands.iter_mut().zip(&self.values) {
            let Some((value, leader)) = *value else { continue };
            self.looks = look;
            let mean = band.mean;
            if band.leaves(value, floor(signal), look) {
                let is_named = !matches!(signal, AlertSignal::Loss | AlertSignal::LearningRate);
                let tensor = places.tensor(leader).filter(|_| is_named).map(|info| info.name.to_string());
                band.departure = Some(BandExit { look, step, value, mean, tensor });
            }
        }
    }

    /// Among the signals that are outside their band now or were recently, the one that left first; `waited` is the
    /// number of steps in a row that the rule waited for.
    pub(crate) fn first_move(&self, places: &Places, waited: u64) -> Option<FirstMove> {
        let mut best: Option<(u64, usize, f64, FirstMove)> = None;
        for (order, (signal, bands)) in SIGNALS.into_iter().zip(&self.bands).enumerate() {
            for (number, band) in bands.iter().enumerate() {
                let layer = match places.layers().get_index(number).filter(|_| !is_number(signal)) {
                    Some(layer) => &*layer.name,
                    None => "",
                };
                let Some(departure) = self.of_this_alert(band, waited) else { continue };
                let distance = departure.distance();
                let is_better = best.as_ref().is_none_or(|(look, best_order, best_distance, _)| {
                    (departure.look, order) < (*look, *best_order)
                        || ((departure.look, order) == (*look, *best_order) && distance > *best_distance)
                });
                if is_better {
                    best = Some((departure.look, order, distance, departure.told(signal, layer)));
                }
            }
        }
        let mut first = best.map(|(.., first)| first)?;
        first.before_reduction = self.has_both_sides && first.signal == AlertSignal::Grad;
        Some(first)
    }

    fn of_this_alert<'a>(&self, band: &'a Band, waited: u64) -> Option<&'a BandExit> {
        let is_recent = |look: u64, steps: u64| self.looks.saturating_sub(look) <= steps;
        let is_outside = band.last_outside.is_some_and(|last| is_recent(last, MAX_QUIET_STEPS));
        band.departure.as_ref().filter(|departure| is_outside && is_recent(departure.look, LOOKBACK_STEPS + waited))
    }

    /// The state for a checkpoint.
    pub(crate) fn save(&self, places: &Places) -> SavedRootCause {
        let mut bands = Vec::new();
        for (signal, of_signal) in SIGNALS.into_iter().zip(&self.bands) {
            if matches!(signal, AlertSignal::Loss | AlertSignal::LearningRate) {
                let of_run = |band: &Band| SavedBand { signal, layer: String::new(), vpp_stage: 0, band: band.clone() };
                bands.extend(of_signal.iter().map(of_run));
            }
            // Logged numbers are learnt anew, because their order after loading is unknown.
            if is_number(signal) {
                continue;
            }
            for (band, layer) in of_signal.iter().zip(places.layers()).filter(|(band, _)| band.samples > 0) {
                let (layer, vpp_stage) = (layer.name.to_string(), layer.vpp_stage);
                bands.push(SavedBand { signal, layer, vpp_stage, band: band.clone() });
            }
        }
        SavedRootCause { looks: self.looks, bands }
    }

    /// Restores the saved state.
    pub(crate) fn load(&mut self, saved: SavedRootCause, places: &mut Places) {
        self.looks = saved.looks;
        self.bands = vec![Vec::new(); SIGNALS.len()];
        for SavedBand { signal, layer, vpp_stage, band } in saved.bands {
            let Some(order) = SIGNALS.into_iter().position(|known| known == signal) else { continue };
            let number = if is_number(signal) {
                0
            } else {
                places.layer_number(Layer { name: layer.into(), vpp_stage }) as usize
            };
            let bands = &mut self.bands[order];
            if bands.len() <= number {
                bands.resize_with(number + 1, Band::default);
            }
            bands[number] = band;
        }
    }
}

impl BandExit {
    /// The distance from the band, for choosing among exits in one step. Not finite is farthest.
    fn distance(&self) -> f64 {
        let ratio = self.value / self.mean;
        if self.value.is_finite() && ratio > 0.0 { ratio.max(1.0 / ratio) } else { f64::INFINITY }
    }

    fn told(&self, signal: AlertSignal, layer: &str) -> FirstMove {
        let Self { look: _, step, value, mean, tensor } = self;
        let (layer, tensor) = (layer.to_owned(), tensor.clone());
        FirstMove { step: *step, signal, layer, tensor, value: *value, expected: *mean, before_reduction: false }
    }
}

/// The saved form of the bands, by name, because numbers change with a resume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedRootCause {
    looks: u64,
    bands: Vec<SavedBand>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedBand {
    signal: AlertSignal,
    layer: String,
    vpp_stage: u32,
    #[serde(flatten)]
    band: Band,
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::{MicroStep, Reading, Record, StepBatch, TensorInfo, TensorStats};

    struct Run {
        places: Places,
        step_summary: StepSummary,
        root_cause: RootCause,
    }

    impl Run {
        fn new() -> Self {
            let mut wanted = SummedSignals::default();
            RootCause::want(&mut wanted);
            let mut places = Places::default();
            let names = ["h.0.w", "h.0.b", "h.1.w", "batch_size", "step_time"]
                .map(|name| TensorInfo { name: name.into(), vpp_stage: 0 });
            places.learn(&names);
            Self { places, step_summary: StepSummary::new(wanted), root_cause: RootCause::default() }
        }

        /// One step; `shift` says what each tensor and kind is multiplied by.
        fn step(&mut self, step: u64, shift: impl Fn(u32, Kind) -> f64) {
            self.step_with(step, (2.0, 1e-3), shift);
        }

        fn step_with(&mut self, step: u64, (loss, rate): (f64, f64), shift: impl Fn(u32, Kind) -> f64) {
            let mut records = Vec::new();
            for kind in [Kind::Actv, Kind::GradReduced, Kind::ExpAvg, Kind::ExpAvgSq, Kind::Update, Kind::ParamUpdated]
            {
                for tensor in 0..3 {
                    let calm = 1.0 + 0.003 * ((step * 7 + u64::from(tensor)) as f64).sin();
                    let reading = Some(TensorStats::of_value(calm * shift(tensor, kind)).into());
                    records.push(Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading });
                }
            }
            for (tensor, value) in [(3, 256.0 * shift(3, Kind::Scalar)), (4, 1.0 + (step % 5) as f64 * 9.0)] {
                let reading = Some(Reading::of_kind(Kind::Scalar, TensorStats::of_value(value)));
                records.push(Record {
                    tensor: TensorId(tensor),
                    kind: Kind::Scalar,
                    micro_step: MicroStep(0),
                    reading,
                });
            }
            let calm = 1.0 + 0.01 * (step as f64).sin();
            let (loss, learning_rate) = (Some(calm * loss), Some(rate));
            self.step_summary.fill(&self.places, &StepBatch { records, loss, learning_rate, ..StepBatch::default() });
            self.root_cause.observe(Step(step), &self.step_summary, &self.places);
        }

        fn calm(&mut self, steps: std::ops::Range<u64>) {
            steps.for_each(|step| self.step(step, |_, _| 1.0));
        }

        fn first(&self) -> Option<FirstMove> {
            self.root_cause.first_move(&self.places, 0)
        }
    }

    #[test]
    fn bands_stand_in_the_order_of_a_step() {
        assert!(SIGNALS.map(AlertSignal::place_in_step).is_sorted());
    }

    #[test]
    fn nothing_moved_in_a_calm_run() {
        let mut run = Run::new();
        run.calm(0..200);
        assert_eq!(run.first(), None);
    }

    #[test]
    fn a_moment_that_moved_before_the_gradient_is_named() {
        let mut run = Run::new();
        run.calm(0..100);
        run.step(100, |tensor, kind| if tensor == 2 && kind == Kind::ExpAvg { 3.0 } else { 1.0 });
        run.step(101, |_, kind| if matches!(kind, Kind::ExpAvg | Kind::Update) { 4.0 } else { 1.0 });
        run.step(102, |_, kind| if matches!(kind, Kind::ExpAvg | Kind::GradReduced) { 9.0 } else { 1.0 });
        let first = run.first().unwrap();
        assert_eq!((first.step, first.signal), (Step(100), AlertSignal::Kind(Kind::ExpAvg)));
        assert_eq!((first.layer.as_str(), first.tensor.as_deref()), ("h.1", Some("h.1.w")));
        assert!(first.value > 2.5 && first.expected < 1.1, "{first:?}");
    }

    #[test]
    fn within_one_step_the_activation_goes_before_the_gradient_and_the_larger_before_the_smaller() {
        let mut run = Run::new();
        run.calm(0..50);
        run.step(50, |tensor, kind| match (kind, tensor) {
            (Kind::GradReduced, _) => 50.0,
            (Kind::Actv, 0) => 3.0,
            (Kind::Actv, 2) => 7.0,
            _ => 1.0,
        });
        let first = run.first().unwrap();
        assert_eq!((first.signal, first.layer.as_str()), (AlertSignal::Kind(Kind::Actv), "h.1"));
    }

    #[test]
    fn within_one_step_settings_go_before_the_loss_and_the_loss_before_the_gradient() {
        let all_but_activations =
            |_: u32, kind: Kind| if matches!(kind, Kind::Actv | Kind::Scalar) { 1.0 } else { 9.0 };
        for (loss, rate, expected) in [
            (40.0, 1e-3, "loss at step 50 (39.9, usually 2)"),
            (f64::NAN, 1e-3, "loss at step 50 (NaN, usually 2)"),
            (2.0, 1e-2, "learning rate at step 50 (0.01, usually 0.001)"),
            (40.0, 1e-2, "learning rate at step 50 (0.01, usually 0.001)"),
        ] {
            let mut run = Run::new();
            run.calm(0..50);
            run.step_with(50, (loss, rate), all_but_activations);
            assert_eq!(run.first().unwrap().to_string(), expected);
        }
        let mut run = Run::new();
        run.calm(0..50);
        run.step_with(
            50,
            (40.0, 1e-3),
            |tensor, kind| if tensor == 3 { 4.0 } else { all_but_activations(tensor, kind) },
        );
        assert_eq!(run.first().unwrap().to_string(), "`batch_size` at step 50 (1024, usually 256)");
    }

    #[test]
    fn what_moved_with_the_reduction_is_named_and_where_the_backward_pass_moved_that() {
        let both = |run: &mut Run, step: u64, before: f64, after: f64| {
            let kinds = [(Kind::GradUnreduced, before), (Kind::GradReduced, after), (Kind::Update, before.max(after))];
            let mut records = Vec::new();
            for (kind, factor) in kinds {
                for tensor in 0..3 {
                    let factor = if tensor == 2 { factor } else { 1.0 };
                    let reading =
                        Some(TensorStats::of_value(factor * (1.0 + 0.003 * ((step * 7) as f64).sin())).into());
                    records.push(Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading });
                }
            }
            run.step_summary.fill(&run.places, &StepBatch { records, ..StepBatch::default() });
            run.root_cause.observe(Step(step), &run.step_summary, &run.places);
        };
        // The rank whose own gradient leapt, and another one that only got it through the reduction.
        for (before, signal) in [(60.0, AlertSignal::Grad), (1.0, AlertSignal::Kind(Kind::GradReduced))] {
            let mut run = Run::new();
            (0..50).for_each(|step| both(&mut run, step, 1.0, 1.0));
            both(&mut run, 50, before, 50.0);
            let first = run.first().unwrap();
            assert_eq!((first.step, first.signal), (Step(50), signal));
            let side = if signal == AlertSignal::Grad { "before" } else { "after" };
            let told = first.to_string();
            assert!(told.starts_with(&format!("gradient of h.1.w {side} reduction at step 50")), "{told}");
            assert_eq!(first.tensor.as_deref(), Some("h.1.w"));
        }
    }

    #[test]
    fn what_is_not_finite_is_a_move_and_spoils_no_band() {
        let mut run = Run::new();
        run.calm(0..50);
        run.step(50, |tensor, kind| if kind == Kind::GradReduced && tensor == 1 { f64::NAN } else { 1.0 });
        let first = run.first().unwrap();
        assert_eq!((first.signal, first.tensor.as_deref()), (AlertSignal::Grad, Some("h.0.b")));
        run.calm(51..60);
        assert_eq!(run.first(), None);
        run.step(60, |_, kind| if kind == Kind::GradReduced { 5.0 } else { 1.0 });
        assert_eq!(run.first().unwrap().step, Step(60));
    }

    #[test]
    fn what_lasts_is_still_blamed_when_a_rule_has_waited_for_many_steps() {
        let mut run = Run::new();
        let noisy = |step: u64| 2.0 + 0.15 * (step as f64 * 1.7).sin();
        for step in 0..80 {
            run.step_with(step, (noisy(step), 1e-3), |_, _| 1.0);
        }
        for step in 80..112 {
            run.step_with(step, (3.4, 1e-3), |_, kind| if kind == Kind::GradReduced { 0.0 } else { 1.0 });
        }
        let first = run.root_cause.first_move(&run.places, 32).unwrap();
        assert_eq!((first.step, first.signal), (Step(80), AlertSignal::Loss));
        assert_eq!(run.first(), None, "a rule that waits for nothing looks at the last steps");
        for step in 112..200 {
            run.step_with(step, (3.4, 1e-3), |_, _| 1.0);
        }
        assert_eq!(run.root_cause.first_move(&run.places, 32), None, "by now it is usual");
    }

    #[test]
    fn what_comes_and_goes_is_usual_soon() {
        // Whether the layer is outside in a step, three in ten of them.
        let mut run = Run::new();
        run.calm(0..40);
        let mut departed = 0;
        for step in 40..400 {
            let is_high = (step * 7919) % 10 < 3;
            run.step(step, |tensor, kind| if is_high && tensor == 2 && kind == Kind::Actv { 3.0 } else { 1.0 });
            departed += u64::from(step >= 140 && run.first().is_some());
        }
        assert_eq!(departed, 0);
    }

    #[test]
    fn a_flicker_long_ago_is_not_blamed() {
        let mut run = Run::new();
        run.calm(0..50);
        run.step(50, |_, kind| if kind == Kind::Actv { 9.0 } else { 1.0 });
        run.calm(51..58);
        run.step(58, |_, kind| if kind == Kind::GradReduced { 9.0 } else { 1.0 });
        assert_eq!(run.first().unwrap().signal, AlertSignal::Grad);
    }

    #[test]
    fn steps_that_are_not_measured_do_not_count() {
        let mut run = Run::new();
        let unmeasured = |run: &mut Run, step: u64| {
            run.step_summary.fill(&run.places, &StepBatch::default());
            run.root_cause.observe(Step(step), &run.step_summary, &run.places);
        };
        for step in 0..80 {
            let moved = |kind| match (step, kind) {
                (60.., Kind::ExpAvgSq) | (63.., Kind::Update) => 4.0,
                _ => 1.0,
            };
            if step % 3 == 0 {
                run.step(step, |_, kind| moved(kind));
            } else {
                unmeasured(&mut run, step);
            }
        }
        let first = run.first().unwrap();
        assert_eq!((first.step, first.signal), (Step(60), AlertSignal::Kind(Kind::ExpAvgSq)));
    }

    #[test]
    fn a_resumed_run_blames_what_one_that_was_never_stopped_blames() {
        let play = |stop: Option<u64>| {
            let mut run = Run::new();
            for step in 0..80 {
                if stop == Some(step) {
                    let saved = serde_json::to_string(&run.root_cause.save(&run.places)).unwrap();
                    run = Run::new();
                    run.root_cause.load(serde_json::from_str(&saved).unwrap(), &mut run.places);
                }
                run.step(step, |_, kind| if step > 75 && kind == Kind::Update { 4.0 } else { 1.0 });
            }
            run.first()
        };
        assert!(play(None).is_some());
        for stop in [1, 40, 76, 78] {
            assert_eq!(play(Some(stop)), play(None), "stopped at {stop}");
        }
    }
}
