//! Captures requested on any rank: all ranks capture the same steps.

use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, Rank as RankNumber, Step,
};

use super::Job;
use crate::captures::CaptureSchedule;
use crate::leader::LeaderEvent;
use crate::progress::Stage;

#[test]
fn an_alert_wakes_whoever_agrees_on_captures() {
    let schedule = CaptureSchedule::default();
    schedule.ask_by_alert(&alert(8), false);
    let woken = schedule.wakes();
    assert!(woken.try_recv().is_err(), "without a listener, the next poll finds it");
    schedule.ask_by_alert(&alert(9), false);
    schedule.ask_by_alert(&alert(10), false);
    assert!(woken.try_recv().is_ok() && woken.try_recv().is_err(), "once for both");
    assert!(schedule.wakes().try_recv().is_err());
}

fn alert(step: u64) -> Alert {
    Alert {
        rule: AlertRule::NonFinite,
        severity: AlertSeverity::Critical,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(step),
        rank: RankNumber(1),
        time: std::time::SystemTime::UNIX_EPOCH,
        series: AlertSeries::global(AlertSignal::Loss, None),
        value: f64::NAN,
        expected: Expectation::default(),
        message: "loss is NaN".to_owned(),
        moved_first: None,
        incident: None,
    }
}

#[test]
fn captures_are_of_the_same_steps_on_every_rank_and_stand_one_behind_the_other() {
    let mut job = Job::new(3);
    let speeds = [1, 4, 2];
    // Two at once, before the pace of the training is known, and a change that need not wait for them.
    job.capture(1, None, 2);
    job.capture(2, None, 3);
    job.set_interval(3, 7);
    job.tenths(3_000, &speeds);
    let captured = job.captured();
    let numbers: Vec<u64> = captured.iter().map(|(_, id)| *id).collect();
    assert_eq!(numbers, [1, 1, 2, 2, 2]);
    assert!(captured.windows(2).all(|pair| pair[0].0 < pair[1].0), "{captured:?}");
    assert_eq!([1, 2, 3].map(|id| job.stage(id)), [Stage::Switched; 3]);
    assert!(job.first_steps_with(7).iter().all(Option::is_some));
    let states = serde_json::to_value(job.ranks[0].live.captures().states()).unwrap();
    assert_eq!(states[1]["ranks_done"], serde_json::json!([1, 2]));
    // What is measured is as it was: a capture brings no plan.
    assert!(job.ranks.iter().all(|rank| rank.live.version() == 1));
}

#[test]
fn a_step_that_is_named_far_ahead_keeps_nobody_waiting_and_one_that_is_past_is_refused() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.capture(1, Some(2_000), 1);
    job.set_interval(2, 7);
    job.tenths(600, &[1, 1]);
    assert_eq!((job.stage(1), job.stage(2)), (Stage::Switched, Stage::Switched));
    job.capture(3, Some(100), 1);
    job.capture(4, Some(632), 1);
    job.capture(5, Some(2_000), 1);
    job.tenths(1_500, &[1, 1]);
    assert_eq!(job.captured(), [(2_000, 1)]);
    assert_eq!([3, 4, 5].map(|id| job.stage(id)), [Stage::Withdrawn; 3]);
}

#[test]
fn a_capture_far_ahead_keeps_no_alert_from_its_own() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.capture(77, Some(2_000), 1);
    job.tenths(100, &[1, 1]);
    job.ranks[1].live.captures().ask_by_alert(&alert(9), false);
    job.tenths(300, &[1, 1]);
    assert_eq!(job.captured().len(), 1);
    job.tenths(2_000, &[1, 1]);
    assert_eq!(job.captured().last(), Some(&(2_000, 77)));
}

