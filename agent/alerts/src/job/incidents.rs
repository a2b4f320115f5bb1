//! The part of rank 0: combines the alerts of all ranks. One message is sent when an incident begins and one when it
//! ends.
//!
//! The first alert of an incident is held for a moment, so that those of other ranks can arrive. The headline is the
//! alert whose root cause comes first in the order of a step.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use trainmon_core::{Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, Rank, Step};

use super::{JobMessage, SentAlert};
use crate::incident::{Channels, Sending, is_near, is_of_numbers};

/// How long the end of an alert waits for those of other ranks.
const LONGEST_WAIT: Duration = Duration::from_mins(2);
/// The maximum number of incidents kept. It limits those that a rank never ended.
const MOST: usize = 64;
/// The maximum number of ranks listed in a message.
const NAMED: usize = 8;

/// An ongoing alert of a rank.
type Member = (Rank, AlertRule, AlertSeries);

fn member(alert: &Alert) -> Member {
    (alert.rank, alert.rule, alert.series.clone())
}

/// A message that waits to be sent.
#[derive(Debug)]
struct Held {
    headline: Alert,
    channels: Channels,
    /// The most severe alert.
    worst: Alert,
    /// The messages that it includes.
    numbers: Vec<(Rank, u64)>,
    until: Instant,
}

impl Held {
    fn add(&mut self, SentAlert { alert, channels }: SentAlert, number: u64) {
        self.numbers.push((alert.rank, number));
        self.channels = self.channels.with(channels);
        if alert.severity > self.worst.severity {
            self.worst = alert.clone();
        }
        if order(&alert) < order(&self.headline) {
            self.headline = alert;
        }
    }
}

/// The sort key: earliest in the order of a step, then most severe.
fn order(alert: &Alert) -> ((Step, usize), Reverse<AlertSeverity>, Rank) {
    (alert.first_place(), Reverse(alert.severity), alert.rank)
}

/// The ends received.
#[derive(Debug)]
struct Ended {
    alerts: Vec<Alert>,
    /// When to send the message if no alert of the incident is ongoing.
    if_over: Instant,
    /// When to send the message at the latest.
    at_last: Instant,
}

#[derive(Debug, Default)]
struct Open {
    /// The rule of alerts without incident on each rank; `None` for those about the model's numbers.
    rule: Option<AlertRule>,
    step: Step,
    latest: Step,
    ranks: BTreeSet<u32>,
    ongoing: HashSet<Member>,
    held: Option<Held>,
    sent: Vec<Sending>,
    /// The alert sent first.
    headline: Option<Member>,
    ended: Option<Ended>,
}

impl Open {
    fn new(rule: Option<AlertRule>, step: Step) -> Self {
        Self { rule, step, latest: step, ..Self::default() }
    }

    fn begin(&mut self, mut sent: SentAlert, number: u64, until: Instant) {
        let alert = &sent.alert;
        self.latest = self.latest.max(alert.step);
        self.ranks.insert(alert.rank.0);
        self.ongoing.insert(member(alert));
        sent.channels =
            Sending::lacking(self.sent.iter().copied(), (alert.severity, alert.rule, alert.step), sent.channels);
        if !sent.channels.is_any() {
            return;
        }
        if let Some(held) = &mut self.held {
            held.add(sent, number);
            return;
        }
        let SentAlert { alert, channels } = sent;
        let numbers = vec![(alert.rank, number)];
        self.held = Some(Held { worst: alert.clone(), headline: alert, channels, numbers, until });
    }

    fn end(&mut self, sent: SentAlert, now: Instant, gathering: Duration) {
        let SentAlert { alert, channels } = sent;
        let of = member(&alert);
        self.ranks.insert(alert.rank.0);
        self.ongoing.remove(&of);
        if self.sent.is_empty() && self.held.is_none() {
            // Another process sent its beginning, before a resume.
            let (severity, rule, step) = (alert.severity, alert.rule, alert.step);
            self.sent.push(Sending { severity, rule, step, channels });
        }
        let if_over = now + gathering;
        let at_last = now + LONGEST_WAIT;
        let ended = self.ended.get_or_insert_with(|| Ended { alerts: Vec::new(), if_over, at_last });
        ended.if_over = if_over;
        // For an alert that ended, began and ended again.
        ended.alerts.retain(|earlier| member(earlier) != of);
        ended.alerts.push(alert);
    }

