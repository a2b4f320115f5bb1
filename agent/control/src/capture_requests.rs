//! Rank 0's decisions about capture requests: which are accepted, and for which step.

use std::collections::BTreeMap;
use std::time::SystemTime;

use trainmon_core::Step;
use trainmon_core::config::{CaptureOnDemand, CaptureOrder, CaptureRequest, Config};

use super::change_request::{CaptureWanted, Change, ChangeIds, ChangeRequest};
use super::members::Members;
use crate::captures::{AgreedCapture, AskedBy, CaptureSchedule};

/// The number of bytes in a MiB.
const MIB: u64 = 1 << 20;

/// A capture that begins within this many steps also covers a signal or an alert, because agreeing on another one takes
/// as long.
const NEAR: u64 = 10;

/// A declined capture that was not requested by hand, with the reason.
pub(super) struct Declined {
    pub(super) what: String,
    pub(super) why: String,
}

/// Decides about requests for captures.
#[derive(Default)]
pub(super) struct CaptureRequests {
    /// `None` if captures are disabled.
    config: Option<CaptureOnDemand>,
    /// The capture that a signal or an alert requests.
    usual: Option<CaptureOrder>,
    /// The request from the config at the start.
    initial: Option<CaptureOrder>,
    numbers: ChangeIds,
    /// The last request of each other rank: the rank's session, and the request's number.
    seen: BTreeMap<u32, (String, u64)>,
    /// The first step and the end (exclusive) of agreed captures that are not over, in order.
    busy: Vec<(u64, u64)>,
    /// The end (exclusive) of the last capture that has begun.
    last_end: Option<u64>,
    /// Whether the limits on captures by alerts were already reported: their distance and their number.
    is_distance_told: bool,
    is_budget_told: bool,
}

impl CaptureRequests {
    pub(super) fn new(config: &Config, numbers: ChangeIds) -> Self {
        let on = config.capture.clone();
        // Both were checked with the config.
        let order = |request: &CaptureRequest| on.as_ref().and_then(|on| on.order(request, "capture").ok());
        let initial = on.as_ref().and_then(|on| on.request.as_ref()).and_then(order);
        let usual = order(&CaptureRequest::default());
        Self { usual, initial, numbers, config: on, ..Self::default() }
    }

    /// Schedules the capture of the config in a single process, which needs no agreement.
    pub(super) fn schedule_initial(&mut self, step: Step, schedule: &CaptureSchedule) {
        let Some(order) = self.initial.clone().filter(|order| order.at.is_none_or(|at| at >= step.0)) else { return };
        self.initial = None;
        let first = order.at.unwrap_or(step.0 + 1);
        let (id, asked_at_ms) = (self.numbers.next(), now_ms());
        let (asked, asked_at_step) = (AskedBy::Config, step.0);
        let capture =
            AgreedCapture { id, first, order, asked, asked_at_step, asked_at_ms, may_shift: false, replay: None };
        self.is_agreed(&capture);
        schedule.count_agreed();
        schedule.schedule(&capture, step);
    }

    /// The next request of a rank's signal or alert, or of the config. `is_open`: a capture is being agreed on. A
    /// declined request is reported once.
    pub(super) fn next(
        &mut self,
        step: u64,
        schedule: &CaptureSchedule,
        members: &Members,
        is_open: bool,
    ) -> (Option<ChangeRequest>, Option<Declined>) {
        let begun = self.busy.iter().filter(|&&(first, _)| first <= step).map(|&(_, end)| end).max();
        self.last_end = self.last_end.max(begun);
        self.busy.retain(|&(_, end)| end > step);
        let initial = if schedule.is_offered() { self.initial.take() } else { None };
        if let Some(order) = initial {
            return (Some(self.request(order, AskedBy::Config, step)), None);
        }
        let Some(asked) = schedule.take_asked(0).or_else(|| self.asked_elsewhere(members)) else { return (None, None) };
        // Several ranks detect the same fault, or receive the same signal: one capture serves all of them.
        let is_near = |&(first, _): &(u64, u64)| first <= step.saturating_add(NEAR);
        if is_open || self.busy.iter().any(is_near) {
            return (None, None);
        }
        let Some(order) = self.usual.clone() else { return (None, None) };
        match self.why_not(&order, &asked, step, schedule) {
            None => (Some(self.request(order, asked, step)), None),
            Some((told, why)) => {
                let is_new = !std::mem::replace(told, true);
                let what = format!("a capture requested by {asked}");
                (None, is_new.then_some(Declined { what, why }))
            }
        }
    }

    /// Creates a change request for a capture.
    pub(super) fn request(&self, order: CaptureOrder, asked: AskedBy, step: u64) -> ChangeRequest {
        request(self.numbers.next(), order, asked, step)
    }

    fn asked_elsewhere(&mut self, members: &Members) -> Option<AskedBy> {
        let mut found = None;
        for (rank, rank_state) in members.rank_states() {
            let Some(wanted) = &rank_state.wants_capture else { continue };
            let key = (rank_state.word.clone(), wanted.number);
            if self.seen.get(&rank) != Some(&key) {
                self.seen.insert(rank, key);
                found.get_or_insert_with(|| wanted.asked.clone());
            }
        }
        found
    }

