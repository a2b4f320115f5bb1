//! Evaluates every rule for every step: series in, alerts out. Runs in the worker thread.

mod build;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use trainmon_core::config::{AlertActions, Config};
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSignal, AlertTotals, Expectation, Kind, Rank, Step,
    StepBatch, TensorInfo,
};
use trainmon_service::{Notice, Severity};

use super::anomaly_file::Entry;
use super::incident::{Incidents, SentEnd};
use super::places::Places;
use super::root_cause::RootCause;
use super::stall::{Stall, Stalled};
use super::state::{LoadedAlertState, SavedAlerts};
use super::step_summary::{Reach, StepSummary, SummedSignals};
use super::table::Which;
use super::tag;
use super::watch::{Look, Outcome, Watch};

/// The maximum number of paused rules listed by name.
const MAX_RESTING_NAMED: usize = 8;

/// An alert and the actions of its rule.
#[derive(Clone, Debug)]
pub(crate) struct RaisedAlert {
    pub(crate) alert: Alert,
    pub(crate) actions: AlertActions,
    pub(crate) outlet: Outlet,
}

/// The receivers of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlet {
    /// Files, exporters, and the notifiers of its rule.
    All,
    /// Files and exporters only: another alert is the headline of its incident, or its end waits for that of others.
    Written,
    /// The notifiers of its rule only: it was already recorded.
    Sent,
}

/// The results of a step.
#[derive(Debug, Default)]
pub(crate) struct StepVerdict {
    pub(crate) said: Vec<RaisedAlert>,
    /// The number of alerts beyond the limit per step, by rule.
    pub(crate) unsaid: Vec<(AlertRule, u64)>,
    /// Incidents that have ended, by the step in which they began.
    pub(crate) over: Vec<Step>,
    /// Whether an alert of a rule that requests the end of the training begins, reported or not.
    pub(crate) stop: bool,
    /// A message of the rules themselves.
    pub(crate) notice: Option<Notice>,
    /// All findings for the JSON file, if there is one.
    pub(crate) findings: Vec<Entry>,
}

/// All detectors of a rank.
#[derive(Debug)]
pub(crate) struct Engine {
    config: Config,
    rank: Rank,
    watches: Vec<Watch>,
    places: Places,
    step_summary: StepSummary,
    root_cause: RootCause,
    incidents: Incidents,
    /// Ends of alerts that were sent before a resume, whose incidents have no ongoing alert.
    owed: Vec<SentEnd>,
    /// Each with its watch.
    stalls: Vec<(usize, Stall)>,
    totals: Arc<AlertTotals>,
    last_step: Option<Step>,
    /// Whether the paused rules were already reported.
    resting_told: bool,
}

impl Engine {
    pub(crate) fn new(config: &Config, rank: Rank, totals: Arc<AlertTotals>) -> Self {
        let mut watches: Vec<Watch> = config.alert.rules.iter().flat_map(Watch::of_rule).collect();
        for index in 0..watches.len() {
            let (before, watch) = watches.split_at_mut(index);
            watch[0].twin = before.iter().filter(|other| other.is_twin_of(&watch[0])).count() as u32;
        }
        let mut wanted = SummedSignals::default();
        watches.iter().filter_map(|watch| watch.signal).for_each(|signal| wanted.add(signal));
        if !watches.is_empty() {
            RootCause::want(&mut wanted);
        }
        let stalls = watches.iter().enumerate().filter(|(_, watch)| watch.rule.rule == AlertRule::Stall);
        Self {
            stalls: stalls.map(|(index, watch)| (index, Stall::new(&watch.rule.args))).collect(),
            rank,
            watches,
            places: Places::default(),
            step_summary: StepSummary::new(wanted),
            root_cause: RootCause::default(),
            incidents: Incidents::default(),
            owed: Vec::new(),
            totals,
            last_step: None,
            resting_told: false,
            config: config.clone(),
        }
    }

