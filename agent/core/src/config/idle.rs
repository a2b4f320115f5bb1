//! Warnings of a config that measures or writes nothing.

use super::diagnostic::DiagnosticKind as Kind;
use super::effective::{Config, Dialect};
use super::report::{Fault, Report};

/// Warns of a config that does nothing.
pub(super) fn warn_if_idle(config: &Config, report: &mut Report<'_>) {
    let Config { signals, features, collectives, csv, prometheus, otlp, tensorboard, wandb, mlflow, journal, .. } =
        config;
    let is_describing = config.print_struct || config.stack_info;
    let is_measuring = signals.first().is_some() || features.is_some() || collectives.is_some();
    let is_tracking = wandb.is_some() || mlflow.is_some();
    let is_writing = csv.is_some()
        || prometheus.is_some()
        || otlp.is_some()
        || tensorboard.is_some()
        || journal.is_some()
        || is_tracking;
    if !is_measuring && !is_describing {
        let hint = match config.dialect {
            Dialect::V1 => "switch on wg_distribution, mv_distribution, param_distribution or xy_distribution",
            Dialect::V2 => "add a monitor with \"enabled\": true",
        };
        report.warn(0, "", Fault::new(Kind::Nothing, "the config measures nothing").hint(hint));
        return;
    }
    if is_measuring && !is_writing {
        let hint = "set `format` to csv, prometheus, otlp, tensorboard or journal";
        let fault = Fault::new(Kind::Nothing, "the config writes nothing").hint(hint);
        report.warn(report.place("format"), "", fault);
    }
    if config.window.collect_times == 0 {
        let fault = Fault::new(Kind::Nothing, "no step is measured").hint("remove the key to measure every step");
        report.warn(report.place("collect_times"), "collect_times", fault);
    }
}
