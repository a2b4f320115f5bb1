//! Rank 0's part in captures: which requests are followed, and at which step.

use std::collections::BTreeMap;
use std::time::SystemTime;

use trainmon_core::Step;
use trainmon_core::config::{CaptureOnDemand, CaptureOrder, CaptureRequest, Config};

use super::change_request::{CaptureWanted, Change, ChangeIds, ChangeRequest};
use super::members::Members;
use crate::captures::{AgreedCapture, AskedBy, CaptureSchedule};

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// A capture that begins within so many steps is that of a signal or an alert too: agreeing on another one takes as long.
const NEAR: u64 = 10;

/// A capture that nobody ordered by hand, and why it is not made.
pub(super) struct Declined {
    pub(super) what: String,
    pub(super) why: String,
}

/// Decides on requests for captures.
#[derive(Default)]
pub(super) struct CaptureRequests {
    /// `None`: captures are off.
    config: Option<CaptureOnDemand>,
    /// What a signal or an alert asks for.
    usual: Option<CaptureOrder>,
    /// The request that the training was started with.
    initial: Option<CaptureOrder>,
    numbers: ChangeIds,
    /// What the other ranks asked for last: their words, and their numbers.
    seen: BTreeMap<u32, (String, u64)>,
    /// First and one past last step of captures agreed upon that are not over, in order.
    busy: Vec<(u64, u64)>,
    /// One past the last step of any that has begun.
    last_end: Option<u64>,
    /// Whether the user was told that an alert captures nothing so soon, and nothing any more.
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

    /// A process of its own needs nobody's word: what its config asks for is known before the first step.
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

    /// The next thing that a rank's signal or alert, or the config of the start, asks for. `is_open`: a capture is being
    /// agreed upon. What is not followed is said, once.
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
        // Several ranks find the same, and get the same signal: one capture is all of theirs.
        let is_near = |&(first, _): &(u64, u64)| first <= step.saturating_add(NEAR);
        if is_open || self.busy.iter().any(is_near) {
            return (None, None);
        }
        let Some(order) = self.usual.clone() else { return (None, None) };
        match self.why_not(&order, &asked, step, schedule) {
            None => (Some(self.request(order, asked, step)), None),
            Some((told, why)) => {
                let is_news = !std::mem::replace(told, true);
                let what = format!("a capture asked for by {asked}");
                (None, is_news.then_some(Declined { what, why }))
            }
        }
    }

    /// A request in the making.
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
        let why = || format!("alerts capture nothing before step {next}: `capture.min_distance` is {distance}");
        (is_alert && step < next).then(|| (&mut self.is_distance_told, why()))
    }

    /// Whether a request can be followed at all.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self, order: &CaptureOrder, step: u64, schedule: &CaptureSchedule) -> Result<(), String> {
        check(self.config.as_ref(), order, step, schedule)
    }

    /// The first step captured, where every rank knows of it when `known` begins.
    ///
    /// # Errors
    /// The step that was named is over then, or another capture has it.
    pub(super) fn first_step(&self, order: &CaptureOrder, known: u64) -> Result<u64, String> {
        let steps = u64::from(order.steps);
        if let Some(at) = order.at {
            if at < known {
                return Err(format!("step {at} is over before every rank knows of it, at step {known}"));
            }
            let other = self.busy.iter().find(|&&(first, end)| at < end && first < at.saturating_add(steps));
            return match other {
                Some((first, end)) => Err(format!("steps {first} to {} are captured already", end.saturating_sub(1))),
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

    /// A capture is agreed upon.
    pub(super) fn is_agreed(&mut self, capture: &AgreedCapture) {
        self.busy.push((capture.first, capture.end()));
        self.busy.sort_unstable();
    }
}

/// A request for a capture, to be agreed upon.
pub(super) fn request(id: u64, order: CaptureOrder, asked: AskedBy, step: u64) -> ChangeRequest {
    let time_ms = now_ms();
    let what = format!("dump {}, asked for by {asked}", order.in_words());
    ChangeRequest { id, what, change: Change::Capture(Box::new(CaptureWanted { order, asked, step, time_ms })) }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a capture can be followed at `step`.
///
/// # Errors
/// Why not.
pub(super) fn check(
    config: Option<&CaptureOnDemand>,
    order: &CaptureOrder,
    step: u64,
    schedule: &CaptureSchedule,
) -> Result<(), String> {
    let Some(config) = config else { return Err("captures are switched off (`capture.enabled`)".to_owned()) };
    if !schedule.is_offered() {
        return Err("this front does not capture".to_owned());
    }
    if let Some(at) = order.at.filter(|&at| at <= step) {
        return Err(format!("step {at} has begun or is over: the step in progress is {step}"));
    }
    if schedule.agreed() >= config.max_captures {
        return Err(format!("the run has had its {} captures (`capture.max_captures`)", config.max_captures));
    }
    if schedule.bytes() / MIB >= config.budget_mib {
        return Err(format!("the run's captures have filled their {} MiB (`capture.budget_mib`)", config.budget_mib));
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
        assert!(why(None, None).contains("switched off"));
        assert!(why(Some(&config), None).contains("this front"));
        schedule.offer();
        assert!(why(Some(&config), Some(9)).contains("step in progress is 9"));
        assert_eq!(check(Some(&config), &order(Some(10), 1), 9, &schedule), Ok(()));
        schedule.count_agreed();
        assert!(why(Some(&config), None).contains("its 1 captures"));
    }
}
