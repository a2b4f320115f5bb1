//! A rule on one signal: its series, the detector state of each, and whether each is in alert.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use trainmon_core::config::{Config, Rule, RuleArgs};
use trainmon_core::{
    AlertRule, AlertScope, AlertSeries, AlertSignal, Dtype, Group, Kind, MicroStep, Reading, Record, Statistic,
    StepBatch, TensorId,
};

use super::detect::{Finding, Memory, resolved};
use super::places::Places;
use super::rule_phase::{RuleChange, RulePhase};
use super::step_summary::{AFTER_REDUCTION, Reach, StepSummary};
use super::table::{Series, Table, Which};

/// A result of a step for one series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The watch.
    pub(crate) watch: usize,
    pub(crate) which: Which,
    pub(crate) finding: Option<Finding>,
    pub(crate) change: Option<RuleChange>,
    pub(crate) value: f64,
    /// For tensors, the position of the record in the batch.
    pub(crate) record: Option<usize>,
}

/// A rule on one signal.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) rule: Rule,
    /// The signal; `None` for every kind of tensor.
    pub(crate) signal: Option<AlertSignal>,
    /// Whether it covers the other side of the reduction for a rule on `grad`: only if both sides are measured.
    is_other_side: bool,
    /// The index among the watches of the same rule, signal and scope: a config may have two with different thresholds.
    pub(crate) twin: u32,
    args: RuleArgs,
    series: Table,
    /// Saved series that have not appeared again yet, by description.
    saved: HashMap<AlertSeries, Series>,
    /// Whether a layer or tensor is included, by index; `None` if not yet known.
    admitted: Vec<Option<bool>>,
}

