//! Which signals the rules could and could not judge.

use std::collections::{BTreeMap, BTreeSet};

use trainmon_alerts::RecordedRules;
use trainmon_core::config::{Alerting, Rule};
use trainmon_core::{AlertRule, AlertScope, AlertSignal, Kind, StepBatch};

/// The number of recorded values of each signal, over all ranks.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    loss: u64,
    learning_rate: u64,
    grad_norm: u64,
    both_norms: u64,
    kinds: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Counts a step.
    pub(super) fn add(&mut self, batch: &StepBatch) {
        self.loss += u64::from(batch.loss.is_some());
        self.learning_rate += u64::from(batch.learning_rate.is_some());
        self.grad_norm += u64::from(batch.grad_norm().is_some());
        self.both_norms += u64::from(batch.grad_norm_check().is_some());
        let kinds: BTreeSet<&'static str> = batch.records.iter().map(|record| record.kind.name()).collect();
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// The number of values of a signal for a rule, in steps; for a part of the model, that of its tensors.
    fn values(&self, rule: &Rule, signal: AlertSignal) -> u64 {
        let of_kind = |kind: Kind| self.kinds.get(kind.name()).copied().unwrap_or(0);
        match signal {
            AlertSignal::Loss => self.loss,
            AlertSignal::LearningRate => self.learning_rate,
            AlertSignal::Grad if rule.scope == AlertScope::Global => self.grad_norm,
            AlertSignal::Grad => of_kind(Kind::GradUnreduced).max(of_kind(Kind::GradReduced)),
            AlertSignal::GradNormRatio => self.both_norms,
            AlertSignal::StepTime | AlertSignal::StragglerLag => 0,
            AlertSignal::Kind(kind) => of_kind(kind),
        }
    }

    fn has_tensors(&self) -> bool {
        self.kinds.keys().any(|kind| *kind != Kind::Scalar.name())
    }

    /// Whether a rule has any values.
    fn has_values(&self, rule: &Rule) -> bool {
        match &rule.signals[..] {
            _ if RecordedRules::needs_training(rule.rule) => false,
            _ if rule.rule == AlertRule::Collapse && self.grad_norm == 0 => false,
            [] => self.has_tensors(),
            signals => signals.iter().any(|signal| self.values(rule, *signal) > 0),
        }
    }

    /// Whether any rule has values.
    pub(super) fn is_any(&self, alerting: &Alerting) -> bool {
        alerting.rules.iter().any(|rule| self.has_values(rule))
    }

    /// The rules and signals that were not judged, a sentence each.
    pub(super) fn not_judged(&self, alerting: &Alerting) -> Vec<String> {
        let mut missing: BTreeMap<Place, Vec<&'static str>> = BTreeMap::new();
        let mut running = Vec::new();
        let mut few = Vec::new();
        let has_tensors = self.has_tensors();
        for rule in &alerting.rules {
            if RecordedRules::needs_training(rule.rule) {
                push(&mut running, rule.rule.name());
                continue;
            }
            if rule.signals.is_empty() && !has_tensors {
                push(missing.entry(TENSORS).or_default(), rule.rule.name());
            }
            let also = (rule.rule == AlertRule::Collapse).then_some(AlertSignal::Grad);
            for signal in rule.signals.iter().copied().chain(also) {
                let values = self.values(rule, signal);
                if values == 0 {
                    let is_tensor = matches!(signal, AlertSignal::Kind(_)) || rule.scope != AlertScope::Global;
                    let place = if is_tensor && !has_tensors { TENSORS } else { Place::of(signal) };
                    push(missing.entry(place).or_default(), rule.rule.name());
                } else if values < rule.args.min_samples as u64 {
                    few.push(format!(
                        "{} on {} (needs {} values, found {values})",
                        rule.rule,
                        words(signal),
                        rule.args.min_samples
                    ));
                }
            }
        }
        let mut said = Vec::new();
        if !missing.is_empty() {
            let listed = missing.into_iter().map(|(Place(_, what), rules)| format!("{what} ({})", rules.join(", ")));
            said.push(format!("not recorded, so not judged: {}", listed.collect::<Vec<_>>().join(", ")));
        }
        if !few.is_empty() {
            said.push(format!("too few values for a full judgement: {}", few.join(", ")));
        }
        if !running.is_empty() {
            said.push(format!("judged only during training: {}", running.join(", ")));
        }
        said
    }

    /// The signals of the rules, as a text.
    pub(super) fn wanted(alerting: &Alerting) -> String {
        let rules = alerting.rules.iter().filter(|rule| !RecordedRules::needs_training(rule.rule));
        let of_rule = |rule: &Rule| -> Vec<Place> {
            match &rule.signals[..] {
                signals @ [_, ..] if rule.scope == AlertScope::Global => {
                    signals.iter().copied().map(Place::of).collect()
                }
                _ => vec![TENSORS],
            }
        };
        let places: BTreeSet<Place> = rules.flat_map(of_rule).collect();
        let listed: Vec<&str> = places.into_iter().map(|Place(_, what)| what).collect();
        if listed.is_empty() {
            "they judge a training only while it runs".to_owned()
        } else {
            format!("they judge {}", listed.join(", "))
        }
    }
}

/// Signals in the order of their importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u32, &'static str);

/// All kinds of tensors, if none was measured.
const TENSORS: Place = Place(3, "tensors of the model");

impl Place {
    fn of(signal: AlertSignal) -> Self {
        let place = match signal {
            AlertSignal::Loss => 0,
            AlertSignal::Grad => 1,
            AlertSignal::LearningRate => 2,
            AlertSignal::Kind(kind) => 4 + kind as u32,
            AlertSignal::GradNormRatio | AlertSignal::StepTime | AlertSignal::StragglerLag => u32::MAX,
        };
        Self(place, words(signal))
    }
}

fn words(signal: AlertSignal) -> &'static str {
    match signal {
        AlertSignal::Grad => "gradient norm",
        AlertSignal::GradNormRatio => "a second gradient norm",
        signal => signal.words(),
    }
}

fn push(names: &mut Vec<&'static str>, name: &'static str) {
    if !names.contains(&name) {
        names.push(name);
    }
}
