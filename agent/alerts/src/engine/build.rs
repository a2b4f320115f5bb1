//! Turns a step's outcomes into alerts: one message per incident, and one record per alert.

use std::collections::HashMap;

use trainmon_core::config::AlertActions;
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSignal, FirstMove, Incident, Step, StepBatch, layer_of,
};

use super::{Engine, Outlet, RaisedAlert, StepVerdict};
use crate::anomaly_file::Entry;
use crate::detect::Finding;
use crate::incident::{AllOver, Channels, Incidents, Joined, Left, Member, SentEnd, beside, is_of_numbers, precedence};
use crate::messages::sentence;
use crate::raised::Raised;
use crate::rule_phase::RuleChange;
use crate::table::Which;
use crate::tag;
use crate::watch::{Outcome, WatchName};

/// A step in which everything turns NaN has thousands of findings. The first of each rule and signal are reported, the
/// others counted. No rule displaces another.
const MAX_SAID_PER_WATCH: usize = 32;

/// An alert that begins, with its incident.
struct BegunAlert {
    outcome: Outcome,
    joined: Option<Joined>,
    /// The number of other tensors of its layer that it covers.
    beside: u64,
}

impl Engine {
    /// Builds the alerts, those that begin first.
    pub(super) fn build_alerts(&mut self, mut outcomes: Vec<Outcome>, batch: &StepBatch, verdict: &mut StepVerdict) {
        if outcomes.is_empty() {
            return;
        }
        // Alerts that end must not displace those that begin.
        outcomes.sort_by_cached_key(|outcome| {
            let severity = self.watches[outcome.watch].rule.severity;
            let order = precedence(severity, scope(outcome.which), self.signal_of(outcome));
            (outcome.change != Some(RuleChange::Begins), order, outcome.watch)
        });
        let mut incidents = std::mem::take(&mut self.incidents);
        let (begun, over): (Vec<Outcome>, Vec<Outcome>) =
            outcomes.into_iter().partition(|outcome| outcome.change == Some(RuleChange::Begins));
        let told = self.join(&mut incidents, begun, batch.step);
        self.build_begun(told, batch, verdict);
        // Alerts that begin displace no end.
        let mut of_watch = vec![0; self.watches.len()];
        for outcome in over {
            self.say_over(&mut incidents, &outcome, batch, &mut of_watch, verdict);
        }
        self.incidents = incidents;
    }

    /// Assigns each alert that begins to its incident. Merges the tensors of a layer that die in the same step into the
    /// alert of the first one. Each tensor has its own end.
    fn join(&self, incidents: &mut Incidents, begun: Vec<Outcome>, step: Step) -> Vec<BegunAlert> {
        let mut told: Vec<BegunAlert> = Vec::with_capacity(begun.len());
        let dead_layer = |outcome: &Outcome| match outcome.which {
            Which::Tensor { tensor, .. } if self.watches[outcome.watch].rule.rule == AlertRule::Dead => {
                self.places.tensor(tensor).map(|info| (layer_of(&info.name), info.vpp_stage))
            }
            _ => None,
        };
        for outcome in begun {
            let rule = &self.watches[outcome.watch].rule;
            let member = self.member(&outcome);
            let same = dead_layer(&outcome).and_then(|of| {
                let is_same =
                    |one: &&mut BegunAlert| one.outcome.watch == outcome.watch && dead_layer(&one.outcome) == Some(of);
                told.iter_mut().find(is_same)
            });
            if let Some(first) = same {
                first.beside += 1;
                incidents.join_as_part(member, &self.member(&first.outcome));
                continue;
            }
            let channels = Channels::of(rule.actions);
            let joined = is_of_numbers(rule.rule).then(|| incidents.join(member, rule.severity, channels, step));
            told.push(BegunAlert { outcome, joined, beside: 0 });
        }
        told
    }

