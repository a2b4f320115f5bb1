//! Incidents: alerts of one rank that begin within a few steps of each other. One message is sent when an incident
//! begins and one when it ends; every alert is recorded.
//!
//! The first alert of an incident is its headline. A later alert is sent only if it is more severe than everything sent
//! so far, or if its rule requests sending and nothing was sent. The ends of sent alerts wait until all alerts of the
//! incident have ended, for 64 steps at most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use trainmon_core::config::AlertActions;
use trainmon_core::{
    Alert, AlertRule, AlertScope, AlertSeries, AlertSeverity, AlertSignal, INCIDENT_STEPS, Incident, Step,
};

use super::watch::WatchName;

/// The number of steps after which an incident accepts no more alerts: a later alert begins a new incident.
const LONGEST_STEPS: u64 = 512;
/// How many steps the end of a sent alert waits for the other alerts of its incident.
const LONGEST_WAIT: u64 = 64;

/// Whether alerts of a rule are about the model's numbers, so that one fault raises several of them. Other alerts
/// belong to no incident.
pub(crate) fn is_of_numbers(rule: AlertRule) -> bool {
    !matches!(rule, AlertRule::Stall | AlertRule::Straggler | AlertRule::NormMismatch)
}

/// The identity of an ongoing alert, by name, so that a resumed run finds it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) watch: WatchName,
    pub(crate) series: AlertSeries,
}

/// The channels through which an alert is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Channels {
    pub(crate) log: bool,
    pub(crate) webhook: bool,
    pub(crate) command: bool,
}

impl Channels {
    /// Every channel out of the process.
    pub(crate) const ALL: Self = Self { log: false, webhook: true, command: true };

    /// Whether `self` has a channel that `others` lacks.
    pub(crate) fn lacks(self, others: Self) -> bool {
        self.without(others).is_any()
    }

    pub(crate) fn of(actions: AlertActions) -> Self {
        let AlertActions { log, webhook, command, .. } = actions;
        Self { log, webhook, command }
    }

    /// Whether there is any channel.
    pub(crate) fn is_any(self) -> bool {
        self.log || self.webhook || self.command
    }

    /// The channels of `self` that exist.
    pub(crate) fn only(self, webhook: bool, command: bool) -> Self {
        Self { webhook: self.webhook && webhook, command: self.command && command, ..self }
    }

    /// The channels of `self` that `others` lacks.
    fn without(self, others: Self) -> Self {
        Self {
            log: self.log && !others.log,
            webhook: self.webhook && !others.webhook,
            command: self.command && !others.command,
        }
    }

    /// The channels of both.
    pub(crate) fn with(self, others: Self) -> Self {
        Self {
            log: self.log || others.log,
            webhook: self.webhook || others.webhook,
            command: self.command || others.command,
        }
    }

    /// The actions, limited to these channels.
    pub(crate) fn of_actions(self, actions: AlertActions) -> AlertActions {
        let Self { log, webhook, command } = self;
        AlertActions {
            log: log && actions.log,
            webhook: webhook && actions.webhook,
            command: command && actions.command,
            ..actions
        }
    }
}

/// The result of adding an alert that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// The incident, as the alert records it.
    pub(crate) incident: Incident,
    /// The channels to send it through.
    pub(crate) channels: Channels,
}

/// The end of a sent alert, to be sent as well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SentEnd {
    pub(crate) member: Member,
    pub(crate) channels: Channels,
    pub(crate) alert: Alert,
    /// The number of other ongoing alerts in the incident.
    pub(crate) ongoing: u64,
}

/// The result of an alert that ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Left {
    /// It belongs to no incident and is sent on its own.
    Alone,
    /// The incident is ongoing, or its beginning was never sent: the end is only recorded.
    Quiet(Incident),
    /// All alerts of the incident have ended.
    AllOver(AllOver),
}

/// The contents of the message when the last alert of an incident ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AllOver {
    /// The incident, as the last alert records it.
    pub(crate) own: Incident,
    /// The deferred ends, in the order in which their alerts began.
    pub(crate) ends: Vec<SentEnd>,
    /// The number of alerts in the incident.
    pub(crate) alerts: u64,
    /// The step since which everything is back to normal.
    pub(crate) since: Step,
}