    fn next_due(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|held| held.until);
        let ended =
            self.ended.as_ref().map(|ended| if self.ongoing.is_empty() { ended.if_over } else { ended.at_last });
        // The beginning is sent before the end.
        held.or(ended)
    }

    /// The message that is due; there may be another one after it.
    fn send(&mut self) -> Option<JobMessage> {
        let ranks = self.ranks.iter().copied().collect();
        if let Some(Held { headline: mut alert, channels, worst, numbers, .. }) = self.held.take() {
            self.sent.push(Sending { severity: worst.severity, rule: worst.rule, step: worst.step, channels });
            self.headline.get_or_insert_with(|| member(&alert));
            let of: BTreeSet<u32> = numbers.into_iter().map(|(rank, _)| rank.0).collect();
            let others: Vec<u32> = of.into_iter().filter(|rank| *rank != alert.rank.0).collect();
            let is_worse = worst.severity > alert.severity && worst.rule != alert.rule;
            let rest = match (is_worse, others.as_slice()) {
                (false, []) => String::new(),
                (false, _) => format!("; also on {}", named(&others)),
                (true, []) => format!("; also {} of {:#}", worst.rule, worst.series),
                (true, [_]) if worst.rank != alert.rank => {
                    format!("; also on {} ({} of {:#})", named(&others), worst.rule, worst.series)
                }
                (true, _) => {
                    let Alert { rule, series, rank, .. } = &worst;
                    format!("; also on {}; also {rule} of {series:#} on rank {rank}", named(&others))
                }
            };
            alert.message.push_str(&rest);
            alert.severity = worst.severity;
            return Some(JobMessage { alert, channels, ranks });
        }
        let mut alerts = self.ended.take()?.alerts;
        let of: BTreeSet<u32> = alerts.iter().map(|alert| alert.rank.0).collect();
        // That of the headline, if it is among them.
        let place = alerts.iter().position(|alert| self.headline.as_ref() == Some(&member(alert))).unwrap_or(0);
        let mut alert = alerts.swap_remove(place);
        let channels = self.sent.iter().fold(Channels::default(), |all, sent| all.with(sent.channels));
        alert.severity = self.sent.iter().map(|sent| sent.severity).max().unwrap_or(alert.severity);
        let going_on: BTreeSet<u32> = self.ongoing.iter().map(|(rank, ..)| rank.0).collect();
        let others: Vec<u32> =
            of.into_iter().filter(|rank| *rank != alert.rank.0 && !going_on.contains(rank)).collect();
        if !others.is_empty() {
            alert.message = format!("{}; also back to normal: {}", alert.message, named(&others));
        }
        if !going_on.is_empty() {
            let going_on: Vec<u32> = going_on.into_iter().collect();
            alert.message = format!("{}; alerts of {} are ongoing", alert.message, named(&going_on));
        }
        Some(JobMessage { alert, channels, ranks })
    }

    /// Whether an alert that begins belongs to this incident.
    fn takes(&self, rule: Option<AlertRule>, alert: &Alert) -> bool {
        let step = alert.incident.map_or(alert.step, |incident| incident.step);
        let is_near =
            self.rule == rule && [step, alert.step].iter().any(|step| is_near((self.step, self.latest), *step));
        // After all alerts have ended, a later alert begins another incident; an alert of a rank that is behind does
        // not.
        let is_well = self.ongoing.is_empty() && self.held.is_none() && self.ended.is_some();
        is_near && (!is_well || alert.step <= self.latest || alert.phase == AlertPhase::Ends)
    }

    /// Whether nothing of the incident is left to send.
    fn is_over(&self) -> bool {
        self.ongoing.is_empty() && self.held.is_none() && self.ended.is_none()
    }
}