    fn why_not(
        &mut self,
        order: &CaptureOrder,
        asked: &AskedBy,
        step: u64,
        schedule: &CaptureSchedule,
    ) -> Option<(&mut bool, String)> {
        if let Err(why) = self.check(order, step, schedule) {
            return Some((&mut self.is_budget_told, why));
        }
        let distance = self.config.as_ref().map_or(0, |config| config.min_distance);
        let next = self.last_end.map_or(0, |end| end.saturating_add(distance));
        let is_alert = matches!(asked, AskedBy::Alert { .. });
        let why = || format!("no capture by an alert before step {next}, because `capture.min_distance` is {distance}");
        (is_alert && step < next).then(|| (&mut self.is_distance_told, why()))
    }

    /// Checks whether a request can be accepted.
    ///
    /// # Errors
    /// The reason if it cannot.
    pub(super) fn check(&self, order: &CaptureOrder, step: u64, schedule: &CaptureSchedule) -> Result<(), String> {
        check(self.config.as_ref(), order, step, schedule)
    }

    /// The first step to capture, if every rank knows about it at step `known`.
    ///
    /// # Errors
    /// The requested step is over by then, or belongs to another capture.
    pub(super) fn first_step(&self, order: &CaptureOrder, known: u64) -> Result<u64, String> {
        let steps = u64::from(order.steps);
        if let Some(at) = order.at {
            if at < known {
                return Err(format!("step {at} is over before all ranks can agree, at step {known}"));
            }
            let other = self.busy.iter().find(|&&(first, end)| at < end && first < at.saturating_add(steps));
            return match other {
                Some((first, end)) => {
                    Err(format!("steps {first} to {} are already being captured", end.saturating_sub(1)))
                }
                None => Ok(at),
            };
        }
        let mut first = known;
        for &(busy, end) in &self.busy {
            if first.saturating_add(steps) > busy {
                first = first.max(end);
            }
        }
        Ok(first)
    }

    /// Records an agreed capture.
    pub(super) fn is_agreed(&mut self, capture: &AgreedCapture) {
        self.busy.push((capture.first, capture.end()));
        self.busy.sort_unstable();
    }
}

/// Creates a change request for a capture.
pub(super) fn request(id: u64, order: CaptureOrder, asked: AskedBy, step: u64) -> ChangeRequest {
    let time_ms = now_ms();
    let what = format!("dump {}, requested by {asked}", order.in_words());
    ChangeRequest { id, what, change: Change::Capture(Box::new(CaptureWanted { order, asked, step, time_ms })) }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Checks whether a capture is possible at `step`.
///
/// # Errors
/// The reason if it is not.
pub(super) fn check(
    config: Option<&CaptureOnDemand>,
    order: &CaptureOrder,
    step: u64,
    schedule: &CaptureSchedule,
) -> Result<(), String> {
    let Some(config) = config else { return Err("captures are disabled (`capture.enabled`)".to_owned()) };
    if !schedule.is_offered() {
        return Err("this front does not support captures".to_owned());
    }
    if let Some(at) = order.at.filter(|&at| at <= step) {
        return Err(format!("step {at} has already begun: the current step is {step}"));
    }
    if schedule.agreed() >= config.max_captures {
        return Err(format!(
            "the run has reached its limit of captures: {} (`capture.max_captures`)",
            config.max_captures
        ));
    }
    if schedule.bytes() / MIB >= config.budget_mib {
        return Err(format!(
            "the run's captures have reached their limit of {} MiB (`capture.budget_mib`)",
            config.budget_mib
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(at: Option<u64>, steps: u32) -> CaptureOrder {
        let request = CaptureRequest { at, steps: Some(steps), ..CaptureRequest::default() };
        CaptureOnDemand::default().order(&request, "test").unwrap()
    }

    fn agreed(first: u64, steps: u32) -> AgreedCapture {
        let order = order(None, steps);
        AgreedCapture::by_hand(1, first, order)
    }

    #[test]
    fn captures_stand_one_behind_the_other_and_a_step_that_is_named_is_kept_or_refused() {
        let mut requests = CaptureRequests::default();
        assert_eq!(requests.first_step(&order(None, 2), 7), Ok(7));
        requests.is_agreed(&agreed(7, 2));
        assert_eq!(requests.first_step(&order(None, 2), 7), Ok(9));
        assert_eq!(requests.first_step(&order(None, 2), 5), Ok(5));
        requests.is_agreed(&agreed(20, 5));
        assert_eq!(requests.first_step(&order(None, 30), 5), Ok(25));
        assert_eq!(requests.first_step(&order(Some(10), 3), 8), Ok(10));
        for (at, words) in [(18, "steps 20 to 24"), (24, "steps 20 to 24"), (7, "step 7 is over")] {
            let refused = requests.first_step(&order(Some(at), 3), 8).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn what_cannot_be_followed_says_why() {
        let (schedule, config) =
            (CaptureSchedule::default(), CaptureOnDemand { max_captures: 1, ..Default::default() });
        let why = |config, at| check(config, &order(at, 1), 9, &schedule).unwrap_err();
        assert!(why(None, None).contains("captures are disabled"));
        assert!(why(Some(&config), None).contains("this front"));
        schedule.offer();
        assert!(why(Some(&config), Some(9)).contains("current step is 9"));
        assert_eq!(check(Some(&config), &order(Some(10), 1), 9, &schedule), Ok(()));
        schedule.count_agreed();
        assert!(why(Some(&config), None).contains("its limit of captures: 1 ("));
    }
}
