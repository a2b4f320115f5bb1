//! Incidents: alerts of one rank that begin within a few steps of each other. One message says that it begins, one that it is
//! over; every alert is written down.
//!
//! The first alert of an incident is its headline. A later one is sent out only where it matters more than what was sent
//! so far. The ends of what was sent out wait until all alerts of the incident are over.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use trainmon_core::{
    Alert, AlertRule, AlertScope, AlertSeries, AlertSeverity, AlertSignal, INCIDENT_STEPS, Incident, Step,
};

use super::watch::WatchName;

/// Steps after which an incident takes no more alerts: what begins then is news.
const LONGEST_STEPS: u64 = 512;

/// Whether alerts of a rule are about the model's numbers: one fault in them raises several. The others stand alone.
pub(crate) fn is_of_numbers(rule: AlertRule) -> bool {
    !matches!(rule, AlertRule::Stall | AlertRule::Straggler | AlertRule::NormMismatch)
}

/// An alert, as long as it goes on: found again by name after a resume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) watch: WatchName,
    pub(crate) series: AlertSeries,
}

/// What becomes of an alert that is over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Left {
    /// It stands alone: it is sent out by itself.
    Alone,
    /// The incident goes on, or nobody was sent its beginning: the end is written down only.
    Quiet(Incident),
    /// Everything is over.
    AllOver(AllOver),
}

/// What is told when the last alert of an incident is over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AllOver {
    /// Of the alert that was the last.
    pub(crate) own: Incident,
    /// The ends that waited, in the order in which their alerts began.
    pub(crate) ends: Vec<(Member, Alert)>,
    /// How many alerts there were.
    pub(crate) alerts: u64,
    /// Since when all is well.
    pub(crate) since: Step,
}

/// An incident that goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    step: Step,
    /// The step in which its latest alert began.
    latest: Step,
    /// The most that was sent out.
    severity: AlertSeverity,
    alerts: u64,
    /// The alerts that go on.
    ongoing: HashSet<Member>,
    /// The first step in which all that is over was over.
    since: Step,
    /// The ends of what was sent out, as far as they came: they wait for the last.
    sent: Vec<(Member, Option<Alert>)>,
}

/// The incidents of a rank that go on, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Incidents(Vec<Open>);

impl Incidents {
    /// An alert begins. Of several in a step the one that is to be told comes first.
    pub(crate) fn join(&mut self, member: Member, severity: AlertSeverity, step: Step) -> Incident {
        let is_near = |open: &&mut Open| {
            step.0.saturating_sub(open.latest.0) <= INCIDENT_STEPS
                && step.0.saturating_sub(open.step.0) <= LONGEST_STEPS
        };
        if let Some(open) = self.0.last_mut().filter(is_near) {
            let headline = severity > open.severity;
            (open.latest, open.severity) = (open.latest.max(step), open.severity.max(severity));
            open.alerts += 1;
            if headline {
                open.sent.push((member.clone(), None));
            }
            open.ongoing.insert(member);
            return Incident { step: open.step, headline };
        }
        let (ongoing, sent) = (HashSet::from([member.clone()]), vec![(member, None)]);
        self.0.push(Open { step, latest: step, severity, alerts: 1, ongoing, since: step, sent });
        Incident { step, headline: true }
    }

    /// An alert is over since a step. `end` is what is sent out of it, if its beginning was.
    pub(crate) fn leave(&mut self, member: &Member, since: Step, end: impl FnOnce(Incident) -> Alert) -> Left {
        let Some(place) = self.0.iter().position(|open| open.ongoing.contains(member)) else { return Left::Alone };
        let open = &mut self.0[place];
        open.ongoing.remove(member);
        open.since = open.since.max(since);
        let sent = open.sent.iter_mut().find(|(of, _)| of == member);
        let own = Incident { step: open.step, headline: sent.is_some() };
        if let Some((_, waiting)) = sent {
            *waiting = Some(end(own));
        }
        if !open.ongoing.is_empty() {
            return Left::Quiet(own);
        }
        let Open { alerts, since, sent, .. } = self.0.remove(place);
        let ends = sent.into_iter().filter_map(|(member, end)| Some((member, end?))).collect();
        Left::AllOver(AllOver { own, ends, alerts, since })
    }

    /// Goes on from what was saved, with the alerts whose rules are still there.
    pub(crate) fn load(&mut self, saved: Self, is_there: impl Fn(&Member) -> bool) {
        *self = saved;
        for open in &mut self.0 {
            open.ongoing.retain(&is_there);
        }
        self.0.retain(|open| !open.ongoing.is_empty());
    }
}