/// The inputs for evaluating a step, besides the watch.
pub(crate) struct Look<'a> {
    pub(crate) places: &'a Places,
    pub(crate) step_summary: &'a StepSummary,
    pub(crate) batch: &'a StepBatch,
    pub(crate) config: &'a Config,
    /// How many more series may be added, over all watches.
    pub(crate) room: usize,
    /// The number of values that were not checked, because the limit was reached.
    pub(crate) refused: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Watch {
    /// Creates the watches of a rule: one per signal, and for parts of the gradient one for each side of the reduction.
    /// The global norm has a single one, because the front knows it after the reduction.
    pub(crate) fn of_rule(rule: &Rule) -> Vec<Self> {
        let signals: Vec<Option<AlertSignal>> = match rule.signals.as_slice() {
            _ if Self::is_of_another_thread(rule.rule) => Vec::new(),
            [] => vec![None],
            signals => signals.iter().copied().map(Some).collect(),
        };
        let has_sides = rule.scope != AlertScope::Global && signals.contains(&Some(AlertSignal::Grad));
        let other_side = Some(Some(AFTER_REDUCTION)).filter(|side| has_sides && !signals.contains(side));
        let watch = |(signal, is_other_side): (Option<AlertSignal>, bool)| Self {
            args: resolved(rule.args, signal.unwrap_or(AlertSignal::Grad)),
            rule: rule.clone(),
            signal,
            is_other_side,
            twin: 0,
            series: Table::default(),
            saved: HashMap::new(),
            admitted: Vec::new(),
        };
        let signals = signals.into_iter().map(|signal| (signal, false));
        signals.chain(other_side.map(|signal| (signal, true))).map(watch).collect()
    }

    /// Whether a rule runs on its own thread and raises its findings.
    pub(crate) fn is_of_another_thread(rule: AlertRule) -> bool {
        matches!(rule, AlertRule::Baseline | AlertRule::ReplicaMismatch | AlertRule::Straggler)
    }

    /// The number of series.
    pub(crate) fn len(&self) -> usize {
        self.series.len() + self.saved.len()
    }

    fn reach(&self) -> Reach {
        if self.rule.rule == AlertRule::NonFinite { Reach::Part } else { Reach::Whole }
    }

    /// The name of the rule if it is paused while only a part of the model is measured per step.
    pub(crate) fn rests(&self, step_summary: &StepSummary) -> Option<String> {
        let is_named = self.rule.scope != AlertScope::Tensor && !self.is_other_side;
        let signal = self.signal.filter(|_| is_named)?;
        // The rule compares the loss with the gradient norm.
        let lacks_norm = || step_summary.global(AlertSignal::Grad, Reach::Whole).is_none();
        let is_sum = match signal {
            AlertSignal::Kind(kind) => self.reach() == Reach::Whole || kind == Kind::UpdateRatio,
            // The front may know the whole norm.
            AlertSignal::Grad if self.rule.scope == AlertScope::Global => {
                step_summary.global(signal, self.reach()).is_none() && self.reach() == Reach::Whole
            }
            AlertSignal::Grad => self.reach() == Reach::Whole,
            AlertSignal::Loss => self.rule.rule == AlertRule::Collapse && lacks_norm(),
            _ => false,
        };
        is_sum.then(|| format!("{} on {signal}", self.rule.rule))
    }

    /// Evaluates a step.
    pub(crate) fn look(&mut self, index: usize, look: &mut Look<'_>) {
        if self.is_other_side && !look.step_summary.has_both_sides() {
            return;
        }
        self.series.rewind();
        let is_number = !matches!(self.signal, None | Some(AlertSignal::Grad | AlertSignal::Kind(_)));
        match (self.rule.scope, self.signal) {
            (AlertScope::Tensor, None) => self.look_at_records(index, look, |_| true),
            (AlertScope::Tensor, Some(AlertSignal::Grad)) => self.look_at_gradients(index, look),
            (AlertScope::Tensor, Some(AlertSignal::Kind(kind))) => {
                self.look_at_records(index, look, |record| record.kind == kind);
            }
            (AlertScope::Global, Some(signal)) => self.look_at_global(index, signal, look),
            (_, Some(signal)) if is_number => self.look_at_global(index, signal, look),
            (AlertScope::Group, Some(signal)) => self.look_at_groups(index, signal, look),
            (AlertScope::Layer, Some(signal)) => self.look_at_layers(index, signal, look),
            // A rule over every kind uses each kind's sum.
            (_, None) => {}
            (AlertScope::Tensor, Some(signal)) => self.look_at_global(index, signal, look),
        }
    }

    fn look_at_global(&mut self, index: usize, signal: AlertSignal, look: &mut Look<'_>) {
        if let Some(value) = look.step_summary.global(signal, self.reach()) {
            self.take(index, Which::Global, value, None, look);
        }
    }

    fn look_at_groups(&mut self, index: usize, signal: AlertSignal, look: &mut Look<'_>) {
        for (group, value) in Group::ALL.into_iter().zip(look.step_summary.groups(look.places, signal, self.reach())) {
            if let Some(value) = value.filter(|_| self.admits_name(group.name())) {
                self.take(index, Which::Group(group), value, None, look);
            }
        }
    }

    fn look_at_layers(&mut self, index: usize, signal: AlertSignal, look: &mut Look<'_>) {
        let mut values = Vec::new();
        look.step_summary.layers(look.places, signal, self.reach(), &mut values);
        for (layer, value) in values.into_iter().enumerate() {
            let Some((value, _)) = value else { continue };
            let places = look.places;
            if self.admits(layer, || places.layers()[layer].name.to_string()) {
                self.take(index, Which::Layer(layer as u32), value, None, look);
            }
        }
    }

    fn look_at_gradients(&mut self, index: usize, look: &mut Look<'_>) {
        let step_summary = look.step_summary;
        for (tensor, norm) in step_summary.gradients() {
            if self.admits_tensor(tensor, look.places) {
                let which = Which::Tensor { tensor, kind: None, micro_step: MicroStep(0), statistic: Statistic::Norm };
                self.take(index, which, norm, None, look);
            }
        }
    }

    fn look_at_records(&mut self, index: usize, look: &mut Look<'_>, wants: impl Fn(&Record) -> bool) {
        let batch = look.batch;
        for (place, record) in batch.records.iter().enumerate().filter(|(_, record)| wants(record)) {
            let Some(reading) = record.reading.as_ref().filter(|reading| reading.count() > 0) else { continue };
            let is_no_tensor = record.kind.is_feature() || record.kind == Kind::Scalar;
            let is_fine = self.rule.rule == AlertRule::NonFinite && look.step_summary.is_mask(place);
            if is_no_tensor || is_fine || !self.admits_tensor(record.tensor, look.places) {
                continue;
            }
            let &Record { tensor, kind, micro_step, .. } = record;
            let which = |statistic| Which::Tensor { tensor, kind: Some(kind), micro_step, statistic };
            if kind == Kind::UpdateRatio {
                self.take(index, which(Statistic::Mean), reading.value(Statistic::Mean), Some(place), look);
                continue;
            }
            let is_of_msprobe = matches!(self.rule.rule, AlertRule::AnomalyTurbulence | AlertRule::AnomalyNan);
            if !is_of_msprobe {
                self.take(index, which(Statistic::Norm), reading.value(Statistic::Norm), Some(place), look);
                continue;
            }
            for &statistic in batch.ops_of(look.config, kind) {
                if looks_at(self.rule.rule, statistic, reading) {
                    self.take(index, which(statistic), reading.value(statistic), Some(place), look);
                }
            }
        }
    }

    fn take(&mut self, watch: usize, which: Which, value: f64, record: Option<usize>, look: &mut Look<'_>) {
        let (rule, args) = (self.rule.rule, self.args);
        let place = if let Some(place) = self.series.find(which) {
            place
        } else if let Some(series) = self.first_look(which, look) {
            self.series.add(which, series)
        } else {
            look.refused += 1;
            return;
        };
        let series = self.series.at(place);
        let beside =
            if rule == AlertRule::Collapse { look.step_summary.global(AlertSignal::Grad, Reach::Whole) } else { None };
        let finding = series.memory.observe(rule, &args, value, beside);
        let change = series.rule_phase.step(rule, look.batch.step, finding.is_some());
        if finding.is_some() || change.is_some() {
            look.outcomes.push(Outcome { watch, which, finding, change, value, record });
        }
    }

    /// Returns the saved series on its first appearance, else a new one if the limit allows it.
    fn first_look(&mut self, which: Which, look: &mut Look<'_>) -> Option<Series> {
        if !self.saved.is_empty()
            && let Some(series) = self.saved.remove(&self.describe(which, look.places))
        {
            return Some(series);
        }
        look.room = look.room.checked_sub(1)?;
        Some(Series { memory: Memory::new(self.rule.rule, self.memory_of()), rule_phase: RulePhase::default() })
    }

    fn admits_tensor(&mut self, tensor: TensorId, places: &Places) -> bool {
        self.admits(tensor.index(), || places.tensor(tensor).map_or_else(String::new, |info| info.name.to_string()))
    }

    fn admits(&mut self, number: usize, name: impl FnOnce() -> String) -> bool {
        if self.rule.targets.is_empty() {
            return true;
        }
        if self.admitted.len() <= number {
            self.admitted.resize(number + 1, None);
        }
        if let Some(known) = self.admitted[number] {
            return known;
        }
        let admitted = self.admits_name(&name());
        self.admitted[number] = Some(admitted);
        admitted
    }

    fn admits_name(&self, name: &str) -> bool {
        let Rule { targets, .. } = &self.rule;
        targets.is_empty() || targets.iter().any(|target| name.starts_with(target.as_str()))
    }

    /// The description of a series.
    pub(crate) fn describe(&self, which: Which, places: &Places) -> AlertSeries {
        let signal = self.signal.unwrap_or(AlertSignal::Grad);
        let statistic = match signal {
            AlertSignal::Grad => Some(Statistic::Norm),
            AlertSignal::Kind(kind) if kind.value_columns().is_empty() => Some(Statistic::Norm),
            _ => None,
        };
        match which {
            Which::Global => AlertSeries::global(signal, statistic),
            Which::Group(group) => Places::group_series(group, signal, statistic),
            Which::Layer(layer) => places.layer_series(layer, signal, statistic),
            Which::Tensor { tensor, kind, micro_step, statistic } => {
                let signal = kind.map_or(AlertSignal::Grad, AlertSignal::Kind);
                let statistic = Some(statistic).filter(|_| kind.is_none_or(|kind| kind.value_columns().is_empty()));
                places.tensor_series(tensor, micro_step, signal, statistic)
            }
        }
    }

    /// The signal that determines the type of detector state.
    fn memory_of(&self) -> AlertSignal {
        self.signal.unwrap_or(AlertSignal::Grad)
    }

    /// The distance of a value from the window's mean in deviations, for `Spike` on the whole run.
    pub(crate) fn zscore(&self, value: f64) -> Option<f64> {
        match &self.series.get(Which::Global)?.memory {
            Memory::Spike(spike) => spike.zscore(value),
            _ => None,
        }
    }

    /// The state for a checkpoint.
    pub(crate) fn save(&self, places: &Places) -> Vec<SavedSeries> {
        let known = self.series.iter().map(|(which, series)| (self.describe(which, places), series));
        let waiting = self.saved.iter().map(|(description, series)| (description.clone(), series));
        let saved = |(series, Series { memory, rule_phase }): (AlertSeries, &Series)| SavedSeries {
            watch: self.name(),
            series,
            memory: memory.clone(),
            rule_phase: *rule_phase,
        };
        known.chain(waiting).filter(|(_, series)| is_worth_saving(series)).map(saved).collect()
    }

    /// Discards all series.
    pub(crate) fn reset(&mut self) {
        self.series = Table::default();
        self.saved.clear();
    }

    /// Takes a saved series if it belongs to this watch. Returns whether it does.
    pub(crate) fn load(&mut self, saved: &SavedSeries) -> bool {
        let SavedSeries { watch, series, memory, rule_phase } = saved;
        let is_looked_at = series.scope == AlertScope::Global || self.admits_name(&series.name);
        let is_mine = *watch == self.name() && memory.fits(self.rule.rule, self.memory_of()) && is_looked_at;
        if is_mine {
            self.saved.insert(series.clone(), Series { memory: memory.clone(), rule_phase: *rule_phase });
        }
        is_mine
    }

    /// Whether a saved series of this watch, which has not appeared again yet, is in alert.
    pub(crate) fn goes_on(&self, name: &WatchName, series: &AlertSeries) -> bool {
        *name == self.name() && self.saved.get(series).is_some_and(|saved| !saved.rule_phase.is_well())
    }

    /// The name that distinguishes it from the other watches of a config.
    pub(crate) fn name(&self) -> WatchName {
        WatchName { rule: self.rule.rule, scope: self.rule.scope, signal: self.signal, twin: self.twin }
    }

    /// Whether the other has the same rule on the same signal and scope.
    pub(crate) fn is_twin_of(&self, other: &Self) -> bool {
        WatchName { twin: 0, ..self.name() } == WatchName { twin: 0, ..other.name() }
    }
}

