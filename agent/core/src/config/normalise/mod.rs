//! Builds the effective config from the file's form.

mod alert;
mod v1;
mod v2;

pub use self::v1::DYNAMIC_VARIABLE;
pub(in crate::config) use self::v1::{Environment, from_v1};
pub(in crate::config) use self::v2::from_v2;

use crate::config::alert::Alerting;
use crate::config::control::Control;
use crate::config::diagnostic::DiagnosticKind as Kind;
use crate::config::effective::{Config, Csv, FileLayout};
use crate::config::file::{AlertAction, CommonFile, Format};
use crate::config::on_demand::CaptureOnDemand;
use crate::config::prometheus::Prometheus;
use crate::config::report::{Fault, Report};
use crate::config::window::Window;

fn check_window(file: &CommonFile, report: &mut Report<'_>) {
    let Window { start_step, stop_step, .. } = file.window;
    if let Some(stop) = stop_step.filter(|&stop| stop <= start_step) {
        let key = "stop_step";
        let found = format!("no step would be measured: {stop} is not after `start_step`, {start_step}");
        let hint = "`stop_step` is the first step no longer measured: write a larger number, or remove it";
        report.refuse(report.place(key), key, Fault::new(Kind::Conflict, found).hint(hint));
    }
}

/// `is_msprobes`: whether the file has keys that only apply to msprobe's layout.
fn csv(file: &CommonFile, is_msprobes: bool) -> Csv {
    let is_msprobes = is_msprobes || file.step_count_per_record.is_some();
    Csv {
        output_dir: file.output_dir.clone(),
        layout: file.layout.or_else(|| is_msprobes.then_some(FileLayout::Msprobe)),
        repeats_rows: file.repeat_rows.unwrap_or(true),
        ndigits: file.ndigits,
        step_count_per_record: file.step_count_per_record,
        budget_mib: file.csv_budget_mib,
        append_output: None,
    }
}

fn control(file: &CommonFile, report: &mut Report<'_>) -> Option<Control> {
    let control = file.control.clone()?;
    control.check(report);
    control.enabled.then_some(control)
}

/// Captures on demand: enabled by their object, or if another feature may request one.
fn capture(file: &CommonFile, is_dynamic: bool, report: &mut Report<'_>) -> Option<CaptureOnDemand> {
    let is_controlled = file.control.as_ref().is_some_and(|control| control.enabled);
    let action = file.alert.capturing_action();
    let capture = match &file.capture {
        Some(capture) => {
            capture.check(report);
            if let Some(action) = action.filter(|_| !capture.enabled) {
                let key = "capture.enabled";
                let name = if action == AlertAction::Replay { "replay" } else { "dump" };
                let found = format!("an alert has the action `{name}`, but captures are off");
                let fault = Fault::new(Kind::Conflict, found);
                report.error(report.place(key), key, fault.hint("remove `enabled` or the action"));
            }
            capture.enabled.then(|| capture.clone())
        }
        None if is_controlled || is_dynamic || action.is_some() => Some(CaptureOnDemand::default()),
        None => None,
    };
    capture.map(|capture| capture.keeping_steps(action == Some(AlertAction::Replay)))
}

/// The overhead budget as a share; 0 means none.
fn budget(file: &CommonFile) -> Option<f64> {
    (file.overhead_budget > 0.0).then_some(file.overhead_budget / 100.0)
}

/// The settings that both dialects share. The rest has the defaults, because each dialect has its own keys for it.
fn common(file: &CommonFile, csv_layout: Csv, is_dynamic: bool, report: &mut Report<'_>) -> Config {
    check_window(file, report);
    let named = |format: Format| file.format.contains(format);
    let prometheus = file.prometheus.as_ref().map(|page| (page, page.enabled));
    let otlp = file.otlp.as_ref().map(|otlp| (otlp, otlp.enabled));
    let otlp = asked_for(named(Format::Otlp), otlp, "otlp.enabled", report);
    if let Some(otlp) = &otlp {
        otlp.check(report);
    }
    let tensorboard = file.tensorboard.as_ref().map(|files| (files, files.enabled));
    let journal = file.journal.as_ref().map(|journal| (journal, journal.enabled));
    Config {
        window: file.window,
        csv: named(Format::Csv).then(|| csv_layout.clone()),
        csv_layout,
        prometheus: with_page(file, asked_for(asks_for_page(file), prometheus, "prometheus.enabled", report)),
        otlp,
        tensorboard: asked_for(named(Format::Tensorboard), tensorboard, "tensorboard.enabled", report),
        wandb: file.wandb.as_ref().and_then(|wandb| wandb.on(|wandb| wandb.tracker.enabled)),
        mlflow: file.mlflow.as_ref().and_then(|mlflow| mlflow.on(|mlflow| mlflow.tracker.enabled)),
        journal: asked_for(named(Format::Journal), journal, "journal.enabled", report),
        control: control(file, report),
        capture: capture(file, is_dynamic, report),
        overhead_budget: budget(file),
        general: file.general,
        alert: Alerting::of(&file.alert, report),
        pipeline: file.pipeline,
        ..Config::default()
    }
}

/// Whether a name in `format` or `page` enables the scrape page.
fn asks_for_page(file: &CommonFile) -> bool {
    file.format.contains(Format::Prometheus) || file.page == Some(true)
}

/// The scrape page, with the live page if `page` enables it or is missing.
fn with_page(file: &CommonFile, prometheus: Option<Prometheus>) -> Option<Prometheus> {
    prometheus.map(|prometheus| Prometheus { page: file.page.unwrap_or(prometheus.page), ..prometheus })
}

/// The settings of an output that `format` names or an object describes. The object's key `enabled` takes precedence.
fn asked_for<T: Clone + Default>(
    is_named: bool,
    described: Option<(&T, bool)>,
    enabled_key: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    match described {
        Some((_, false)) => {
            if is_named {
                let fault = Fault::new(Kind::NoEffect, "disables the output that `format` or `page` enables");
                report.warn(report.place(enabled_key), enabled_key, fault);
            }
            None
        }
        Some((description, true)) => Some(description.clone()),
        None => is_named.then(T::default),
    }
}