/// Where alerts that begin in one step stand in their incident: what matters most first, of these the widest, of these what comes
/// first in a step.
pub(crate) fn precedence(
    severity: AlertSeverity,
    scope: AlertScope,
    signal: AlertSignal,
) -> (Reverse<AlertSeverity>, AlertScope, usize) {
    (Reverse(severity), scope, signal.place_in_step())
}

/// The alerts that begin in the step of their headline, in words: the one by name, several by number and rule.
pub(crate) fn beside(others: &[(AlertRule, AlertSeries)]) -> String {
    if let [(rule, series)] = others {
        return format!("; with 1 other alert ({rule} of {series})");
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

    fn over(left: Left) -> (Vec<String>, u64, Step) {
        let Left::AllOver(AllOver { ends, alerts, since, .. }) = left else { panic!("{left:?}") };
        (ends.into_iter().map(|(_, end)| end.message).collect(), alerts, since)
    }

    #[test]
    fn alerts_within_a_few_steps_are_one_incident_and_its_end_waits_for_the_last() {
        let mut incidents = Incidents::default();
        let first = incidents.join(member(0), AlertSeverity::Warning, Step(300));
        assert_eq!(first, Incident { step: Step(300), headline: true });
        for (number, step) in [(1, 300), (2, 305), (3, 300 + 5 + INCIDENT_STEPS)] {
            let next = incidents.join(member(number), AlertSeverity::Warning, Step(step));
            assert_eq!(next, Incident { step: Step(300), headline: false });
        }
        let quiet = |headline| Left::Quiet(Incident { step: Step(300), headline });
        assert_eq!(incidents.leave(&member(0), Step(301), end("first")), quiet(true));
        assert_eq!(incidents.leave(&member(2), Step(330), end("never told")), quiet(false));
        assert_eq!(incidents.leave(&member(1), Step(302), end("never told")), quiet(false));
        let last = incidents.leave(&member(3), Step(322), end("never told"));
        assert_eq!(over(last), (vec!["first".to_owned()], 4, Step(330)));
        assert_eq!(incidents, Incidents::default());
    }

    #[test]
    fn what_matters_more_is_sent_too_and_both_ends_come_at_the_end() {
        let mut incidents = Incidents::default();
        incidents.join(member(0), AlertSeverity::Warning, Step(10));
        let worse = incidents.join(member(1), AlertSeverity::Critical, Step(12));
        assert_eq!(worse, Incident { step: Step(10), headline: true });
        let no_worse = incidents.join(member(2), AlertSeverity::Critical, Step(12));
        assert!(!no_worse.headline);
        incidents.leave(&member(2), Step(13), end("never told"));
        incidents.leave(&member(1), Step(13), end("worse"));
        let last = incidents.leave(&member(0), Step(13), end("first"));
        assert_eq!(over(last), (vec!["first".to_owned(), "worse".to_owned()], 3, Step(13)));
    }

    #[test]
    fn what_begins_later_is_another_incident_though_the_first_goes_on() {
        let mut incidents = Incidents::default();
        incidents.join(member(0), AlertSeverity::Critical, Step(10));
        let later = incidents.join(member(1), AlertSeverity::Warning, Step(10 + INCIDENT_STEPS + 1));
        assert_eq!(later, Incident { step: Step(10 + INCIDENT_STEPS + 1), headline: true });
        assert_eq!(over(incidents.leave(&member(1), Step(60), end("later"))).1, 1);
        assert_eq!(over(incidents.leave(&member(0), Step(70), end("first"))).1, 1);
    }

    #[test]
    fn a_run_that_alarms_again_and_again_is_told_of_again() {
        let mut incidents = Incidents::default();
        let opened = (0..200).filter(|&number| {
            let step = Step(number * INCIDENT_STEPS);
            incidents.join(member(number as usize), AlertSeverity::Warning, step).headline
        });
        assert_eq!(opened.count(), 200 / (1 + LONGEST_STEPS / INCIDENT_STEPS) as usize + 1);
    }

    #[test]
    fn an_end_whose_beginning_nobody_saw_stands_alone_and_a_rule_that_is_gone_holds_no_incident_open() {
        let mut incidents = Incidents::default();
        assert_eq!(incidents.leave(&member(0), Step(4), end("alone")), Left::Alone);
        incidents.join(member(0), AlertSeverity::Warning, Step(5));
        incidents.join(member(1), AlertSeverity::Warning, Step(5));
        incidents.join(member(2), AlertSeverity::Warning, Step(50));
        let saved = serde_json::from_str(&serde_json::to_string(&incidents).unwrap()).unwrap();
        let mut resumed = Incidents::default();
        resumed.load(saved, |of| *of == member(1));
        assert_eq!(over(resumed.leave(&member(1), Step(60), end("never told"))), (vec![], 2, Step(60)));
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
