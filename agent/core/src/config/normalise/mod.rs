//! From the file's form to the effective config.

mod alert;

use crate::Statistic;

use crate::config::alert::Alerting;
use crate::config::collectives;
use crate::config::control::Control;
use crate::config::diagnostic::DiagnosticKind as Kind;
use crate::config::effective::{Config, Csv, Dialect, Features, FileLayout, Pipeline, TargetRule, Targets, Window};
use crate::config::file::{
    ChangeFile, CommonFile, FeatureTargetsFile, Format, KindsFile, Op, RankFile, SignalFile, TargetsFile, V1File,
    V2File,
};
use crate::config::journal::Journal;
use crate::config::on_demand::CaptureOnDemand;
use crate::config::otlp::Otlp;
use crate::config::plan::PlanChange;
use crate::config::prometheus::Prometheus;
use crate::config::report::{Fault, Report};
use crate::config::signals::{Activations, DEFAULT_EPS, Signal, SignalName, Signals, WeightGrad};
use crate::config::tensorboard::TensorBoard;
use crate::config::time_tag::{TimeTag, TimeWindow};

/// The environment variable that switches V1's dynamic mode on: the config file is watched while the training runs.
pub const DYNAMIC_VARIABLE: &str = "DYNAMIC_MONITOR";

/// Reads one environment variable.
pub(in crate::config) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The effective config of a `TrainerMon` file.
pub(in crate::config) fn from_v1(file: &V1File, env: Environment<'_>, report: &mut Report<'_>) -> Config {
    let dynamic_on = dynamic_on(file, env, report);
    let signal = Signal { ops: statistics(&file.ops, &[Statistic::Norm]), eps: file.eps };
    let when = |is_on: bool| is_on.then(|| signal.clone());
    for (name, value) in &file.targets {
        let key = crate::config::report::join("targets", name);
        if value.as_object().is_some_and(|inner| !inner.is_empty()) {
            let fault = Fault::new(Kind::NoEffect, "what stands in the braces has no effect");
            report.warn(report.place(&key), &key, fault.hint("inputs and outputs are always measured both"));
        }
    }
    check_window(&file.common, report);
    let outputs = Outputs::of(&file.common, report);
    let append_output = append_output(&file.append_output, report);
    let csv_layout = csv(&file.common, append_output.is_some());
    if append_output.is_some() && csv_layout.layout == Some(FileLayout::Run) {
        let key = "append_output";
        let fault = Fault::new(Kind::NoEffect, "has no effect: it looks for directories of msprobe's layout");
        report.warn(report.place(key), key, fault.hint("leave `layout` out, or write \"layout\": \"msprobe\""));
    }
    Config {
        dialect: Dialect::V1,
        window: window(&file.common),
        ranks: file.module_ranks.clone(),
        squash_name: file.squash_name,
        signals: Signals {
            weight_grad: when(file.wg_distribution).map(|signal| WeightGrad {
                signal,
                every_micro_batch: file.monitor_mbs_grad,
                micro_batches: None,
            }),
            moments: when(file.mv_distribution),
            param: when(file.param_distribution),
            activations: when(file.xy_distribution).and_then(|signal| v1_activations(file, signal, report)),
            mg_direction: when(file.mg_direction),
            update: when(file.update),
        },
        adhoc: when(true),
        collectives: when(file.cc_distribution.enable)
            .map(|signal| collectives::of_v1(&file.cc_distribution, signal, report)),
        features: features(file, report),
        print_struct: file.print_struct,
        stack_info: file.stack_info,
        patch_optimizer_step: None,
        targets: Targets { names: file.targets.keys().cloned().collect(), rule: TargetRule::Prefix },
        csv: outputs.csv.then(|| Csv { append_output, ..csv_layout.clone() }),
        csv_layout,
        prometheus: outputs.prometheus,
        otlp: outputs.otlp,
        tensorboard: outputs.tensorboard,
        wandb: file.common.wandb.as_ref().and_then(|wandb| wandb.on(|wandb| wandb.tracker.enabled)),
        mlflow: file.common.mlflow.as_ref().and_then(|mlflow| mlflow.on(|mlflow| mlflow.tracker.enabled)),
        journal: outputs.journal,
        control: control(&file.common, report),
        capture: capture(&file.common, dynamic_on.is_some(), report),
        dynamic_on,
        overhead_budget: budget(&file.common),
        alert: Alerting::of(&file.common.alert, report),
        pipeline: pipeline(&file.common),
    }
}