    fn build_begun(&self, told: Vec<BegunAlert>, batch: &StepBatch, verdict: &mut StepVerdict) {
        let others: Vec<(AlertRule, AlertSeries)> = told
            .iter()
            .filter(|one| one.joined.is_some_and(|joined| !joined.incident.headline))
            .map(|one| (self.watches[one.outcome.watch].rule.rule, self.describe(&one.outcome)))
            .collect();
        let mut first_moves: HashMap<u64, Option<FirstMove>> = HashMap::new();
        let mut of_watch = vec![0; self.watches.len()];
        for BegunAlert { outcome, joined, beside: of_layer } in told {
            let rule = self.watches[outcome.watch].rule.rule;
            of_watch[outcome.watch] += 1;
            if of_watch[outcome.watch] > MAX_SAID_PER_WATCH {
                count_unsaid(verdict, rule);
                continue;
            }
            let waited = self.waited(outcome.watch);
            let first_move =
                first_moves.entry(waited).or_insert_with(|| self.root_cause.first_move(&self.places, waited));
            let first_move = first_move.as_ref().filter(|_| rule != AlertRule::NormMismatch);
            let incident = joined.map(|joined| joined.incident);
            let mut raised = self.raised(&outcome, of_layer, (batch, first_move), incident);
            if let Some(Joined { incident, channels }) = joined {
                raised.actions = channels.of_actions(raised.actions);
                if incident.headline {
                    raised.alert.message.push_str(&beside(&others));
                }
            }
            verdict.said.push(raised);
        }
    }

    fn say_over(
        &self,
        incidents: &mut Incidents,
        outcome: &Outcome,
        batch: &StepBatch,
        of_watch: &mut [usize],
        verdict: &mut StepVerdict,
    ) {
        let Some(RuleChange::Ends(_, since)) = outcome.change else { return };
        let end = |incident| self.raised(outcome, 0, (batch, None), incident).alert;
        let left = incidents.leave(&self.member(outcome), (since, batch.step), |incident| end(Some(incident)));
        of_watch[outcome.watch] += 1;
        let is_said = of_watch[outcome.watch] <= MAX_SAID_PER_WATCH;
        let rule = &self.watches[outcome.watch].rule;
        if !is_said {
            count_unsaid(verdict, rule.rule);
        }
        self.build_ended(left, end, is_said.then_some(rule.actions), verdict);
    }

    fn raised(
        &self,
        outcome: &Outcome,
        of_layer: u64,
        (batch, first_move): (&StepBatch, Option<&FirstMove>),
        incident: Option<Incident>,
    ) -> RaisedAlert {
        let (phase, findings, since) = match outcome.change {
            Some(RuleChange::Ends(findings, since)) => (AlertPhase::Ends, findings, since),
            _ => (AlertPhase::Begins, 1, batch.step),
        };
        let watch = &self.watches[outcome.watch];
        let expected = outcome.finding.map(|finding| finding.expected).unwrap_or_default();
        let mut alert = Alert {
            rule: watch.rule.rule,
            severity: watch.rule.severity,
            phase,
            findings,
            step: batch.step,
            rank: self.rank,
            time: batch.time,
            series: self.describe(outcome),
            value: outcome.value,
            expected,
            message: String::new(),
            moved_first: first_move.cloned(),
            incident,
        };
        alert.message = sentence(&alert, since, (watch.rule.args.steps, of_layer), batch.grad_norm_check());
        RaisedAlert { alert, actions: watch.rule.actions, outlet: Outlet::All }
    }

    /// The number of steps in a row that a rule waits before it reports.
    fn waited(&self, watch: usize) -> u64 {
        let rule = &self.watches[watch].rule;
        let waits = matches!(rule.rule, AlertRule::Dead | AlertRule::Collapse | AlertRule::UpdateRatio);
        if waits { rule.args.steps } else { 0 }
    }

    fn member(&self, outcome: &Outcome) -> Member {
        Member { watch: self.watches[outcome.watch].name(), series: self.describe(outcome) }
    }

    /// Records and sends the end of an alert, which `end` creates. `actions`: `None` for an alert beyond the limit per
    /// step.
    fn build_ended(
        &self,
        left: Left,
        end: impl Fn(Option<Incident>) -> Alert,
        actions: Option<AlertActions>,
        verdict: &mut StepVerdict,
    ) {
        let mut written = |incident, outlet| {
            verdict.said.extend(actions.map(|actions| RaisedAlert { alert: end(incident), actions, outlet }));
        };
        let AllOver { own, ends, alerts, since } = match left {
            Left::Alone => return written(None, Outlet::All),
            Left::Quiet(own) => return written(Some(own), Outlet::Written),
            Left::AllOver(all) => all,
        };
        written(Some(own), Outlet::Written);
        verdict.over.push(own.step);
        for SentEnd { member, channels, mut alert, .. } in ends {
            let rest = match alerts {
                1 => String::new(),
                2 => format!("; the other alert of this incident has also ended, the last at step {since}"),
                _ => {
                    let others = alerts - 1;
                    format!("; the {others} other alerts of this incident have also ended, the last at step {since}")
                }
            };
            alert.message.push_str(&rest);
            let actions = channels.of_actions(self.actions_of(&member));
            verdict.said.push(RaisedAlert { alert, actions, outlet: Outlet::Sent });
        }
    }

