//! The root cause of each rule's latest incident, for metrics.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Alert, AlertPhase, AlertRule, AlertScope, AlertSeries, Step};

/// How long a mark stays visible after its alerts end: the look-back of alerting rules, plus one scrape.
const SHOWN: Duration = Duration::from_mins(15);

/// The root cause in the latest incident of a rule. Without a root cause, the alert's own series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMark {
    /// The step in which it left its usual range.
    pub step: Step,
    /// The position in the order of a step: [`AlertSignal::place_in_step`](crate::AlertSignal::place_in_step).
    pub place: usize,
    /// The quantity in words.
    pub signal: String,
    /// The layer; empty for a quantity of the whole run.
    pub layer: String,
    /// The tensor, or the name of the number that the script logs. Empty if none stands out.
    pub name: String,
}

impl AlertMark {
    /// A number that orders the marks of several ranks: the step, with the position in the step as fraction.
    pub fn order(&self) -> f64 {
        self.step.0 as f64 + self.place as f64 / 100.0
    }

    fn of(alert: &Alert) -> Self {
        let series = &alert.series;
        let (step, place) = alert.first_place();
        let Some(first) = &alert.moved_first else {
            let is_tensor = series.scope == AlertScope::Tensor;
            return Self {
                step,
                place,
                signal: series.signal.words().to_owned(),
                layer: series.layer.clone().unwrap_or_default(),
                name: if is_tensor { series.name.clone() } else { String::new() },
            };
        };
        let (words, side) = first.words();
        let signal = format!("{words}{side}");
        let name = first.tensor.clone().unwrap_or_default();
        Self { step, place, signal, layer: first.layer.clone(), name }
    }
}

#[derive(Debug)]
struct Shown {
    mark: AlertMark,
    /// The step that identifies the incident; for an alert without incident, its own step.
    incident: Step,
    /// The series of the rule's ongoing, reported alerts in this incident.
    ongoing: HashSet<AlertSeries>,
    over: Option<Instant>,
}

/// The marks of a rank, at most one per rule.
#[derive(Debug, Default)]
pub struct AlertMarks(Mutex<BTreeMap<AlertRule, Shown>>);

impl AlertMarks {
    /// Records an alert that begins or ends.
    pub fn take(&self, alert: &Alert, now: Instant) {
        let mut shown = self.0.lock();
        // An alert without incident counts as an incident of its own.
        let incident = alert.incident.map(|incident| incident.step);
        if alert.phase == AlertPhase::Ends {
            if let Some(one) = shown.get_mut(&alert.rule)
                && one.ongoing.remove(&alert.series)
                && one.ongoing.is_empty()
            {
                one.over = Some(now);
            }
            return;
        }
        let step = incident.unwrap_or(alert.step);
        match shown.get_mut(&alert.rule) {
            Some(one) if one.incident == step => {
                one.ongoing.insert(alert.series.clone());
                one.over = None;
            }
            _ => {
                let (mark, ongoing) = (AlertMark::of(alert), HashSet::from([alert.series.clone()]));
                shown.insert(alert.rule, Shown { mark, incident: step, ongoing, over: None });
            }
        }
    }

    /// Ends all alerts of an incident, including those that were not reported individually.
    pub fn incident_over(&self, incident: Step, now: Instant) {
        let mut shown = self.0.lock();
        for one in shown.values_mut().filter(|one| one.incident == incident && one.over.is_none()) {
            one.ongoing.clear();
            one.over = Some(now);
        }
    }

    /// Returns the visible marks by rule.
    pub fn now(&self, now: Instant) -> Vec<(AlertRule, AlertMark)> {
        let shown = self.0.lock();
        let is_shown = |one: &Shown| one.over.is_none_or(|over| now.saturating_duration_since(over) < SHOWN);
        shown.iter().filter(|(_, one)| is_shown(one)).map(|(rule, one)| (*rule, one.mark.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{AlertSeverity, AlertSignal, Expectation, FirstMove, Incident, Kind, Rank};

    fn alert(rule: AlertRule, phase: AlertPhase, step: u64, incident: Option<u64>) -> Alert {
        Alert {
            rule,
            severity: AlertSeverity::Warning,
            phase,
            findings: 1,
            step: Step(step),
            rank: Rank(1),
            time: SystemTime::UNIX_EPOCH,
            series: AlertSeries::global(AlertSignal::Loss, None),
            value: 9.0,
            expected: Expectation::default(),
            message: String::new(),
            moved_first: None,
            incident: incident.map(|step| Incident { step: Step(step), headline: true }),
        }
    }

    fn steps(marks: &AlertMarks, now: Instant) -> Vec<(AlertRule, u64)> {
        marks.now(now).into_iter().map(|(rule, mark)| (rule, mark.step.0)).collect()
    }

    #[test]
    fn a_rule_shows_its_latest_incident_until_some_time_after_its_end() {
        use AlertPhase::{Begins, Ends};
        use AlertRule::{NonFinite, Spike};
        let (marks, start) = (AlertMarks::default(), Instant::now());
        let of = |name: &str, phase, step, incident| {
            let series = AlertSeries { name: name.to_owned(), ..AlertSeries::global(AlertSignal::Loss, None) };
            Alert { series, ..alert(Spike, phase, step, Some(incident)) }
        };
        marks.take(&of("a", Begins, 300, 300), start);
        marks.take(&of("b", Begins, 304, 300), start);
        marks.take(&alert(NonFinite, Begins, 304, Some(300)), start);
        assert_eq!(steps(&marks, start), [(Spike, 300), (NonFinite, 304)]);
        marks.take(&of("a", Ends, 310, 300), start);
        // An end whose beginning was not told is nobody's.
        marks.take(&of("c", Ends, 310, 300), start);
        assert_eq!(steps(&marks, start + 2 * SHOWN).len(), 2, "one of them goes on");
        marks.take(&of("b", Ends, 314, 300), start);
        assert_eq!(steps(&marks, start + SHOWN / 2).len(), 2);
        assert_eq!(steps(&marks, start + SHOWN), [(NonFinite, 304)]);
        marks.take(&of("a", Begins, 900, 900), start);
        assert_eq!(steps(&marks, start), [(Spike, 900), (NonFinite, 304)]);
        marks.incident_over(Step(300), start);
        assert_eq!(steps(&marks, start + SHOWN), [(Spike, 900)]);
        marks.incident_over(Step(900), start);
        assert_eq!(steps(&marks, start + SHOWN), []);
    }

    #[test]
    fn what_moved_first_is_marked_and_earlier_in_a_step_is_lower() {
        let (marks, now) = (AlertMarks::default(), Instant::now());
        let first = FirstMove {
            step: Step(299),
            signal: AlertSignal::Grad,
            layer: "h.1".into(),
            tensor: Some("h.1.fc.weight".into()),
            value: f64::NAN,
            expected: 1.0,
            before_reduction: true,
        };
        let after = FirstMove { signal: AlertSignal::Kind(Kind::GradReduced), ..first.clone() };
        let of = |first: FirstMove| Alert {
            moved_first: Some(first),
            ..alert(AlertRule::NonFinite, AlertPhase::Begins, 300, None)
        };
        marks.take(&of(first), now);
        let (_, before) = marks.now(now).remove(0);
        assert_eq!((before.step, before.signal.as_str()), (Step(299), "gradient before reduction"));
        assert_eq!((before.layer.as_str(), before.name.as_str()), ("h.1", "h.1.fc.weight"));
        let after = AlertMark::of(&of(after));
        assert_eq!(after.signal, "gradient after reduction");
        assert!(before.order() < after.order() && after.order() < 299.5);
    }
}