fn is_worth_saving(series: &Series) -> bool {
    series.memory != Memory::Nothing || !series.rule_phase.is_well()
}

/// The saved form of one series, by name, because tensors may get other numbers after a resume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedSeries {
    watch: WatchName,
    series: AlertSeries,
    memory: Memory,
    #[serde(rename = "standing")]
    rule_phase: RulePhase,
}

impl SavedSeries {
    /// The description for the skipped series.
    pub(crate) fn left_out(self) -> LeftOut {
        LeftOut { rule: self.watch.rule, series: self.series }
    }
}

/// The identity of a watch: a changed config may have other watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct WatchName {
    pub(crate) rule: AlertRule,
    pub(crate) scope: AlertScope,
    /// Absent for every kind.
    pub(crate) signal: Option<AlertSignal>,
    pub(crate) twin: u32,
}

/// Whether msprobe's rules cover a statistic. Turbulence: norm and mean, as in msprobe. NaN: every numeric statistic,
/// except where it is NaN although no element is (an empty dimension, too few elements, bool).
fn looks_at(rule: AlertRule, statistic: Statistic, reading: &Reading) -> bool {
    if rule == AlertRule::AnomalyTurbulence {
        return matches!(statistic, Statistic::Norm | Statistic::Mean);
    }
    match statistic {
        Statistic::Min
        | Statistic::Max
        | Statistic::Mean
        | Statistic::Norm
        | Statistic::AbsMax
        | Statistic::Nans
        | Statistic::Infs => true,
        Statistic::Std => reading.count() > 1,
        Statistic::Zeros => reading.dtype() != Dtype::Bool,
        Statistic::Id => reading.id().is_some(),
        Statistic::Count | Statistic::Crc32 | Statistic::Xor64 => false,
    }
}

/// A saved series that no rule continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The rule of the saved series.
    pub rule: AlertRule,
    /// The series.
    pub series: AlertSeries,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:#}", self.rule, self.series)
    }
}