/// The ongoing incidents of a job, newest last.
#[derive(Debug, Default)]
pub(super) struct JobIncidents(Vec<Open>);

impl JobIncidents {
    /// Adds an alert of a rank that begins or ends. `number` is the number of that rank's message; 0 for rank 0 itself.
    pub(super) fn take(&mut self, sent: SentAlert, number: u64, now: Instant, gathering: Duration) {
        match sent.alert.phase {
            AlertPhase::Begins => {
                // It began and has no end, because the training went back to a checkpoint.
                let of = member(&sent.alert);
                self.0.retain(|open| open.held.is_some() || !open.ongoing.contains(&of));
                self.near(&sent.alert).begin(sent, number, now + gathering);
            }
            AlertPhase::Ends => {
                let of = member(&sent.alert);
                let place = self.0.iter().rposition(|open| open.ongoing.contains(&of));
                let open = match place {
                    Some(place) => &mut self.0[place],
                    None => self.near(&sent.alert),
                };
                open.end(sent, now, gathering);
            }
        }
    }

    /// The incident that an alert belongs to, created if none is near.
    fn near(&mut self, alert: &Alert) -> &mut Open {
        let rule = (!is_of_numbers(alert.rule)).then_some(alert.rule);
        let place = self.0.iter().rposition(|open| open.takes(rule, alert)).unwrap_or_else(|| {
            if self.0.len() >= MOST
                && let Some(oldest) = self.0.iter().position(|open| open.held.is_none() && open.ended.is_none())
            {
                self.0.remove(oldest);
            }
            let step = alert.incident.map_or(alert.step, |incident| incident.step);
            self.0.push(Open::new(rule, step));
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Ends everything of a rank that was restarted, because its ends will never arrive.
    pub(super) fn forget(&mut self, rank: Rank) {
        for open in &mut self.0 {
            open.ongoing.retain(|(of, ..)| *of != rank);
        }
        self.0.retain(|open| !open.is_over());
    }

    /// The messages that are due.
    pub(super) fn due(&mut self, now: Instant) -> Vec<JobMessage> {
        let mut due = Vec::new();
        for open in &mut self.0 {
            while open.next_due().is_some_and(|at| at <= now) {
                due.extend(open.send());
            }
        }
        self.0.retain(|open| !open.is_over());
        due
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.iter().filter_map(Open::next_due).min()
    }

    /// Makes everything due by then.
    pub(super) fn hurry(&mut self, by: Instant) {
        for open in &mut self.0 {
            if let Some(held) = &mut open.held {
                held.until = held.until.min(by);
            }
            if let Some(ended) = &mut open.ended {
                (ended.if_over, ended.at_last) = (ended.if_over.min(by), ended.at_last.min(by));
            }
        }
    }

    /// Removes and returns all messages.
    pub(super) fn flush(&mut self) -> Vec<JobMessage> {
        let mut left = Vec::new();
        for mut open in self.0.drain(..) {
            left.extend(std::iter::from_fn(|| open.send()));
        }
        left
    }

    /// The number of messages left.
    pub(super) fn left(&self) -> u64 {
        self.0.iter().map(|open| u64::from(open.held.is_some()) + u64::from(open.ended.is_some())).sum()
    }

    /// The number of the rank's last message up to which all taken ones were sent.
    pub(super) fn sent_of(&self, rank: Rank, taken: u64) -> u64 {
        let held = self.0.iter().filter_map(|open| open.held.as_ref()).flat_map(|held| &held.numbers);
        held.filter(|(of, _)| *of == rank).map(|(_, number)| number - 1).fold(taken, u64::min)
    }
}

/// `rank 3`, `ranks 3, 4 and 12 more`.
fn named(ranks: &[u32]) -> String {
    let listed: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    match (ranks.len().saturating_sub(NAMED), listed.split_last()) {
        (0, Some((last, first))) if !first.is_empty() => format!("ranks {} and {last}", first.join(", ")),
        (0, _) => format!("rank {}", listed.join(", ")),
        (more, _) => format!("ranks {} and {more} more", listed.join(", ")),
    }
}
