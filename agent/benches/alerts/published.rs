//! Spike rules as others published them, to be compared with. Each takes a norm per step and says whether it is a spike.

use std::collections::VecDeque;

use trainmon_agent::alerts::Detector;
use trainmon_agent::core::config::RuleArgs;
use trainmon_agent::core::{AlertRule, AlertSignal};

/// A rule under test.
pub(crate) trait Rule {
    /// Takes the next norm.
    fn is_spike(&mut self, norm: f64) -> bool;
}

/// A rule by name.
pub(crate) type Named = (&'static str, fn(AlertSignal) -> Box<dyn Rule>);

/// Every rule of the comparison, ours first.
pub(crate) const RULES: [Named; 9] = [
    ("ours, threshold 4", |signal| ours(4.0, signal)),
    ("ours, threshold 3", |signal| ours(3.0, signal)),
    ("5 sigma / 128, winsorised", |signal| Box::new(Winsorised { floor: floor(signal), window: Window::new(128) })),
    ("msprobe, 1.5 x EMA .99", |_| Box::new(RunningAverage { average: None })),
    ("Megatron, 10 x max of 100", |_| Box::new(FirstMaximum { seen: 0, largest: 0.0 })),
    ("Lightning, 3 x mean of 10", |_| Box::new(ShortMean { window: Window::new(10) })),
    ("OLMo, 6 sigma / 128", |_| Box::new(PlainSigma { window: Window::new(128) })),
    ("ZClip, z 2.5, EMA .97", |_| Box::new(ZScore::Warming(Vec::new()))),
    ("log median, 6 MAD / 128", |_| Box::new(LogMedian { window: Window::new(128) })),
];

fn ours(threshold: f64, signal: AlertSignal) -> Box<dyn Rule> {
    let args = RuleArgs { threshold: Some(threshold), ..RuleArgs::of_rule(AlertRule::Spike) };
    Box::new(Ours(Detector::new(AlertRule::Spike, args, signal)))
}

struct Ours(Detector);

impl Rule for Ours {
    fn is_spike(&mut self, norm: f64) -> bool {
        self.0.observe(norm).is_some()
    }
}

/// The last values.
struct Window {
    values: VecDeque<f64>,
    length: usize,
}

impl Window {
    fn new(length: usize) -> Self {
        Self { values: VecDeque::with_capacity(length), length }
    }

    fn push(&mut self, value: f64) {
        if self.values.len() == self.length {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        (self.values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / self.values.len() as f64).sqrt()
    }
}

/// Ours before it learnt the tail: five deviations above the mean of 128, what is above enters as the limit.
struct Winsorised {
    floor: f64,
    window: Window,
}

fn floor(signal: AlertSignal) -> f64 {
    if signal == AlertSignal::Loss { 1.1 } else { 1.5 }
}

impl Rule for Winsorised {
    fn is_spike(&mut self, norm: f64) -> bool {
        if !norm.is_finite() {
            return false;
        }
        let is_ready = self.window.values.len() >= 64;
        let mean = self.window.mean();
        let width = (5.0 * self.window.deviation()).max((self.floor - 1.0) * mean.abs());
        let limit = if is_ready { mean + width } else { f64::INFINITY };
        self.window.push(norm.min(limit));
        norm > limit
    }
}

/// msprobe's `AnomalyTurbulence` with 0.5, NaN and all.
struct RunningAverage {
    average: Option<f64>,
}

impl Rule for RunningAverage {
    fn is_spike(&mut self, norm: f64) -> bool {
        let Some(average) = self.average else {
            self.average = Some(norm.abs());
            return false;
        };
        self.average = Some(0.99 * average + 0.01 * norm.abs());
        norm.abs() > 1.5 * average
    }
}

/// Megatron's: the first hundred norms set the bar for ever.
struct FirstMaximum {
    seen: u32,
    largest: f64,
}

impl Rule for FirstMaximum {
    fn is_spike(&mut self, norm: f64) -> bool {
        if self.seen < 100 {
            self.seen += 1;
            self.largest = self.largest.max(norm);
            return false;
        }
        norm >= 10.0 * self.largest
    }
}

/// Lightning's: more than twice the mean of ten above it; a spike does not enter.
struct ShortMean {
    window: Window,
}

impl Rule for ShortMean {
    fn is_spike(&mut self, norm: f64) -> bool {
        let mean = self.window.mean();
        let is_spike = self.window.values.len() == 10 && (norm - mean).abs() > 2.0 * mean;
        if !is_spike {
            self.window.push(norm);
        }
        is_spike
    }
}

/// OLMo-core's: six deviations above the mean of 128, everything enters. Written with `>`: as `<=` it would alarm where
/// this is blind.
struct PlainSigma {
    window: Window,
}

impl Rule for PlainSigma {
    fn is_spike(&mut self, norm: f64) -> bool {
        let is_ready = self.window.values.len() >= 64;
        let is_spike = is_ready && norm > self.window.mean() + 6.0 * self.window.deviation();
        self.window.push(norm);
        is_spike
    }
}

/// `ZClip`'s: moving mean and variance, a spike enters clipped.
enum ZScore {
    Warming(Vec<f64>),
    Warm { mean: f64, variance: f64 },
}

impl Rule for ZScore {
    fn is_spike(&mut self, norm: f64) -> bool {
        const LIMIT: f64 = 2.5;
        match self {
            Self::Warming(first) => {
                first.push(norm);
                if first.len() == 25 {
                    let mean = first.iter().sum::<f64>() / 25.0;
                    let variance = first.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 25.0;
                    *self = Self::Warm { mean, variance };
                }
                false
            }
            Self::Warm { mean, variance } => {
                let z = (norm - *mean) / (variance.sqrt() + 1e-6);
                let is_spike = z > LIMIT;
                let kept = if is_spike { *mean + LIMIT * LIMIT / z * variance.sqrt() } else { norm };
                *mean = 0.97 * *mean + 0.03 * kept;
                *variance = 0.97 * *variance + 0.03 * (kept - *mean).powi(2);
                is_spike
            }
        }
    }
}

/// Median and median deviation of logarithms: robust on paper.
struct LogMedian {
    window: Window,
}

impl Rule for LogMedian {
    fn is_spike(&mut self, norm: f64) -> bool {
        if !norm.is_finite() {
            return false;
        }
        let logarithm = norm.max(1e-30).ln();
        if self.window.values.len() < 64 {
            self.window.push(logarithm);
            return false;
        }
        let middle = median(self.window.values.iter().copied());
        let scatter = 1.4826 * median(self.window.values.iter().map(|value| (value - middle).abs()));
        let width = 6.0 * scatter.max(0.05);
        let is_spike = logarithm - middle > width.max(1.5f64.ln());
        self.window.push(if is_spike { logarithm.min(middle + width) } else { logarithm });
        is_spike
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}
