//! What is measured at the moment: the part of a config that may change while the training runs.

use serde::{Deserialize, Serialize};

use super::effective::{Config, TargetRule, Targets, Window};
use super::signals::{DEFAULT_EPS, Signal, SignalName, Signals};
use crate::{Kind, Statistic};

/// The part of a config that may change while the training runs. Complete in itself: who has the latest plan needs none
/// of those before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Nothing is measured, whatever the rest says.
    pub paused: bool,
    /// Which steps are measured.
    pub window: Window,
    /// The ranks that measure; empty means all.
    pub ranks: Vec<u32>,
    /// The names measured; empty means everything.
    pub targets: Vec<String>,
    /// What is measured of tensors.
    #[serde(flatten)]
    pub signals: Signals,
}

impl Plan {
    /// What a config asks for. In msprobe's dynamic mode nothing is measured until the file says `dynamic_on`.
    pub fn of(config: &Config) -> Self {
        Self {
            paused: config.dynamic_on == Some(false),
            window: config.window,
            ranks: config.ranks.clone(),
            targets: config.targets.names.clone(),
            signals: config.signals.clone(),
        }
    }

    /// The targets in force, with the rule of the config that the plan changes.
    pub fn targets(&self, config: &Config) -> Targets {
        Targets { names: self.targets.clone(), rule: config.targets.rule }
    }

    /// What is measured of a kind of tensor. Ad-hoc tensors have the statistics of the first signal there is.
    #[inline]
    pub fn signal(&self, kind: Kind) -> Option<&Signal> {
        if kind == Kind::Adhoc { self.signals.first() } else { self.signals.of(kind) }
    }
}

impl Config {
    /// This config, measuring what the plan says. What a plan does not hold stays; ad-hoc tensors get the columns of the
    /// plan's first signal.
    #[must_use]
    pub fn with_plan(&self, plan: &Plan) -> Self {
        let Plan { paused: _, window, ranks, targets, signals } = plan.clone();
        let adhoc = self.adhoc.as_ref().map(|own| signals.first().unwrap_or(own).clone());
        let targets = Targets { names: targets, rule: self.targets.rule };
        Self { window, ranks, targets, signals, adhoc, ..self.clone() }
    }
}

/// A change of what is measured; `None` leaves as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanChange {
    /// The names measured; empty means everything.
    pub targets: Option<Vec<String>>,
    /// The first step measured.
    pub start_step: Option<u64>,
    /// The first step no longer measured, or none.
    pub stop_step: Option<Option<u64>>,
    /// One step in this many is measured.
    pub step_interval: Option<u64>,
    /// At most this many steps from the switch on.
    pub collect_times: Option<u64>,
    /// The statistics of every signal, without repetition.
    pub ops: Option<Vec<Statistic>>,
    /// The magnitude below which an element counts as zero.
    pub eps: Option<f64>,
    /// Kinds switched on or off: one of each signal.
    pub kinds: Vec<(SignalName, bool)>,
}

impl PlanChange {
    /// Whether the change names a key of the window: counting then starts anew at the switch.
    pub fn restarts_window(&self) -> bool {
        let Self { start_step, stop_step, step_interval, collect_times, .. } = self;
        start_step.is_some() || stop_step.is_some() || step_interval.is_some() || collect_times.is_some()
    }

    /// The window after this change.
    #[must_use]
    pub fn window_after(&self, window: Window) -> Window {
        Window {
            start_step: self.start_step.unwrap_or(window.start_step),
            stop_step: self.stop_step.unwrap_or(window.stop_step),
            step_interval: self.step_interval.unwrap_or(window.step_interval),
            collect_times: self.collect_times.unwrap_or(window.collect_times),
        }
    }

    /// The plan after this change. A signal that is switched on is what `config`, the one of the start, says of it;
    /// if that does not ask for it, it has the statistics of another signal, the norm if there is none.
    #[must_use]
    pub fn applied_to(&self, plan: &Plan, config: &Config) -> Plan {
        let mut plan = plan.clone();
        let template = plan.signals.first().or_else(|| config.signals.first()).cloned();
        let template = template.unwrap_or(Signal { ops: vec![Statistic::Norm], eps: DEFAULT_EPS });
        let every_module = plan.targets.is_empty();
        for &(name, is_on) in &self.kinds {
            plan.signals.switch(name, is_on, &config.signals, &template, every_module);
        }
        if let Some(targets) = &self.targets {
            plan.aim(targets.clone(), config);
        }
        plan.window = self.window_after(plan.window);
        for signal in plan.signals.iter_mut() {
            if let Some(ops) = &self.ops {
                signal.ops.clone_from(ops);
            }
            signal.eps = self.eps.unwrap_or(signal.eps);
        }
        plan
    }
}

impl Plan {
    /// Other names. No names mean every module, unless the config's `all_xy` means that anyway.
    fn aim(&mut self, targets: Vec<String>, config: &Config) {
        let all_is_asked_for = config.targets.rule == TargetRule::Prefix
            && config.signals.activations.as_ref().is_some_and(|activations| activations.all)
            && !config.targets.names.is_empty();
        if let Some(activations) = &mut self.signals.activations {
            activations.all = targets.is_empty() || all_is_asked_for;
        }
        self.targets = targets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "test.json", &|_| None).unwrap().config
    }

    #[test]
    fn a_plan_is_the_configs_and_gives_the_config_back() {
        let config = config(r#"{"wg_distribution": true, "xy_distribution": true, "targets": {"a": {}}}"#);
        let plan = Plan::of(&config);
        assert_eq!(config.with_plan(&plan), config);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn a_signal_switched_off_and_on_is_what_the_config_said() {
        let config = config(r#"{"wg_distribution": true, "monitor_mbs_grad": true, "ops": ["min"]}"#);
        let plan = Plan::of(&config);
        let off = PlanChange { kinds: vec![(SignalName::WeightGrad, false)], ..PlanChange::default() };
        let without = off.applied_to(&plan, &config);
        assert_eq!(without.signals.weight_grad, None);
        let on = PlanChange { kinds: vec![(SignalName::WeightGrad, true)], ..PlanChange::default() };
        assert_eq!(on.applied_to(&without, &config), plan);
        let more = PlanChange { kinds: vec![(SignalName::Moments, true)], ..PlanChange::default() };
        assert_eq!(more.applied_to(&without, &config).signals.moments.unwrap().ops, [Statistic::Min]);
    }

    #[test]
    fn targets_widen_and_narrow_the_modules_too() {
        let config = config(r#"{"xy_distribution": true, "targets": {"a": {}}}"#);
        let plan = Plan::of(&config);
        assert!(!plan.signals.activations.as_ref().unwrap().all);
        let all = PlanChange { targets: Some(Vec::new()), ..PlanChange::default() }.applied_to(&plan, &config);
        assert!(all.signals.activations.as_ref().unwrap().all && all.targets.is_empty());
        let one = PlanChange { targets: Some(vec!["b".into()]), ..PlanChange::default() }.applied_to(&all, &config);
        assert!(!one.signals.activations.unwrap().all);
    }
}