/// The end of a sent alert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum End {
    /// The alert is ongoing.
    Open,
    /// It ended in this step and waits for the other alerts.
    Waits(Box<Alert>, Step),
    /// The end was sent.
    Told,
}

/// A message sent for an incident, and its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) severity: AlertSeverity,
    pub(crate) rule: AlertRule,
    pub(crate) step: Step,
    pub(crate) channels: Channels,
}

impl Sending {
    /// The channels in `wanted` through which nothing was sent that covers the alert.
    pub(crate) fn lacking(
        sent: impl Iterator<Item = Self>,
        alert: (AlertSeverity, AlertRule, Step),
        wanted: Channels,
    ) -> Channels {
        let covering = sent.filter(|sent| sent.covers(alert));
        wanted.without(covering.fold(Channels::default(), |all, sent| all.with(sent.channels)))
    }

    /// Whether this message makes another one of that severity and rule in the same incident unnecessary. The first
    /// critical alert of each rule is sent, unless the step is the same.
    fn covers(&self, (severity, rule, step): (AlertSeverity, AlertRule, Step)) -> bool {
        let is_near = step.0.abs_diff(self.step.0) <= INCIDENT_STEPS;
        self.severity >= severity && (severity < AlertSeverity::Critical || self.rule == rule || is_near)
    }
}

/// An alert that was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sent {
    member: Member,
    severity: AlertSeverity,
    step: Step,
    channels: Channels,
    end: End,
}

impl Sent {
    fn sending(&self) -> Sending {
        let Self { severity, step, channels, .. } = *self;
        Sending { severity, rule: self.member.watch.rule, step, channels }
    }

    /// Returns its end if one is deferred and `is_due` for the step in which it ended.
    fn take_end(&mut self, ongoing: u64, is_due: impl FnOnce(Step) -> bool) -> Option<SentEnd> {
        match std::mem::replace(&mut self.end, End::Told) {
            End::Waits(alert, step) if is_due(step) => {
                Some(SentEnd { member: self.member.clone(), channels: self.channels, alert: *alert, ongoing })
            }
            other => {
                self.end = other;
                None
            }
        }
    }
}

/// An ongoing incident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    step: Step,
    /// The step in which the latest alert began.
    latest: Step,
    alerts: u64,
    /// The ongoing alerts.
    ongoing: HashSet<Member>,
    /// The first step in which every ended alert had ended.
    since: Step,
    sent: Vec<Sent>,
}

impl Open {
    fn is_near(&self, step: Step) -> bool {
        is_near((self.step, self.latest), step)
    }
}

/// Whether an alert that begins in `step` belongs to an incident whose first and latest alerts began in these steps.
pub(crate) fn is_near((first, latest): (Step, Step), step: Step) -> bool {
    let around = first.0.saturating_sub(INCIDENT_STEPS)..=latest.0 + INCIDENT_STEPS;
    around.contains(&step.0) && step.0.saturating_sub(first.0) <= LONGEST_STEPS
}

/// The ongoing incidents of a rank, newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Incidents(Vec<Open>);

impl Incidents {
    /// Adds an alert that begins. Of several in a step, the one to report must come first.
    pub(crate) fn join(&mut self, member: Member, severity: AlertSeverity, wanted: Channels, step: Step) -> Joined {
        let near = self.0.iter().rposition(|open| open.is_near(step));
        let place = near.unwrap_or_else(|| {
            let (ongoing, sent) = (HashSet::new(), Vec::new());
            self.0.push(Open { step, latest: step, alerts: 0, ongoing, since: step, sent });
            self.0.len() - 1
        });
        let open = &mut self.0[place];
        let channels =
            Sending::lacking(open.sent.iter().map(Sent::sending), (severity, member.watch.rule, step), wanted);
        let headline = open.alerts == 0 || channels.is_any();
        open.latest = open.latest.max(step);
        open.alerts += 1;
        if headline {
            open.sent.push(Sent { member: member.clone(), severity, step, channels, end: End::Open });
        }
        open.ongoing.insert(member);
        Joined { incident: Incident { step: open.step, headline }, channels }
    }

    /// Adds another part of an alert that joined: it ends on its own and is not counted.
    pub(crate) fn join_as_part(&mut self, member: Member, of: &Member) {
        if let Some(open) = self.0.iter_mut().rev().find(|open| open.ongoing.contains(of)) {
            open.ongoing.insert(member);
        }
    }

