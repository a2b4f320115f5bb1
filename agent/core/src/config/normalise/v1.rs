//! The effective config of a `TrainerMon` file.

use crate::config::collectives;
use crate::config::diagnostic::DiagnosticKind as Kind;
use crate::config::effective::{Config, Csv, Dialect, Features, FileLayout, TargetRule, Targets};
use crate::config::file::{FeatureTargetsFile, V1File};
use crate::config::report::{Fault, Report};
use crate::config::signals::{Activations, Signal, Signals, WeightGrad};
use crate::config::time_tag::{TimeTag, TimeWindow};

use super::alert::check_measured;
use super::{common, csv};

/// The environment variable that switches V1's dynamic mode on: the config file is watched while the training runs.
pub const DYNAMIC_VARIABLE: &str = "DYNAMIC_MONITOR";

/// Reads one environment variable.
pub(in crate::config) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The effective config of a `TrainerMon` file.
pub(in crate::config) fn from_v1(file: &V1File, env: Environment<'_>, report: &mut Report<'_>) -> Config {
    let dynamic_on = dynamic_on(file, env, report);
    let signal = file.signal();
    let when = |is_on: bool| is_on.then(|| signal.clone());
    for (name, value) in &file.targets {
        let key = crate::config::report::join("targets", name);
        if value.as_object().is_some_and(|inner| !inner.is_empty()) {
            let fault = Fault::new(Kind::NoEffect, "the content of the braces has no effect");
            report.warn(report.place(&key), &key, fault.hint("write {}: inputs and outputs are always measured"));
        }
    }
    let append_output = append_output(&file.append_output, report);
    let csv_layout = csv(&file.common, append_output.is_some());
    if append_output.is_some() && csv_layout.layout == Some(FileLayout::Run) {
        let key = "append_output";
        let fault = Fault::new(Kind::NoEffect, "has no effect: it applies to msprobe's layout only");
        report.warn(report.place(key), key, fault.hint("remove `layout`, or write \"layout\": \"msprobe\""));
    }
    let common = common(&file.common, csv_layout, dynamic_on.is_some(), report);
    let config = Config {
        dialect: Dialect::V1,
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
        targets: Targets { names: file.targets.keys().cloned().collect(), rule: TargetRule::Prefix },
        csv: common.csv.clone().map(|csv| Csv { append_output, ..csv }),
        dynamic_on,
        ..common
    };
    check_measured(&config, &file.common.alert, r#""update": true"#, report);
    config
}

/// msprobe's dynamic mode: the environment enables it, and the file switches measuring. Its steps begin when the file sets
/// `dynamic_on`, so `start_step` has no effect.
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
        report.error(report.place(key), key, fault.hint("remove both to measure both directions"));
        return None;
    }
    // No targets mean every module; the literal target "" means only the root module.
    let all = file.all_xy || file.targets.is_empty();
    Some(Activations { signal, forward: !file.backward_only, backward: !file.forward_only, all })
}

/// The time between two tags; an empty list means none.
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
        report.error(at, key, fault.hint("write the earlier time first, in the same year"));
        return None;
    }
    Some(window)
}

/// The requested features. An empty list means every linear module, and nothing for the other features.
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