    /// Evaluates a step. `names[record.tensor.index()]` is a record's tensor.
    pub(crate) fn look_at(&mut self, batch: &StepBatch, names: &[TensorInfo], now: Instant) -> StepVerdict {
        let mut verdict = StepVerdict::default();
        if self.watches.is_empty() {
            return verdict;
        }
        self.last_step = Some(batch.step);
        let ended =
            self.stalls.iter_mut().filter_map(|(index, stall)| Some((*index, stall.step(now, batch.duration)?)));
        for (index, stalled) in ended.collect::<Vec<_>>() {
            verdict.said.push(self.stall_alert(index, stalled, AlertPhase::Ends, batch.step, batch.time));
        }
        self.places.learn(names);
        self.step_summary.fill(&self.places, batch);
        self.root_cause.observe(batch.step, &self.step_summary, &self.places);
        self.tell_zscore(batch.step);
        let mut outcomes = self.outcomes(batch);
        outcomes.iter().filter(|outcome| outcome.finding.is_some()).for_each(|outcome| self.count(outcome));
        if self.config.alert.dump {
            verdict.findings = self.findings(&outcomes, batch);
        }
        // Checked for ongoing alerts as well: a resumed run with one has no beginning.
        verdict.stop =
            outcomes.iter().any(|outcome| outcome.finding.is_some() && self.watches[outcome.watch].rule.actions.stop);
        outcomes.retain(|outcome| outcome.change.is_some());
        let mut overdue = std::mem::take(&mut self.owed);
        overdue.extend(self.incidents.overdue(batch.step));
        verdict.said.extend(overdue.into_iter().map(|end| self.overdue(end)));
        self.build_alerts(outcomes, batch, &mut verdict);
        verdict.notice = self.rest(batch);
        verdict
    }

    /// Reports once which rules are paused while only a part of the model is measured.
    fn rest(&mut self, batch: &StepBatch) -> Option<Notice> {
        if self.resting_told || batch.sampling_stride <= 1 || batch.records.is_empty() {
            return None;
        }
        let mut resting: Vec<String> =
            self.watches.iter().filter_map(|watch| watch.rests(&self.step_summary)).collect();
        resting.dedup();
        self.resting_told = !resting.is_empty();
        let count = resting.len();
        resting.truncate(MAX_RESTING_NAMED);
        let more = if count > resting.len() { format!(" and {} more", count - resting.len()) } else { String::new() };
        let stride = batch.sampling_stride;
        let message = format!(
            "each step measures one layer in {stride}, so rules on norms over layers are paused: {}{more}",
            resting.join(", ")
        );
        let hint = "`NonFinite` and rules with scope `tensor` still run; to resume the others, raise \
                    `overhead_budget` or `step_interval`, or measure fewer signals";
        self.resting_told.then(|| Notice { severity: Severity::Warning, message, hint: Some(hint.to_owned()) })
    }

    fn outcomes(&mut self, batch: &StepBatch) -> Vec<Outcome> {
        let followed: usize = self.watches.iter().map(Watch::len).sum();
        let mut look = Look {
            places: &self.places,
            step_summary: &self.step_summary,
            batch,
            config: &self.config,
            room: self.config.alert.max_series.saturating_sub(followed),
            refused: 0,
            outcomes: Vec::new(),
        };
        for (index, watch) in self.watches.iter_mut().enumerate() {
            watch.look(index, &mut look);
        }
        self.totals.overflow(look.refused);
        look.outcomes
    }

    /// Publishes the distance of the gradient norm from its window, before the window includes it.
    fn tell_zscore(&self, step: Step) {
        let is_grad_spike = |watch: &&Watch| {
            watch.rule.rule == AlertRule::Spike
                && watch.rule.scope == AlertScope::Global
                && watch.signal == Some(AlertSignal::Grad)
        };
        let watch = self.watches.iter().find(is_grad_spike);
        if let (Some(watch), Some(norm)) = (watch, self.step_summary.global(AlertSignal::Grad, Reach::Whole))
            && let Some(zscore) = watch.zscore(norm)
        {
            self.totals.set_grad_norm_zscore(step, zscore);
        }
    }

    fn count(&self, outcome: &Outcome) {
        let watch = &self.watches[outcome.watch];
        self.totals.found(watch.rule.rule);
        if watch.rule.rule == AlertRule::Spike && outcome.which == Which::Global {
            match watch.signal {
                Some(AlertSignal::Grad) => self.totals.grad_norm_spiked(),
                Some(AlertSignal::Kind(Kind::Update)) => self.totals.update_norm_spiked(),
                _ => {}
            }
        }
    }

    fn describe(&self, outcome: &Outcome) -> AlertSeries {
        self.watches[outcome.watch].describe(outcome.which, &self.places)
    }

