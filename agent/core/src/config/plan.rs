//! The current plan: the part of a config that may change during training.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::effective::{Config, TargetRule, Targets};
use super::signals::{Signal, SignalChange, SignalSwitches, Signals};
use super::window::{Window, WindowChange};
use crate::Kind;

/// The part of a config that may change during training. It is complete: the latest plan replaces all earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Measure nothing, regardless of the other fields.
    pub paused: bool,
    /// The measured steps.
    pub window: Window,
    /// The ranks that measure; empty means all.
    pub ranks: Vec<u32>,
    /// The names measured; empty means everything.
    pub targets: Vec<String>,
    /// The signals measured.
    #[serde(flatten)]
    pub signals: Signals,
}

impl Plan {
    /// The plan of a config. In msprobe's dynamic mode, nothing is measured until the file sets `dynamic_on`.
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

    /// The statistics of a kind of tensor. Ad-hoc tensors have those of the first signal.
    #[inline]
    pub fn signal(&self, kind: Kind) -> Option<&Signal> {
        if kind == Kind::Adhoc { self.signals.first() } else { self.signals.of(kind) }
    }
}

impl Config {
    /// This config with the plan's measurements. Settings outside the plan are unchanged; ad-hoc tensors get the columns of the
    /// plan's first signal.
    #[must_use]
    pub fn with_plan(&self, plan: &Plan) -> Self {
        let Plan { paused: _, window, ranks, targets, signals } = plan.clone();
        let adhoc = self.adhoc.as_ref().map(|own| signals.first().unwrap_or(own).clone());
        let targets = Targets { names: targets, rule: self.targets.rule };
        Self { window, ranks, targets, signals, adhoc, ..self.clone() }
    }
}

/// A change of the plan, as written in a request. Missing keys are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct PlanChange {
    /// The names measured, as a list or as in a config (`{"name": {}}`); empty means everything.
    #[serde(deserialize_with = "names")]
    #[schemars(with = "Option<TargetNames>")]
    pub targets: Option<Vec<String>>,
    /// New steps. Any of these keys restarts the window at the switch: a `start_step` in the past means the step of the switch,
    /// and `collect_times` counts from there.
    #[serde(flatten)]
    pub window: WindowChange,
    /// New statistics.
    #[serde(flatten)]
    pub signal: SignalChange,
    /// Signals switched on or off.
    pub kinds: Option<SignalSwitches>,
}

/// Names, in either form.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum TargetNames {
    /// `["layers.0"]`.
    List(Vec<String>),
    /// `{"layers.0": {}}`.
    Config(Map<String, Value>),
}

fn names<'de, D: Deserializer<'de>>(targets: D) -> Result<Option<Vec<String>>, D::Error> {
    Ok(Option::deserialize(targets)?.map(|names| match names {
        TargetNames::List(names) => names,
        TargetNames::Config(object) => object.into_iter().map(|(name, _)| name).collect(),
    }))
}

impl PlanChange {
    /// Whether the change has a key of the window, which restarts counting at the switch.
    pub fn restarts_window(&self) -> bool {
        self.window != WindowChange::default()
    }

    /// The plan after this change. A signal that is switched on has its settings in `config`, the initial config. If `config`
    /// does not have it, it gets the statistics of another signal, or the norm if there is none.
    #[must_use]
    pub fn applied_to(&self, plan: &Plan, config: &Config) -> Plan {
        let mut plan = plan.clone();
        plan.signals.switch(self.kinds.unwrap_or_default(), &config.signals, plan.targets.is_empty());
        if let Some(targets) = &self.targets {
            plan.aim(targets.clone(), config);
        }
        plan.window = self.window.applied_to(plan.window);
        plan.signals.iter_mut().for_each(|signal| *signal = self.signal.applied_to(signal));
        plan
    }
}

impl Plan {
    /// Sets the names. No names mean every module, unless the config's `all_xy` already does.
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
    use crate::Statistic;

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
        let after =
            |plan: &Plan, kinds| PlanChange { kinds: Some(kinds), ..PlanChange::default() }.applied_to(plan, &config);
        let weight_grad = |is_on| SignalSwitches { weight_grad: Some(is_on), ..SignalSwitches::default() };
        let without = after(&plan, weight_grad(false));
        assert_eq!(without.signals.weight_grad, None);
        assert_eq!(after(&without, weight_grad(true)), plan);
        let more = after(&without, SignalSwitches { moments: Some(true), ..SignalSwitches::default() });
        assert_eq!(more.signals.moments.unwrap().ops, [Statistic::Min]);
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