#[test]
fn a_signal_or_an_alert_of_any_rank_is_one_capture_of_all_within_the_limits() {
    let mut job = Job::new(3);
    let speeds = [1, 1, 1];
    job.tenths(30, &speeds);
    job.ranks[2].live.captures().ask_by_signal();
    job.ranks[0].live.captures().ask_by_signal();
    job.tenths(200, &speeds);
    assert_eq!(job.captured().len(), 1);
    // Too soon for an alert, which is said once; not for a signal.
    for _ in 0..2 {
        job.ranks[1].live.captures().ask_by_alert(&alert(9), false);
        job.tenths(100, &speeds);
    }
    let declined = job.said.iter().filter(|said| matches!(said, LeaderEvent::Declined { .. })).count();
    assert_eq!((job.captured().len(), declined), (1, 1));
    job.tenths(1_000, &speeds);
    job.ranks[1].live.captures().ask_by_alert(&alert(1_300), false);
    job.tenths(200, &speeds);
    assert_eq!(job.captured().len(), 2);
    let states = serde_json::to_value(job.ranks[2].live.captures().states()).unwrap();
    // An alert has numbers that equal nothing: what was put up is not put up again and again.
    assert!(job.contents().leader_states.len() < 20, "{}", job.contents().leader_states.len());
    assert!(states[1]["what"].as_str().unwrap().contains("NonFinite at step 1300 on rank 1"), "{states}");
    for _ in 0..3 {
        job.ranks[0].live.captures().ask_by_signal();
        job.tenths(200, &speeds);
    }
    assert_eq!(job.captured().len(), 3, "as many as a run may have");
}

/// The capture that a rank knows last: its first step, and the step that is run again.
fn replayed(job: &Job) -> Vec<Option<u64>> {
    let captures = job.ranks.iter().map(|rank| rank.replayed.last().copied());
    captures.collect()
}

#[test]
fn a_step_that_every_rank_keeps_is_held_from_the_proposal_on_and_run_again_on_all() {
    let mut job = Job::new(3);
    job.keep_steps(6);
    job.tenths(30, &[1, 1, 1]);
    let step = job.ranks[1].live.step().0 - 1;
    job.ranks[1].live.captures().ask_by_alert(&alert(step), true);
    job.tenths(200, &[1, 1, 1]);
    assert_eq!(replayed(&job), [Some(step); 3]);
    assert_eq!(job.captured().len(), 1);
    // Two seconds of lead are many more steps than are kept.
    assert!(job.captured()[0].0 > step + 10, "{:?}", job.captured());
}

#[test]
fn a_step_that_one_rank_does_not_keep_is_run_again_on_none_and_the_next_is_captured() {
    let mut job = Job::new(3);
    job.keep_steps(3);
    job.ranks[2].kept = 0;
    job.tenths(30, &[1, 1, 1]);
    let step = job.ranks[1].live.step().0 - 1;
    job.ranks[1].live.captures().ask_by_alert(&alert(step), true);
    job.tenths(200, &[1, 1, 1]);
    assert_eq!((replayed(&job), job.captured().len()), (vec![None; 3], 1));
    assert!(job.captured()[0].0 < step + 20, "an alert's capture does not wait two seconds: {:?}", job.captured());
}

#[test]
fn a_rank_that_learns_of_a_capture_too_late_tells_and_the_others_capture() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.capture(1, None, 1);
    for _ in 0..300 {
        // It answers the proposal, then sleeps past the step that is agreed upon.
        let answered = job.contents().rank_states.get(&1).is_some_and(|rank_state| rank_state.contains(r#""heard":1"#));
        let is_past = job.ranks[0].live.step().0 > 120;
        job.tenth(&[1, 1], |rank| rank == 0 || !answered || is_past);
    }
    assert_eq!((job.ranks[0].captured.len(), job.ranks[1].captured.len()), (1, 0));
    let states = serde_json::to_value(job.ranks[0].live.captures().states()).unwrap();
    assert_eq!((&states[0]["stage"], &states[0]["ranks_failed"]), (&"done".into(), &serde_json::json!([1])));
}