    /// All findings in msprobe's form.
    fn findings(&self, outcomes: &[Outcome], batch: &StepBatch) -> Vec<Entry> {
        let mut found = Vec::new();
        let mut call_ids = Vec::new();
        for outcome in outcomes {
            let Some(finding) = outcome.finding else { continue };
            if call_ids.is_empty() {
                call_ids = tag::call_ids(batch);
            }
            let series = self.describe(outcome);
            let call_id = outcome.record.and_then(|place| call_ids.get(place).copied()).unwrap_or(-1);
            let op = series.statistic.map_or("value", trainmon_core::Statistic::name);
            let rule = self.watches[outcome.watch].rule.rule.name();
            let at = (self.rank, batch.step.0, call_id);
            found.push(Entry { op, rule, anomaly: tag::anomaly(rule, op, &series, &finding, at, &self.config) });
        }
        found
    }

    /// When to check for a stall; `None` if never.
    pub(crate) fn stall_deadline(&self) -> Option<Instant> {
        self.stalls.iter().filter_map(|(_, stall)| stall.deadline()).min()
    }

    /// Checks for a stall.
    pub(crate) fn look_for_stall(&mut self, now: Instant) -> Vec<RaisedAlert> {
        let begun = self.stalls.iter_mut().filter_map(|(index, stall)| Some((*index, stall.look(now)?)));
        let begun: Vec<(usize, Stalled)> = begun.collect();
        let step = self.last_step.unwrap_or_default();
        let said = |(index, stalled)| {
            self.totals.found(AlertRule::Stall);
            self.stall_alert(index, stalled, AlertPhase::Begins, step, SystemTime::now())
        };
        begun.into_iter().map(said).collect()
    }

    fn stall_alert(
        &self,
        index: usize,
        stalled: Stalled,
        phase: AlertPhase,
        step: Step,
        time: SystemTime,
    ) -> RaisedAlert {
        let Stalled { waited, allowed } = stalled;
        let rule = &self.watches[index].rule;
        let (waited, allowed, rank) = (waited.as_secs_f64(), allowed.as_secs_f64(), self.rank);
        let message = match phase {
            AlertPhase::Begins => {
                format!(
                    "Stall: no step for {waited:.0} s after step {step} on rank {rank}, expected at most {allowed:.0} s"
                )
            }
            AlertPhase::Ends => {
                format!("Stall: training has continued with step {step} on rank {rank} after {waited:.0} s")
            }
        };
        let alert = Alert {
            rule: rule.rule,
            severity: rule.severity,
            phase,
            findings: 1,
            step,
            rank,
            time,
            series: AlertSeries::global(AlertSignal::StepTime, None),
            value: waited,
            expected: Expectation { typical: None, lower: None, upper: Some(allowed) },
            message,
            moved_first: None,
            incident: None,
        };
        RaisedAlert { alert, actions: rule.actions, outlet: Outlet::All }
    }

    /// The state for a checkpoint.
    pub(crate) fn save(&self) -> SavedAlerts {
        let series = self.watches.iter().flat_map(|watch| watch.save(&self.places)).collect();
        let step_time = self.stalls.first().and_then(|(_, stall)| stall.step_time());
        let root_cause = self.root_cause.save(&self.places);
        SavedAlerts::new(self.last_step, series, (root_cause, self.incidents.clone()), step_time)
    }

    /// Restores a saved state, as far as the config has its rules and the limits allow its series.
    pub(crate) fn load(&mut self, saved: SavedAlerts) -> LoadedAlertState {
        let SavedAlerts { step, series, root_cause, incidents, step_time, .. } = saved;
        self.watches.iter_mut().for_each(Watch::reset);
        let mut outcome = LoadedAlertState::default();
        for series in series {
            let has_room = outcome.taken_up < self.config.alert.max_series;
            if has_room && self.watches.iter_mut().any(|watch| watch.load(&series)) {
                outcome.taken_up += 1;
            } else {
                outcome.left_out.push(series.left_out());
            }
        }
        // The state of rules on other threads is not saved, so their alerts would never end.
        let watches = &self.watches;
        self.owed =
            self.incidents.load(incidents, |of| watches.iter().any(|watch| watch.goes_on(&of.watch, &of.series)));
        self.root_cause.load(root_cause, &mut self.places);
        if let Some(seconds) = step_time {
            self.stalls.iter_mut().for_each(|(_, stall)| stall.set_step_time(seconds));
        }
        self.last_step = step;
        outcome
    }
}