/// msprobe's dynamic mode: the environment switches it on, the file measuring. Its steps begin where the file says
/// `dynamic_on`, so `start_step` means nothing there.
fn dynamic_on(file: &V1File, env: Environment<'_>, report: &mut Report<'_>) -> Option<bool> {
    let is_dynamic = env(DYNAMIC_VARIABLE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if file.dynamic_on && !is_dynamic {
        let key = "dynamic_on";
        let fault = Fault::new(Kind::NoEffect, "has no effect: the dynamic mode is off");
        report.warn(report.place(key), key, fault.hint(format!("set {DYNAMIC_VARIABLE}=True in the environment")));
    }
    is_dynamic.then_some(file.dynamic_on)
}

fn v1_activations(file: &V1File, signal: Signal, report: &mut Report<'_>) -> Option<Activations> {
    if file.forward_only && file.backward_only {
        let key = "backward_only";
        let fault = Fault::new(Kind::Conflict, "excludes `forward_only`: nothing would be measured");
        report.error(report.place(key), key, fault.hint("leave both out to measure both directions"));
        return None;
    }
    // No targets mean every module; the literal target "" means the root module only.
    let all = file.all_xy || file.targets.is_empty();
    Some(Activations { signal, forward: !file.backward_only, backward: !file.forward_only, all })
}

/// The time between two tags; an empty list is none.
fn append_output(tags: &[String], report: &mut Report<'_>) -> Option<TimeWindow> {
    let key = "append_output";
    let at = report.place(key);
    let [first, last] = tags else {
        if !tags.is_empty() {
            let found = if tags.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", tags.len()) };
            let fault = Fault::new(Kind::OutOfRange, found).expected("two times, or an empty list");
            report.error(at, key, fault.hint("write [\"Dec03_21-34-40\", \"Dec03_21-34-41\"]"));
        }
        return None;
    };
    let mut read = |index: usize, text: &String| {
        let tag = TimeTag::parse(text).ok();
        if tag.is_none() {
            let fault = Fault::new(Kind::OutOfRange, format!("{text:?}")).expected("a time like `Dec03_21-34-40`");
            let hint = "month, day, hour, minute, second, as the run directory's name begins";
            report.error(at, &format!("{key}[{index}]"), fault.hint(hint));
        }
        tag
    };
    let (first, last) = (read(0, first), read(1, last));
    let window = TimeWindow { first: first?, last: last? };
    if window.last < window.first {
        let fault = Fault::new(Kind::Conflict, format!("`{}` is before `{}`", window.last, window.first));
        report.error(at, key, fault.hint("write the earlier time first; a year's end cannot lie between them"));
        return None;
    }
    Some(window)
}

/// The features asked for. An empty list means every linear module, and nothing for the other features.
fn features(file: &V1File, report: &mut Report<'_>) -> Option<Features> {
    if !file.recording_l2_features {
        return None;
    }
    let FeatureTargetsFile { attention_hook, linear_hook, moe_router_weight_hook, moe_router_logit_hook } =
        file.l2_targets.clone();
    let named = |modules: Option<Vec<String>>| modules.filter(|modules| !modules.is_empty());
    let features = Features {
        attention: named(attention_hook),
        linear: linear_hook,
        router_weight: named(moe_router_weight_hook),
        router_logit: named(moe_router_logit_hook),
        order: file.sa_order,
    };
    let is_asked_for = crate::Kind::ALL.into_iter().any(|kind| features.modules(kind).is_some());
    if !is_asked_for {
        let key = "recording_l2_features";
        let fault = Fault::new(Kind::NoEffect, "has no effect: `l2_targets` names no module");
        report.warn(
            report.place(key),
            key,
            fault.hint("\"l2_targets\": {\"linear_hook\": []} takes every linear module"),
        );
    }
    is_asked_for.then_some(features)
}

/// The effective config of a `TrainerMonitorV2` file.
pub(in crate::config) fn from_v2(file: V2File, report: &mut Report<'_>) -> Config {
    check_window(&file.common, report);
    let outputs = Outputs::of(&file.common, report);
    let monitors = file.monitors;
    for name in ["weight_grad", "optimizer", "param", "update"] {
        let key = format!("monitors.{name}");
        if report.has(&key) && !report.has(&format!("{key}.enabled")) {
            let fault = Fault::new(Kind::NoEffect, "has no effect: the monitor is not enabled");
            report.warn(report.place(&key), &key, fault.hint("add \"enabled\": true"));
        }
    }
    let module = monitors.module.filter(|module| module.enabled);
    let names = module.as_ref().map(|module| module.targets.clone()).unwrap_or_default();
    Config {
        dialect: Dialect::V2,
        window: window(&file.common),
        ranks: match file.rank {
            RankFile::One(rank) => vec![rank],
            RankFile::Several(ranks) => ranks,
        },
        squash_name: false,
        signals: Signals {
            weight_grad: monitors.weight_grad.filter(|weight_grad| weight_grad.enabled).map(|weight_grad| WeightGrad {
                signal: v2_signal(&weight_grad.signal),
                every_micro_batch: weight_grad.monitor_mbs_grad,
                micro_batches: weight_grad.micro_batch_number.or(weight_grad.grad_acc_steps),
            }),
            moments: monitors
                .optimizer
                .filter(|optimizer| optimizer.enabled && optimizer.mv_distribution)
                .map(|optimizer| v2_signal(&optimizer.signal)),
            param: monitors
                .param
                .filter(|param| param.enabled && param.param_distribution)
                .map(|param| v2_signal(&param.signal)),
            activations: module.map(|module| Activations {
                signal: v2_signal(&module.signal),
                forward: true,
                backward: true,
                all: module.targets.is_empty(),
            }),
            mg_direction: None,
            update: monitors.update.filter(|update| update.enabled).map(|update| v2_signal(&update.signal)),
        },
        adhoc: None,
        collectives: monitors
            .cc
            .filter(|cc| cc.enabled)
            .map(|cc| collectives::of_v2(&cc, v2_signal(&cc.signal), report)),
        features: None,
        print_struct: false,
        stack_info: false,
        patch_optimizer_step: file.patch_optimizer_step,
        targets: Targets { names, rule: TargetRule::Substring },
        csv: outputs.csv.then(|| csv(&file.common, true)),
        csv_layout: csv(&file.common, true),
        prometheus: outputs.prometheus,
        otlp: outputs.otlp,
        tensorboard: outputs.tensorboard,
        wandb: file.common.wandb.as_ref().and_then(|wandb| wandb.on(|wandb| wandb.tracker.enabled)),
        mlflow: file.common.mlflow.as_ref().and_then(|mlflow| mlflow.on(|mlflow| mlflow.tracker.enabled)),
        journal: outputs.journal,
        control: control(&file.common, report),
        capture: capture(&file.common, false, report),
        dynamic_on: None,
        overhead_budget: budget(&file.common),
        alert: Alerting::of(&file.common.alert, report),
        pipeline: pipeline(&file.common),
    }
}

fn v2_signal(signal: &SignalFile) -> Signal {
    Signal { ops: statistics(&signal.ops, &V2_DEFAULT_OPS), eps: signal.eps }
}

/// What V2 measures when `ops` is absent or holds no statistic.
const V2_DEFAULT_OPS: [Statistic; 5] =
    [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm, Statistic::Nans];

/// The statistics among `ops`, each once, in order; `fallback` if there are none.
fn statistics(ops: &[Op], fallback: &[Statistic]) -> Vec<Statistic> {
    let mut found = Vec::new();
    for op in ops {
        match op {
            Op::Statistic(statistic) if !found.contains(statistic) => found.push(*statistic),
            Op::Statistic(_) | Op::Always(_) => {}
        }
    }
    if found.is_empty() { fallback.to_vec() } else { found }
}

fn window(file: &CommonFile) -> Window {
    let &CommonFile { start_step, stop_step, step_interval, collect_times, .. } = file;
    Window { start_step, stop_step, step_interval, collect_times }
}

fn check_window(file: &CommonFile, report: &mut Report<'_>) {
    let &CommonFile { start_step, stop_step, .. } = file;
    if let Some(stop) = stop_step.filter(|&stop| stop <= start_step) {
        let key = "stop_step";
        let found = format!("no step would be measured: {stop} is not after `start_step`, {start_step}");
        let hint = "`stop_step` is the first step no longer measured: write a larger number, or leave it out";
        report.refuse(report.place(key), key, Fault::new(Kind::Conflict, found).hint(hint));
    }
}

/// `is_msprobes`: whether the file has keys that only msprobe's layout has a meaning for.
fn csv(file: &CommonFile, is_msprobes: bool) -> Csv {
    let is_msprobes = is_msprobes || file.step_count_per_record.is_some();
    Csv {
        output_dir: file.output_dir.clone(),
        layout: file.layout.or_else(|| is_msprobes.then_some(FileLayout::Msprobe)),
        ndigits: file.ndigits,
        step_count_per_record: file.step_count_per_record,
        append_output: None,
    }
}

fn pipeline(file: &CommonFile) -> Pipeline {
    Pipeline { queue_steps: file.queue_steps, shutdown_timeout_ms: file.shutdown_timeout_ms }
}

fn control(file: &CommonFile, report: &mut Report<'_>) -> Option<Control> {
    let control = file.control.clone()?;
    control.check(report);
    control.enabled.then_some(control)
}

/// Captures on demand: where the file has the object, and where something else may ask for one.
fn capture(file: &CommonFile, is_dynamic: bool, report: &mut Report<'_>) -> Option<CaptureOnDemand> {
    let is_controlled = file.control.as_ref().is_some_and(|control| control.enabled);
    match &file.capture {
        Some(capture) => {
            capture.check(report);
            if !capture.enabled && file.alert.asks_for_dumps() {
                let key = "capture.enabled";
                let fault = Fault::new(Kind::Conflict, "an alert has the action `dump`, and captures are switched off");
                report.error(report.place(key), key, fault.hint("leave `enabled` out, or the action"));
            }
            capture.enabled.then(|| capture.clone())
        }
        None if is_controlled || is_dynamic || file.alert.asks_for_dumps() => Some(CaptureOnDemand::default()),
        None => None,
    }
}

/// As a share; 0 is none.
fn budget(file: &CommonFile) -> Option<f64> {
    (file.overhead_budget > 0.0).then_some(file.overhead_budget / 100.0)
}

struct Outputs {
    csv: bool,
    prometheus: Option<Prometheus>,
    otlp: Option<Otlp>,
    tensorboard: Option<TensorBoard>,
    journal: Option<Journal>,
}

impl Outputs {
    fn of(file: &CommonFile, report: &mut Report<'_>) -> Self {
        let named = |format: Format| file.format.contains(format);
        let prometheus = file.prometheus.as_ref().map(|page| (page, page.enabled));
        let prometheus = asked_for(named(Format::Prometheus), prometheus, "prometheus.enabled", report);
        let otlp = file.otlp.as_ref().map(|otlp| (otlp, otlp.enabled));
        let otlp = asked_for(named(Format::Otlp), otlp, "otlp.enabled", report);
        if let Some(otlp) = &otlp {
            otlp.check(report);
        }
        let tensorboard = file.tensorboard.as_ref().map(|files| (files, files.enabled));
        let tensorboard = asked_for(named(Format::Tensorboard), tensorboard, "tensorboard.enabled", report);
        let journal = file.journal.as_ref().map(|journal| (journal, journal.enabled));
        let journal = asked_for(named(Format::Journal), journal, "journal.enabled", report);
        Self { csv: named(Format::Csv), prometheus, otlp, tensorboard, journal }
    }
}

/// What an output that `format` may name and an object of its own may describe is to be like; the flag beside the object
/// is its key `enabled`, which has the last word.
fn asked_for<T: Clone + Default>(
    is_named: bool,
    described: Option<(&T, bool)>,
    enabled_key: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    match described {
        Some((_, false)) => {
            if is_named {
                let fault = Fault::new(Kind::NoEffect, "switches off what `format` asks for");
                report.warn(report.place(enabled_key), enabled_key, fault);
            }
            None
        }
        Some((description, true)) => Some(description.clone()),
        None => is_named.then(T::default),
    }
}

/// A change as the rest of trainmon reads it.
pub(in crate::config) fn change(file: ChangeFile) -> PlanChange {
    let ChangeFile { targets, start_step, stop_step, step_interval, collect_times, ops, eps, kinds } = file;
    let KindsFile { weight_grad, moments, param, activations, mg_direction, update } = kinds.unwrap_or_default();
    let kinds = [
        (SignalName::WeightGrad, weight_grad),
        (SignalName::Moments, moments),
        (SignalName::Param, param),
        (SignalName::Activations, activations),
        (SignalName::MgDirection, mg_direction),
        (SignalName::Update, update),
    ];
    PlanChange {
        targets: targets.map(TargetsFile::names),
        start_step,
        stop_step,
        step_interval,
        collect_times,
        ops: ops.map(|ops| statistics(&ops, &[Statistic::Norm])),
        eps,
        kinds: kinds.into_iter().filter_map(|(name, is_on)| Some((name, is_on?))).collect(),
    }
}

impl Default for Config {
    /// What a run without a config file measures: weight gradients, moments and parameters of everything, on every
    /// step, into CSV files and a scrape page on this machine.
    fn default() -> Self {
        use Statistic::{Max, Mean, Min, Nans, Norm};
        let signal = Signal { ops: vec![Min, Max, Mean, Norm, Nans], eps: DEFAULT_EPS };
        let common = CommonFile::default();
        Self {
            dialect: Dialect::V1,
            window: window(&common),
            ranks: Vec::new(),
            targets: Targets { names: Vec::new(), rule: TargetRule::Prefix },
            squash_name: false,
            signals: Signals {
                weight_grad: Some(WeightGrad { signal: signal.clone(), every_micro_batch: false, micro_batches: None }),
                moments: Some(signal.clone()),
                param: Some(signal),
                ..Signals::default()
            },
            adhoc: None,
            collectives: None,
            features: None,
            print_struct: false,
            stack_info: false,
            patch_optimizer_step: None,
            csv: Some(csv(&common, false)),
            csv_layout: csv(&common, false),
            prometheus: Some(Prometheus::default()),
            otlp: None,
            tensorboard: None,
            wandb: None,
            mlflow: None,
            journal: None,
            control: None,
            capture: None,
            dynamic_on: None,
            overhead_budget: None,
            alert: Alerting::default(),
            pipeline: pipeline(&common),
        }
    }
}
