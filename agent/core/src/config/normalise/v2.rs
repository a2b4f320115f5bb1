//! The effective config of a `TrainerMonitorV2` file.

use crate::config::collectives;
use crate::config::diagnostic::DiagnosticKind as Kind;
use crate::config::effective::{Config, Dialect, TargetRule, Targets};
use crate::config::file::{RankFile, V2File};
use crate::config::report::{Fault, Report};
use crate::config::signals::{Activations, Signals, WeightGrad};

use super::alert::check_measured;
use super::{common, csv};

/// The effective config of a `TrainerMonitorV2` file.
pub(in crate::config) fn from_v2(file: V2File, report: &mut Report<'_>) -> Config {
    let common = common(&file.common, csv(&file.common, true), false, report);
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
    let config = Config {
        dialect: Dialect::V2,
        ranks: match file.rank {
            RankFile::One(rank) => vec![rank],
            RankFile::Several(ranks) => ranks,
        },
        signals: Signals {
            weight_grad: monitors.weight_grad.filter(|weight_grad| weight_grad.enabled).map(|weight_grad| WeightGrad {
                signal: weight_grad.signal,
                every_micro_batch: weight_grad.monitor_mbs_grad,
                micro_batches: weight_grad.micro_batch_number.or(weight_grad.grad_acc_steps),
            }),
            moments: monitors
                .optimizer
                .filter(|optimizer| optimizer.enabled && optimizer.mv_distribution)
                .map(|optimizer| optimizer.signal),
            param: monitors.param.filter(|param| param.enabled && param.param_distribution).map(|param| param.signal),
            activations: module.map(|module| Activations {
                signal: module.signal,
                forward: true,
                backward: true,
                all: module.targets.is_empty(),
            }),
            mg_direction: None,
            update: monitors.update.filter(|update| update.enabled).map(|update| update.signal),
        },
        collectives: monitors.cc.filter(|cc| cc.enabled).map(|cc| collectives::of_v2(&cc, report)),
        patch_optimizer_step: file.patch_optimizer_step,
        targets: Targets { names, rule: TargetRule::Substring },
        ..common
    };
    check_measured(&config, &file.common.alert, r#""update": {"enabled": true} to `monitors`"#, report);
    config
}