    /// Removes an alert that has ended since a step, detected in step `now`. `end` is the message for its end, if its
    /// beginning was sent.
    pub(crate) fn leave(
        &mut self,
        member: &Member,
        (since, now): (Step, Step),
        end: impl FnOnce(Incident) -> Alert,
    ) -> Left {
        let Some(place) = self.0.iter().rposition(|open| open.ongoing.contains(member)) else { return Left::Alone };
        let open = &mut self.0[place];
        open.ongoing.remove(member);
        open.since = open.since.max(since);
        let sent = open.sent.iter_mut().find(|sent| sent.member == *member && sent.end == End::Open);
        let own = Incident { step: open.step, headline: sent.is_some() };
        if let Some(sent) = sent {
            sent.end = End::Waits(Box::new(end(own)), now);
        }
        if !open.ongoing.is_empty() {
            return Left::Quiet(own);
        }
        let Open { alerts, since, mut sent, .. } = self.0.remove(place);
        let ends = sent.iter_mut().filter_map(|sent| sent.take_end(0, |_| true)).collect();
        Left::AllOver(AllOver { own, ends, alerts, since })
    }

    /// The ends that have waited too long for the other alerts, which are ongoing or no longer measured.
    pub(crate) fn overdue(&mut self, now: Step) -> Vec<SentEnd> {
        let is_due = |step: Step| now.0.saturating_sub(step.0) >= LONGEST_WAIT;
        let of_open = |open: &mut Open| {
            let ongoing = open.ongoing.len() as u64;
            open.sent.iter_mut().filter_map(|sent| sent.take_end(ongoing, is_due)).collect::<Vec<_>>()
        };
        self.0.iter_mut().flat_map(of_open).collect()
    }

    /// Restores the saved state with its ongoing alerts. Returns the deferred ends whose incidents have no ongoing
    /// alert.
    pub(crate) fn load(&mut self, saved: Self, goes_on: impl Fn(&Member) -> bool) -> Vec<SentEnd> {
        *self = saved;
        let mut owed = Vec::new();
        for open in &mut self.0 {
            open.ongoing.retain(&goes_on);
            if open.ongoing.is_empty() {
                owed.extend(open.sent.iter_mut().filter_map(|sent| sent.take_end(0, |_| true)));
            }
        }
        self.0.retain(|open| !open.ongoing.is_empty());
        owed
    }
}

/// The precedence of alerts that begin in one step: the most severe first, then the widest, then the earliest in the
/// order of a step.
pub(crate) fn precedence(
    severity: AlertSeverity,
    scope: AlertScope,
    signal: AlertSignal,
) -> (Reverse<AlertSeverity>, AlertScope, usize) {
    (Reverse(severity), scope, signal.place_in_step())
}