    /// An end that no longer waits for the other alerts of its incident.
    pub(super) fn overdue(&self, SentEnd { member, channels, mut alert, ongoing }: SentEnd) -> RaisedAlert {
        let rest = match ongoing {
            0 => String::new(),
            1 => "; another alert of this incident is ongoing".to_owned(),
            _ => format!("; {ongoing} other alerts of this incident are ongoing"),
        };
        alert.message.push_str(&rest);
        RaisedAlert { alert, actions: channels.of_actions(self.actions_of(&member)), outlet: Outlet::Sent }
    }

    fn actions_of(&self, Member { watch, .. }: &Member) -> AlertActions {
        let own = self.watches.iter().find(|of| of.name() == *watch).map(|of| &of.rule);
        let rule = own.or_else(|| self.config.alert.rules.iter().find(|rule| rule.rule == watch.rule));
        rule.map(|rule| rule.actions).unwrap_or_default()
    }

    fn signal_of(&self, outcome: &Outcome) -> AlertSignal {
        match (self.watches[outcome.watch].signal, outcome.which) {
            (Some(signal), _) => signal,
            (None, Which::Tensor { kind: Some(kind), .. }) => AlertSignal::Kind(kind),
            (None, _) => AlertSignal::StepTime,
        }
    }

    /// Takes a finding of a rule that runs on its own thread.
    pub(crate) fn take(&mut self, raised: Raised) -> StepVerdict {
        let Some(rule) = self.config.alert.rules.iter().find(|rule| rule.rule == raised.rule) else {
            return StepVerdict::default();
        };
        let Raised { rule: name, phase, findings, step, time, series, value, expected, message } = raised;
        let mut verdict = StepVerdict::default();
        if phase == AlertPhase::Begins {
            self.totals.found(name);
            if self.config.alert.dump {
                let op = series.statistic.map_or("value", trainmon_core::Statistic::name);
                let at = (self.rank, step.0, -1);
                let anomaly = tag::anomaly(name.name(), op, &series, &Finding { value, expected }, at, &self.config);
                verdict.findings.push(Entry { op, rule: name.name(), anomaly });
            }
        }
        let (severity, rank, moved_first, incident) = (rule.severity, self.rank, None, None);
        let watch = WatchName { rule: name, scope: series.scope, signal: Some(series.signal), twin: 0 };
        let member = Member { watch, series: series.clone() };
        let alert = Alert {
            rule: name,
            severity,
            phase,
            findings,
            step,
            rank,
            time,
            series,
            value,
            expected,
            message,
            moved_first,
            incident,
        };
        let actions = rule.actions;
        let mut raised = RaisedAlert { alert, actions, outlet: Outlet::All };
        match phase {
            AlertPhase::Begins if is_of_numbers(name) => {
                let Joined { incident, channels } = self.incidents.join(member, severity, Channels::of(actions), step);
                raised.alert.incident = Some(incident);
                raised.actions = channels.of_actions(actions);
                verdict.said.push(raised);
            }
            AlertPhase::Begins => verdict.said.push(raised),
            AlertPhase::Ends => {
                let end = |incident| Alert { incident, ..raised.alert.clone() };
                let left = self.incidents.leave(&member, (step, step), |incident| end(Some(incident)));
                self.build_ended(left, end, Some(actions), &mut verdict);
            }
        }
        verdict
    }
}

fn count_unsaid(verdict: &mut StepVerdict, rule: AlertRule) {
    match verdict.unsaid.iter_mut().find(|(of_rule, _)| *of_rule == rule) {
        Some((_, count)) => *count += 1,
        None => verdict.unsaid.push((rule, 1)),
    }
}

fn scope(which: Which) -> AlertScope {
    match which {
        Which::Global => AlertScope::Global,
        Which::Group(_) => AlertScope::Group,
        Which::Layer(_) => AlertScope::Layer,
        Which::Tensor { .. } => AlertScope::Tensor,
    }
}
