//! When captures are due, and how they end.

use trainmon_core::config::{CaptureOnDemand, CaptureRequest};

use super::*;

fn capture(id: u64, first: u64, steps: u32) -> AgreedCapture {
    let request = CaptureRequest { steps: Some(steps), ..CaptureRequest::default() };
    let order = CaptureOnDemand::default().order(&request, "test").unwrap();
    AgreedCapture::by_hand(id, first, order)
}

fn due(schedule: &CaptureSchedule, step: u64) -> Option<u64> {
    schedule.due(Step(step)).map(|capture| capture.id)
}

#[test]
fn a_capture_is_due_in_each_of_its_steps_and_in_no_other() {
    let schedule = CaptureSchedule::default();
    assert_eq!(due(&schedule, 0), None);
    schedule.schedule(&capture(2, 9, 1), Step(1));
    schedule.schedule(&capture(1, 5, 2), Step(1));
    let found: Vec<_> = (0..12).map(|step| due(&schedule, step)).collect();
    let expected =
        (0..12).map(|step| if step == 9 { Some(2) } else { (5..7).contains(&step).then_some(1) }).collect::<Vec<_>>();
    assert_eq!(found, expected);
    assert!(schedule.states().iter().all(|state| state.stage == CaptureStage::Failed), "nobody captured");
}

#[test]
fn a_rank_that_is_late_captures_what_is_left_and_tells_where_nothing_is() {
    let schedule = CaptureSchedule::default();
    schedule.schedule(&capture(1, 5, 3), Step(6));
    assert_eq!((due(&schedule, 6), due(&schedule, 7)), (Some(1), Some(1)));
    schedule.begin(1, "captures/step6/rank0".into());
    schedule.end(1, None);
    assert_eq!(
        (due(&schedule, 8), schedule.ended().last().copied()),
        (None, Some(Captured { id: 1, is_whole: false }))
    );
    schedule.schedule(&capture(2, 5, 3), Step(8));
    assert_eq!(schedule.ended().last().copied(), Some(Captured { id: 2, is_whole: false }));
}

#[test]
fn the_only_rank_takes_a_later_step_where_none_was_named() {
    let schedule = CaptureSchedule::default();
    schedule.schedule(&AgreedCapture { may_shift: true, ..capture(1, 5, 2) }, Step(9));
    assert_eq!([8, 9, 10, 11].map(|step| due(&schedule, step)), [None, Some(1), Some(1), None]);
}

#[test]
fn what_is_captured_is_seen_in_the_state() {
    let schedule = CaptureSchedule::default();
    schedule.schedule(&capture(1, 5, 1), Step(0));
    assert_eq!(due(&schedule, 5), Some(1));
    schedule.begin(1, "captures/step5/rank0".into());
    assert_eq!(schedule.states()[0].stage, CaptureStage::Running);
    schedule.end_step(1, 70);
    schedule.end(1, None);
    schedule.note_rank(3, Captured { id: 1, is_whole: true });
    let state = &schedule.states()[0];
    assert_eq!((state.stage, state.bytes, &state.ranks_done), (CaptureStage::Done, 70, &vec![3]));
    assert_eq!((schedule.bytes(), due(&schedule, 5)), (70, None));
}

#[test]
fn signals_are_one_request_until_it_is_taken_and_an_alert_goes_first() {
    let schedule = CaptureSchedule::default();
    assert!(schedule.take_asked(2).is_none());
    (0..5).for_each(|_| schedule.ask_by_signal());
    assert!(matches!(schedule.take_asked(2), Some(AskedBy::Signal { rank: 2 })));
    assert!(schedule.take_asked(2).is_none());
}