/// The other alerts of the headline's step in words: a single one by name, several by number and rule.
pub(crate) fn beside(others: &[(AlertRule, AlertSeries)]) -> String {
    if let [(rule, series)] = others {
        return format!("; with 1 other alert ({rule} of {series:#})");
    }
    let mut counts: BTreeMap<AlertRule, u64> = BTreeMap::new();
    for (rule, _) in others {
        *counts.entry(*rule).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(rule, count)| format!("{count} {rule}")).collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("; with {} other alerts ({})", others.len(), parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use trainmon_core::{AlertPhase, Expectation, Rank};

    use super::*;

    fn member(number: usize) -> Member {
        let series = AlertSeries { name: number.to_string(), ..AlertSeries::global(AlertSignal::Grad, None) };
        let watch =
            WatchName { rule: AlertRule::Spike, scope: AlertScope::Global, signal: Some(AlertSignal::Grad), twin: 0 };
        Member { watch, series }
    }

    fn end(message: &'static str) -> impl FnOnce(Incident) -> Alert {
        move |incident| Alert {
            rule: AlertRule::Spike,
            severity: AlertSeverity::Warning,
            phase: AlertPhase::Ends,
            findings: 1,
            step: Step(0),
            rank: Rank(0),
            time: SystemTime::UNIX_EPOCH,
            series: AlertSeries::global(AlertSignal::Grad, None),
            value: 0.0,
            expected: Expectation::default(),
            message: message.to_owned(),
            moved_first: None,
            incident: Some(incident),
        }
    }

    const LOG: Channels = Channels { log: true, webhook: false, command: false };
    const BOTH: Channels = Channels { log: true, webhook: true, command: false };

    fn join(incidents: &mut Incidents, number: usize, severity: AlertSeverity, step: u64) -> Incident {
        incidents.join(member(number), severity, LOG, Step(step)).incident
    }

    fn leave(incidents: &mut Incidents, number: usize, since: u64, message: &'static str) -> Left {
        incidents.leave(&member(number), (Step(since), Step(since + 9)), end(message))
    }

    fn messages(ends: Vec<SentEnd>) -> Vec<String> {
        ends.into_iter().map(|end| end.alert.message).collect()
    }

    fn over(left: Left) -> (Vec<String>, u64, Step) {
        let Left::AllOver(AllOver { ends, alerts, since, .. }) = left else { panic!("{left:?}") };
        (messages(ends), alerts, since)
    }

    #[test]
    fn alerts_within_a_few_steps_are_one_incident_and_its_end_waits_for_the_last() {
        let mut incidents = Incidents::default();
        let first = join(&mut incidents, 0, AlertSeverity::Warning, 300);
        assert_eq!(first, Incident { step: Step(300), headline: true });
        for (number, step) in [(1, 300), (2, 305), (3, 300 + 5 + INCIDENT_STEPS)] {
            let next = join(&mut incidents, number, AlertSeverity::Warning, step);
            assert_eq!(next, Incident { step: Step(300), headline: false });
        }
        let quiet = |headline| Left::Quiet(Incident { step: Step(300), headline });
        assert_eq!(leave(&mut incidents, 0, 301, "first"), quiet(true));
        assert_eq!(leave(&mut incidents, 2, 330, "never told"), quiet(false));
        assert_eq!(leave(&mut incidents, 1, 302, "never told"), quiet(false));
        assert_eq!(incidents.overdue(Step(340)), []);
        let last = leave(&mut incidents, 3, 322, "never told");
        assert_eq!(over(last), (vec!["first".to_owned()], 4, Step(330)));
        assert_eq!(incidents, Incidents::default());
    }

    #[test]
    fn an_end_does_not_wait_for_ever() {
        let mut incidents = Incidents::default();
        join(&mut incidents, 0, AlertSeverity::Warning, 10);
        join(&mut incidents, 1, AlertSeverity::Warning, 10);
        leave(&mut incidents, 0, 11, "first");
        assert_eq!(incidents.overdue(Step(20 + LONGEST_WAIT - 1)), []);
        let [told] = &incidents.overdue(Step(20 + LONGEST_WAIT))[..] else { panic!("{incidents:?}") };
        assert_eq!((told.alert.message.as_str(), told.ongoing), ("first", 1));
        assert_eq!(incidents.overdue(Step(900)), [], "once");
        assert_eq!(over(leave(&mut incidents, 1, 901, "never told")), (vec![], 2, Step(901)));
    }

    #[test]
    fn what_matters_more_is_sent_too_and_both_ends_come_at_the_end() {
        let mut incidents = Incidents::default();
        join(&mut incidents, 0, AlertSeverity::Warning, 10);
        let worse = join(&mut incidents, 1, AlertSeverity::Critical, 12);
        assert_eq!(worse, Incident { step: Step(10), headline: true });
        assert!(!join(&mut incidents, 2, AlertSeverity::Critical, 12).headline);
        leave(&mut incidents, 2, 13, "never told");
        leave(&mut incidents, 1, 13, "worse");
        let last = leave(&mut incidents, 0, 13, "first");
        assert_eq!(over(last), (vec!["first".to_owned(), "worse".to_owned()], 3, Step(13)));
    }

    #[test]
    fn a_rule_that_wants_more_outlets_gets_those_that_nothing_was_sent_to() {
        let mut incidents = Incidents::default();
        join(&mut incidents, 0, AlertSeverity::Warning, 10);
        let joined = incidents.join(member(1), AlertSeverity::Warning, BOTH, Step(10));
        assert_eq!(joined.channels, Channels { log: false, ..BOTH });
        assert!(joined.incident.headline);
        let third = incidents.join(member(2), AlertSeverity::Warning, BOTH, Step(11));
        assert_eq!((third.channels, third.incident.headline), (Channels::default(), false));
    }

    #[test]
    fn a_critical_alert_of_another_rule_is_not_hidden_for_long() {
        let mut incidents = Incidents::default();
        let nan =
            |number| Member { watch: WatchName { rule: AlertRule::NonFinite, ..member(0).watch }, ..member(number) };
        assert!(incidents.join(nan(0), AlertSeverity::Critical, LOG, Step(10)).incident.headline);
        for step in (12..300).step_by(12) {
            assert!(!join(&mut incidents, step as usize, AlertSeverity::Warning, step).headline);
        }
        assert!(!incidents.join(nan(1), AlertSeverity::Critical, LOG, Step(300)).incident.headline, "the same rule");
        let other = Member { watch: WatchName { rule: AlertRule::ReplicaMismatch, ..member(0).watch }, ..member(7) };
        assert!(incidents.join(other, AlertSeverity::Critical, LOG, Step(300)).incident.headline);
    }

    #[test]
    fn what_begins_later_or_far_earlier_is_another_incident_though_the_first_goes_on() {
        let mut incidents = Incidents::default();
        join(&mut incidents, 0, AlertSeverity::Critical, 600);
        let later = join(&mut incidents, 1, AlertSeverity::Warning, 600 + INCIDENT_STEPS + 1);
        assert_eq!(later, Incident { step: Step(600 + INCIDENT_STEPS + 1), headline: true });
        // A thread of its own may be behind.
        assert_eq!(join(&mut incidents, 2, AlertSeverity::Warning, 100), Incident { step: Step(100), headline: true });
        assert!(!join(&mut incidents, 3, AlertSeverity::Warning, 600).headline);
        assert_eq!(over(leave(&mut incidents, 1, 660, "later")).1, 1);
        assert_eq!(over(leave(&mut incidents, 2, 101, "earlier")).1, 1);
        leave(&mut incidents, 3, 601, "never told");
        assert_eq!(over(leave(&mut incidents, 0, 670, "first")).1, 2);
    }

    #[test]
    fn a_run_that_alarms_again_and_again_is_told_of_again() {
        let mut incidents = Incidents::default();
        let opened = (0..200).filter(|&number: &u64| {
            join(&mut incidents, number as usize, AlertSeverity::Warning, number * INCIDENT_STEPS).headline
        });
        assert_eq!(opened.count(), 200 / (1 + LONGEST_STEPS / INCIDENT_STEPS) as usize + 1);
    }

    #[test]
    fn parts_end_by_themselves_and_are_not_counted() {
        let mut incidents = Incidents::default();
        join(&mut incidents, 0, AlertSeverity::Warning, 10);
        incidents.join_as_part(member(1), &member(0));
        leave(&mut incidents, 0, 11, "first");
        assert_eq!(over(leave(&mut incidents, 1, 11, "never told")), (vec!["first".to_owned()], 1, Step(11)));
    }

    #[test]
    fn an_end_whose_beginning_nobody_saw_stands_alone_and_a_rule_that_is_gone_holds_no_incident_open() {
        let mut incidents = Incidents::default();
        assert_eq!(leave(&mut incidents, 0, 4, "alone"), Left::Alone);
        join(&mut incidents, 0, AlertSeverity::Warning, 5);
        join(&mut incidents, 1, AlertSeverity::Warning, 5);
        join(&mut incidents, 2, AlertSeverity::Warning, 50);
        join(&mut incidents, 3, AlertSeverity::Warning, 50);
        leave(&mut incidents, 2, 51, "waits");
        let saved = serde_json::from_str(&serde_json::to_string(&incidents).unwrap()).unwrap();
        let mut resumed = Incidents::default();
        assert_eq!(messages(resumed.load(saved, |of| *of == member(1))), ["waits"]);
        assert_eq!(over(leave(&mut resumed, 1, 60, "never told")), (vec![], 2, Step(60)));
        assert_eq!(resumed, Incidents::default());
    }

    #[test]
    fn the_rest_is_named_or_counted_by_rule() {
        use AlertRule::{NonFinite, Spike};
        let of = |rule| (rule, AlertSeries::global(AlertSignal::Loss, None));
        assert_eq!(beside(&[]), "");
        assert_eq!(beside(&[of(Spike)]), "; with 1 other alert (Spike of loss)");
        let many = [NonFinite, Spike, NonFinite].map(of);
        assert_eq!(beside(&many), "; with 3 other alerts (1 Spike, 2 NonFinite)");
    }
}
