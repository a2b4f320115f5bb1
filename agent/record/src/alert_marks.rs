//! Where each rule's latest incident began: for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Alert, AlertPhase, AlertRule, AlertScope, AlertSignal, Kind, Step};

/// How long a mark is shown after its alerts are over: as long as alerting rules look back, and one scrape more.
const SHOWN: Duration = Duration::from_mins(15);

/// What moved first in the latest incident of a rule; the alert's own series where nothing moved before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMark {
    /// The step in which it moved.
    pub step: Step,
    /// Its place in the order of a step: [`AlertSignal::place_in_step`].
    pub place: usize,
    /// The quantity in words.
    pub signal: String,
    /// The layer; empty for what is of the whole run.
    pub layer: String,
    /// The tensor, or the number that the script told under this name; empty where none stands out.
    pub name: String,
}

impl AlertMark {
    /// Orders marks of several ranks: the step, and behind the point the place within it.
    pub fn order(&self) -> f64 {
        self.step.0 as f64 + self.place as f64 / 100.0
    }

    fn of(alert: &Alert) -> Self {
        let series = &alert.series;
        let Some(first) = &alert.moved_first else {
            let is_tensor = series.scope == AlertScope::Tensor;
            return Self {
                step: alert.step,
                place: series.signal.place_in_step(),
                signal: series.signal.words().to_owned(),
                layer: series.layer.clone().unwrap_or_default(),
                name: if is_tensor { series.name.clone() } else { String::new() },
            };
        };
        let signal = match first.signal {
            AlertSignal::Kind(Kind::GradReduced) => "gradient after reduction".to_owned(),
            AlertSignal::Grad if first.before_reduction => "gradient before reduction".to_owned(),
            signal => signal.words().to_owned(),
        };
        let name = first.tensor.clone().unwrap_or_default();
        Self { step: first.step, place: first.signal.place_in_step(), signal, layer: first.layer.clone(), name }
    }
}

#[derive(Debug)]
struct Shown {
    mark: AlertMark,
    /// The step that names its incident; its own for one that stands alone.
    incident: Step,
    /// Alerts of the rule in this incident that go on.
    ongoing: u64,
    over: Option<Instant>,
}

/// The marks of a rank: one for each rule at most.
#[derive(Debug, Default)]
pub struct AlertMarks(Mutex<BTreeMap<AlertRule, Shown>>);

impl AlertMarks {
    /// Takes an alert that begins or is over.
    pub fn take(&self, alert: &Alert, now: Instant) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let incident = alert.incident.map(|incident| incident.step);
        if alert.phase == AlertPhase::Ends {
            let of_this = |one: &&mut Shown| incident.is_none_or(|step| step == one.incident);
            if let Some(one) = shown.get_mut(&alert.rule).filter(of_this) {
                one.ongoing = one.ongoing.saturating_sub(1);
                one.over = (one.ongoing == 0).then_some(now);
            }
            return;
        }
        let step = incident.unwrap_or(alert.step);
        match shown.get_mut(&alert.rule) {
            Some(one) if one.incident == step => {
                (one.ongoing, one.over) = (one.ongoing + 1, None);
            }
            _ => {
                let mark = AlertMark::of(alert);
                shown.insert(alert.rule, Shown { mark, incident: step, ongoing: 1, over: None });
            }
        }
    }

    /// The marks that are shown now, by rule.
    pub fn now(&self, now: Instant) -> Vec<(AlertRule, AlertMark)> {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = |one: &Shown| one.over.is_none_or(|over| now.saturating_duration_since(over) < SHOWN);
        shown.iter().filter(|(_, one)| is_shown(one)).map(|(rule, one)| (*rule, one.mark.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{AlertSeries, AlertSeverity, Expectation, FirstMove, Incident, Rank};

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
        marks.take(&alert(Spike, Begins, 300, Some(300)), start);
        marks.take(&alert(Spike, Begins, 304, Some(300)), start);
        marks.take(&alert(NonFinite, Begins, 304, Some(300)), start);
        assert_eq!(steps(&marks, start), [(Spike, 300), (NonFinite, 304)]);
        marks.take(&alert(Spike, Ends, 310, Some(300)), start);
        assert_eq!(steps(&marks, start + 2 * SHOWN).len(), 2, "one of them goes on");
        marks.take(&alert(Spike, Ends, 314, Some(300)), start);
        assert_eq!(steps(&marks, start + SHOWN / 2).len(), 2);
        assert_eq!(steps(&marks, start + SHOWN), [(NonFinite, 304)]);
        marks.take(&alert(Spike, Begins, 900, Some(900)), start);
        assert_eq!(steps(&marks, start), [(Spike, 900), (NonFinite, 304)]);
        marks.take(&alert(Spike, Ends, 901, Some(300)), start);
        assert_eq!(steps(&marks, start + SHOWN)[0], (Spike, 900), "the end of an older one");
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
