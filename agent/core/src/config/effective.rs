//! The effective config: what the rest of trainmon reads, whichever dialect the file was written in.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Kind, Statistic, StatisticSet, Step};

/// Which of msprobe's two file layouts the config asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `TrainerMon`: flat keys, one CSV per kind, moments read before the optimizer step.
    V1,
    /// `TrainerMonitorV2`: a `monitors` object, one CSV per monitor, moments read after the optimizer step.
    V2,
}

/// The effective configuration of one monitor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// The dialect of the file.
    pub dialect: Dialect,
    /// Which steps are measured.
    pub window: Window,
    /// The ranks that measure; empty means all.
    pub ranks: Vec<u32>,
    /// Which parameters and modules are measured.
    pub targets: Targets,
    /// Shorten names to their tail as msprobe's `squash_name` does.
    pub squash_name: bool,
    /// Weight gradients.
    pub weight_grad: Option<WeightGrad>,
    /// Optimizer moments.
    pub moments: Option<Signal>,
    /// Parameters before and after the step.
    pub param: Option<Signal>,
    /// Module inputs and outputs and their gradients.
    pub activations: Option<Activations>,
    /// Agreement in sign of gradient and first moment.
    pub mg_direction: Option<Signal>,
    /// The change each step makes to a parameter, and its ratio to the parameter. Keeps a copy of each parameter.
    pub update: Option<Signal>,
    /// The CSV files, if written.
    pub csv: Option<Csv>,
    /// The scrape page, if served.
    pub prometheus: Option<Prometheus>,
    /// Queue lengths and deadlines.
    pub pipeline: Pipeline,
}

impl Config {
    /// What is measured of a kind; `None` if nothing is.
    pub fn signal(&self, kind: Kind) -> Option<&Signal> {
        let activations = |wanted: fn(&Activations) -> bool| self.activations.as_ref().filter(|a| wanted(a));
        match kind {
            Kind::Actv => activations(|a| a.forward).map(|a| &a.signal),
            Kind::ActvGrad => activations(|a| a.backward).map(|a| &a.signal),
            Kind::GradUnreduced | Kind::GradReduced => self.weight_grad.as_ref().map(|grad| &grad.signal),
            Kind::ParamOrigin | Kind::ParamUpdated => self.param.as_ref(),
            Kind::Update | Kind::UpdateRatio => self.update.as_ref(),
            Kind::MgDirection => self.mg_direction.as_ref(),
            Kind::ExpAvg
            | Kind::ExpAvgSq
            | Kind::MaxExpAvgSq
            | Kind::MomentumBuffer
            | Kind::SquareAvg
            | Kind::GradAvg
            | Kind::Sum => self.moments.as_ref(),
        }
    }
}

/// Which steps are measured: `start_step`, then every `step_interval`-th, at most `collect_times` of them, none from
/// `stop_step` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The first step measured.
    pub start_step: u64,
    /// The first step no longer measured.
    pub stop_step: Option<u64>,
    /// One step in this many is measured; at least 1.
    pub step_interval: u64,
    /// At most this many steps are measured.
    pub collect_times: u64,
}

impl Window {
    /// Whether `step` is measured, given how many steps were measured before it.
    pub fn includes(&self, step: Step, collected_before: u64) -> bool {
        step.0 >= self.start_step
            && self.stop_step.is_none_or(|stop| step.0 < stop)
            && (step.0 - self.start_step).is_multiple_of(self.step_interval.max(1))
            && collected_before < self.collect_times
    }
}

/// What is measured of one signal, in CSV column order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Signal {
    /// The statistics, in the order asked for, without repetition.
    pub ops: Vec<Statistic>,
    /// The magnitude below which an element counts as zero.
    pub eps: f64,
}

impl Signal {
    /// The statistics as a set.
    pub fn set(&self) -> StatisticSet {
        self.ops.iter().copied().collect()
    }
}

/// Weight gradients, before and after aggregation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeightGrad {
    /// What is measured.
    #[serde(flatten)]
    pub signal: Signal,
    /// Measure the running sum after every micro-batch, not only the last.
    pub every_micro_batch: bool,
    /// V2's `micro_batch_number` or `grad_acc_steps`, if the file gives it; the caller's value otherwise.
    pub micro_batches: Option<u32>,
}

/// Module inputs and outputs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activations {
    /// What is measured.
    #[serde(flatten)]
    pub signal: Signal,
    /// Inputs and outputs.
    pub forward: bool,
    /// Gradients of inputs and outputs.
    pub backward: bool,
    /// Every module, whatever the targets say.
    pub all: bool,
}

/// Which parameters and modules are measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Targets {
    /// The names given; empty means everything.
    pub names: Vec<String>,
    /// V2's module targets are substrings; V1's are a prefix of a parameter's name, or a module's whole name.
    pub rule: TargetRule,
}

/// How a target name is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetRule {
    /// V1: parameters by prefix, modules by exact name.
    Prefix,
    /// V2: modules by substring, parameters always.
    Substring,
}

/// The CSV files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Csv {
    /// Where run directories are made. `None`: V1 takes `MONITOR_OUTPUT_DIR` or `./monitor_output`, V2 `./`.
    pub output_dir: Option<PathBuf>,
    /// Decimal places; `None` writes the shortest digits that read back as the same number.
    pub ndigits: Option<u32>,
    /// Steps per file.
    pub step_count_per_record: u64,
}

/// The scrape page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prometheus {
    /// The address to listen on; loopback unless the user says otherwise.
    pub bind: std::net::IpAddr,
    /// The first port; the local rank is added. 0 lets the system choose.
    pub port: u16,
    /// The most series one rank serves; what is above is counted, not served.
    pub max_series: usize,
    /// How many of the largest gradient norms are served by slot; at most 16.
    pub top_k: usize,
    /// Parameter names as labels. Off by default: cardinality.
    pub per_parameter: bool,
    /// Per-layer series.
    pub per_layer: bool,
    /// The window of `*_interval_max`, in seconds: at least two scrape intervals.
    pub interval_max_seconds: u64,
    /// A `file_sd` target file to write, for scraping many ranks.
    pub target_file: Option<PathBuf>,
}

/// Queue lengths and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pipeline {
    /// Steps that may wait for the worker, and for each exporter.
    pub queue_steps: usize,
    /// How long shutdown waits for what is queued.
    pub shutdown_timeout_ms: u64,
}

/// Sixteen steps bridge a slow disk; with 10 k records of about 200 bytes that is 32 MiB.
pub const DEFAULT_QUEUE_STEPS: usize = 16;
/// Long enough for a full queue on a slow disk, short enough for a job that must leave its node.
pub const DEFAULT_SHUTDOWN_TIMEOUT_MS: u64 = 10_000;

impl Default for Pipeline {
    fn default() -> Self {
        Self { queue_steps: DEFAULT_QUEUE_STEPS, shutdown_timeout_ms: DEFAULT_SHUTDOWN_TIMEOUT_MS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_starts_strides_and_stops() {
        let window = Window { start_step: 3, stop_step: Some(9), step_interval: 2, collect_times: 2 };
        let mut collected = 0;
        let steps: Vec<u64> = (0..12)
            .filter(|&step| {
                let included = window.includes(Step(step), collected);
                collected += u64::from(included);
                included
            })
            .collect();
        assert_eq!(steps, [3, 5]);
        assert!(!Window { collect_times: 0, ..window }.includes(Step(3), 0));
        assert!(!window.includes(Step(9), 0));
    }
}
