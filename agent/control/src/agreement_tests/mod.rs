//! Leader and followers over a store in memory, with a clock of the test's own.

mod captures;
mod job;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use trainmon_core::config::{Plan, PlanChange, WindowChange};
use trainmon_service::{Receipt, Relay, RelayedMessage};

use self::job::*;
use crate::change_request::{Change, MAX_WAITING_CHANGES};
use crate::follower::FollowerEvent;
use crate::leader::LeaderEvent;
use crate::live::Switched;
use crate::progress::Stage;

#[test]
fn a_single_process_switches_at_its_next_step() {
    let mut job = Job::new(1);
    job.tenths(3, &[1]);
    job.set_interval(1, 7);
    job.tenths(3, &[1]);
    assert_eq!(job.ranks[0].first_step_with(7), Some(4));
    assert_eq!(job.stage(1), Stage::Switched);
    assert_eq!(job.said, [LeaderEvent::Agreed { what: "wish 1".into(), step: 4 }]);
    assert_eq!(job.rank_store.0.lock().unwrap().leader_state, None, "nobody to tell");
}

#[test]
fn ranks_of_different_speeds_switch_at_the_same_step_again_and_again() {
    let mut job = Job::new(3);
    let speeds = [1, 4, 2];
    job.tenths(30, &speeds);
    for (id, interval) in [(1, 7), (2, 3), (3, 9)] {
        job.set_interval(id, interval);
    }
    job.tenths(6_000, &speeds);
    for (id, interval) in [(1, 7), (2, 3), (3, 9)] {
        let steps: Vec<Option<u64>> = job.ranks.iter().map(|rank| rank.first_step_with(interval)).collect();
        assert!(steps[0].is_some() && steps.iter().all(|step| *step == steps[0]), "{interval}: {steps:?}");
        assert_eq!(job.stage(id), Stage::Switched);
    }
    assert_eq!(job.heard, []);
    assert!(job.progress_log.all().iter().all(|progress| progress.late.is_empty() && progress.waiting_for.is_empty()));
}

#[test]
fn a_rank_that_dies_before_it_answers_leaves_everything_as_it_was() {
    let mut job = Job::new(3);
    job.tenths(30, &[1, 1, 1]);
    job.set_interval(1, 7);
    for _ in 0..400 {
        job.tenth(&[1, 1, 0], |rank| rank != 2);
    }
    assert_eq!(job.stage(1), Stage::Withdrawn);
    assert_eq!(job.ranks[0].first_step_with(7), None);
    assert_eq!(job.ranks[1].first_step_with(7), None);
    let LeaderEvent::Withdrawn { why, .. } = &job.said[0] else { panic!("{:?}", job.said) };
    assert_eq!(why, "no answer within 20 s from rank 2");
    // It wakes up again: what was withdrawn stays so, the next request is fulfilled.
    job.set_interval(2, 3);
    job.tenths(600, &[1, 1, 4]);
    assert_eq!((job.stage(1), job.stage(2)), (Stage::Withdrawn, Stage::Switched));
    assert!(job.ranks.iter().all(|rank| rank.first_step_with(7).is_none()));
    assert_eq!(job.ranks[0].live.switched().map(|it| it.step), job.ranks[2].live.switched().map(|it| it.step));
}

#[test]
fn a_rank_that_never_came_is_named() {
    let mut job = Job::new(2);
    job.followers.clear();
    job.set_interval(1, 7);
    job.tenths(400, &[1, 1]);
    let LeaderEvent::Withdrawn { why, .. } = &job.said[0] else { panic!("{:?}", job.said) };
    assert!(why.starts_with("no contact with rank 1"), "{why}");
}

#[test]
fn a_rank_that_learns_too_late_switches_at_once_and_everybody_hears_of_it() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    for _ in 0..200 {
        // It answers the proposal, then sleeps past the step that is agreed upon.
        let answered = job
            .rank_store
            .0
            .lock()
            .unwrap()
            .rank_states
            .get(&1)
            .is_some_and(|rank_state| rank_state.contains(r#""heard":1"#));
        let is_past =
            matches!(job.said.first(), Some(LeaderEvent::Agreed { step, .. }) if job.ranks[1].live.step().0 > step + 5);
        job.tenth(&[1, 1], |rank| rank == 0 || !answered || is_past);
    }
    let LeaderEvent::Agreed { step, .. } = job.said[0] else { panic!("{:?}", job.said) };
    assert_eq!(job.ranks[0].first_step_with(7), Some(step));
    let late = job.ranks[1].first_step_with(7).unwrap();
    assert!(late > step);
    assert_eq!(job.heard.len(), 1);
    assert!(
        matches!(job.said[1], LeaderEvent::LateSwitch { late: found, .. } if found.rank == 1 && found.step == late),
        "{:?}",
        job.said
    );
    assert_eq!(job.progress_log.all()[0].late.len(), 1);
    assert_eq!(job.stage(1), Stage::Switched);
}

#[test]
fn a_leader_state_left_over_from_an_earlier_run_is_not_obeyed() {
    let mut earlier = Job::new(2);
    earlier.tenths(30, &[1, 1]);
    earlier.set_interval(1, 7);
    earlier.tenths(30, &[0, 0]);
    let contents = std::mem::take(&mut *earlier.rank_store.0.lock().unwrap());
    assert!(contents.leader_state.as_ref().unwrap().contains("\"agreed\":{"), "{:?}", contents.leader_state);
    // The same directory, new processes; rank 1 is there first.
    let mut job = Job::new(2);
    *job.rank_store.0.lock().unwrap() = contents;
    job.followers = vec![follower(1, "second", &job.ranks[1])];
    for _ in 0..50 {
        job.tenth(&[0, 1], |rank| rank == 1);
    }
    assert_eq!(job.ranks[1].first_step_with(7), None);
    job.set_interval(1, 3);
    job.tenths(300, &[1, 1]);
    assert_eq!(job.stage(1), Stage::Switched);
    assert!(job.ranks.iter().all(|rank| rank.first_step_with(7).is_none()));
}

#[test]
fn a_rank_that_starts_anew_is_told_the_plan_while_nothing_is_proposed() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1]);
    assert_eq!(job.stage(1), Stage::Switched);
    job.start_anew(1, "second");
    job.tenths(100, &[1, 1]);
    let LeaderEvent::Agreed { step, .. } = job.said[0] else { panic!("{:?}", job.said) };
    assert_eq!(job.ranks[1].live.plan(), job.ranks[0].live.plan());
    assert_eq!(job.heard, [FollowerEvent::TakenUp { agreed: step }]);
    assert_eq!(job.said.len(), 1, "the others are not asked again: {:?}", job.said);
    job.request(2, Change::Pause);
    job.tenths(600, &[1, 1]);
    assert_eq!(job.stage(2), Stage::Switched);
    let plan = job.ranks[1].live.plan();
    assert_eq!((plan.window.step_interval, plan.paused), (7, true));
    assert_eq!(job.ranks[0].live.plan(), plan);
}

#[test]
fn what_is_withdrawn_leaves_what_was_agreed_upon_before() {
    let mut job = Job::new(3);
    job.tenths(30, &[1, 1, 1]);
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1, 1]);
    job.set_interval(2, 3);
    for _ in 0..300 {
        job.tenth(&[1, 1, 0], |rank| rank != 2);
    }
    assert_eq!((job.stage(1), job.stage(2)), (Stage::Switched, Stage::Withdrawn));
    job.start_anew(2, "second");
    job.tenths(100, &[1, 1, 1]);
    assert_eq!(job.ranks[2].live.plan(), job.ranks[0].live.plan());
    assert_eq!(job.ranks[2].live.plan().window.step_interval, 7);
}

#[test]
fn rank_0_does_not_switch_by_an_agreement_that_nobody_can_read() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.contents().refused = Some((r#""agreed":{"#, false));
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1]);
    assert_eq!(job.first_steps_with(7), [None, None]);
    assert_eq!((job.stage(1), job.ranks[0].live.awaited()), (Stage::Asking, None));
    job.contents().refused = None;
    job.tenths(200, &[1, 1]);
    assert_eq!(job.stage(1), Stage::Switched);
    let steps = job.first_steps_with(7);
    assert!(steps[0].is_some() && steps[0] == steps[1], "{steps:?}");
}

#[test]
fn an_agreement_that_got_through_although_it_was_refused_is_kept() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.contents().refused = Some((r#""agreed":{"#, true));
    job.set_interval(1, 7);
    job.tenths(200, &[1, 1]);
    let steps = job.first_steps_with(7);
    assert!(steps[0].is_some() && steps[0] == steps[1], "{steps:?}");
    assert_eq!((job.stage(1), job.heard.len()), (Stage::Switched, 0));
}

#[test]
fn a_rank_state_that_cannot_be_read_counts_as_none_and_is_said_once() {
    let mut job = Job::new(3);
    job.tenths(30, &[1, 1, 1]);
    for is_garbled in [false, true] {
        let id = 1 + u64::from(is_garbled);
        job.contents().unreadable = (!is_garbled).then_some(1);
        job.set_interval(id, 7);
        for _ in 0..300 {
            if is_garbled {
                job.contents().rank_states.insert(1, "{".to_owned());
            }
            job.tenth(&[1, 1, 1], |_| true);
        }
        assert_eq!(job.stage(id), Stage::Withdrawn);
        assert_eq!(job.first_steps_with(7), [None; 3]);
    }
    let said: Vec<&LeaderEvent> =
        job.said.iter().filter(|said| matches!(said, LeaderEvent::Unreadable { .. })).collect();
    assert!(matches!(said[..], [LeaderEvent::Unreadable { ranks, .. }] if ranks == "rank 1"), "{said:?}");
    let Some(LeaderEvent::Withdrawn { why, .. }) = job.said.last() else { panic!("{:?}", job.said) };
    assert!(why.starts_with("cannot read the state of rank 1"), "{why}");
    job.contents().rank_states.remove(&1);
    job.start_anew(1, "second");
    job.set_interval(3, 5);
    job.tenths(900, &[1, 1, 1]);
    assert_eq!(job.stage(3), Stage::Switched, "{:?}", job.said);
}

#[test]
fn rank_states_that_come_back_from_earlier_processes_cause_no_change() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1]);
    let of_the_first = job.contents().rank_states[&1].clone();
    let of_an_earlier_run = of_the_first.replace(r#":"session""#, r#":"earlier""#).replace("first", "of then");
    job.start_anew(1, "second");
    job.tenths(100, &[1, 1]);
    let before = job.contents().leader_states.len();
    job.request(2, Change::Pause);
    for round in 0..600 {
        // A cache that cannot make up its mind.
        let shown = match round % 3 {
            0 => Some(of_the_first.clone()),
            1 => Some(of_an_earlier_run.clone()),
            _ => None,
        };
        let kept = job.contents().rank_states[&1].clone();
        if let Some(shown) = shown {
            job.contents().rank_states.insert(1, shown);
            job.tenth(&[1, 1], |rank| rank == 0);
            job.contents().rank_states.insert(1, kept);
        } else {
            job.tenth(&[1, 1], |_| true);
        }
    }
    assert_eq!(job.stage(2), Stage::Switched);
    let leader_states = job.contents().leader_states.len() - before;
    assert_eq!((leader_states, job.said.len()), (2, 2), "one proposal, one agreement: {:?}", job.said);
}

#[test]
fn where_too_many_changes_wait_the_oldest_gives_way_and_says_so() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    let count = MAX_WAITING_CHANGES as u64 + 3;
    for id in 1..=count {
        job.set_interval(id, id + 1);
    }
    let withdrawn = |job: &Job| -> Vec<u64> {
        job.progress_log.all().iter().filter(|it| it.stage == Stage::Withdrawn).map(|it| it.id).collect()
    };
    assert_eq!(withdrawn(&job), [1, 2, 3]);
    assert!(
        job.progress_log.all()[0].why.as_ref().unwrap().contains("16 later changes"),
        "{:?}",
        job.progress_log.all()[0]
    );
    for id in 100..200 {
        job.request(id, Change::Pause);
    }
    let waiting = job.progress_log.all().iter().filter(|it| it.stage == Stage::Waiting).count();
    assert_eq!(waiting, MAX_WAITING_CHANGES, "none that waits is forgotten");
}

#[test]
fn a_window_without_a_step_in_it_is_withdrawn() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    let set = |stop_step: Option<u64>, start_step: Option<u64>| {
        let window = WindowChange { stop_step: stop_step.map(Some), start_step, ..WindowChange::default() };
        Change::Set(PlanChange { window, ..PlanChange::default() })
    };
    // Over before the ranks can agree; over before it begins, together with the one before; both in order.
    job.request(1, set(Some(35), None));
    job.request(2, set(Some(900), None));
    job.request(3, set(None, Some(1_000)));
    job.request(4, set(Some(1_001), Some(1_000)));
    job.tenths(900, &[1, 1]);
    let stages = [1, 2, 3, 4].map(|id| job.stage(id));
    assert_eq!(stages, [Stage::Withdrawn, Stage::Switched, Stage::Withdrawn, Stage::Switched]);
    let why = job.progress_log.all()[2].why.clone().unwrap();
    assert_eq!(why, "no step would be measured: `stop_step` 900 is not after the first possible step, 1000");
}

#[test]
fn a_store_that_fails_for_a_while_delays_and_breaks_nothing() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    job.rank_store.0.lock().unwrap().is_broken = true;
    job.tenths(20, &[1, 1]);
    assert!(job.leader.tick(job.now, &mut job.rank_store.clone()).is_err());
    job.rank_store.0.lock().unwrap().is_broken = false;
    job.tenths(200, &[1, 1]);
    assert_eq!(job.stage(1), Stage::Switched);
    let steps: Vec<Option<Switched>> = job.ranks.iter().map(|rank| rank.live.switched()).collect();
    assert_eq!(steps[0], steps[1]);
}

#[test]
fn a_restarted_window_begins_at_the_switch_on_every_rank() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 2]);
    job.set_interval(1, 4);
    job.tenths(300, &[1, 2]);
    let plans: Vec<Arc<Plan>> = job.ranks.iter().map(|rank| rank.live.plan()).collect();
    assert_eq!(plans[0], plans[1]);
    assert_eq!(Some(plans[0].window.start_step), job.ranks[0].first_step_with(4));
}

#[test]
fn an_alert_of_any_rank_ends_the_training_on_all_at_one_step() {
    for asking in [0, 2] {
        let mut job = Job::new(3);
        job.tenths(30, &[3, 3, 3]);
        job.set_interval(7, 5);
        job.ranks[asking].wants_stop.store(true, Ordering::Relaxed);
        job.tenths(300, &[3, 3, 3]);
        let steps: Vec<_> = job.ranks.iter().map(|rank| rank.stopped).collect();
        assert!(steps[0].is_some() && steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        let why = format!("end of the training, requested by an alert of rank {asking}");
        let agreed =
            job.said.iter().filter(|said| matches!(said, LeaderEvent::Agreed { what, .. } if *what == why)).count();
        assert_eq!(agreed, 1, "{:?}", job.said);
        assert!(job.first_steps_with(5).iter().all(Option::is_some), "what is measured changes all the same");
    }
}

/// A relay with one message that records its receipts; on rank 0, the messages it took.
#[derive(Default)]
struct Mail {
    waiting: Mutex<Vec<RelayedMessage>>,
    receipts: Mutex<Vec<Receipt>>,
    taken: Mutex<Vec<(u32, String, u64)>>,
}

impl Relay for Mail {
    fn waiting(&self) -> Vec<RelayedMessage> {
        self.waiting.lock().unwrap().clone()
    }

    fn receipt(&self, receipt: Receipt) {
        self.receipts.lock().unwrap().push(receipt);
        self.waiting.lock().unwrap().retain(|message| message.number > receipt.sent);
    }

    fn take(&self, rank: u32, process: &str, messages: &[RelayedMessage]) -> Receipt {
        let mut taken = self.taken.lock().unwrap();
        taken.extend(messages.iter().map(|message| (rank, process.to_owned(), message.number)));
        // It sends when it sees a message for the second time.
        let number = messages.last().map_or(0, |message| message.number);
        Receipt { taken: number, sent: if taken.len() > 1 { number } else { 0 } }
    }
}

#[test]
fn messages_of_a_rank_reach_rank_0_and_its_receipts_come_back_also_while_the_monitor_ends() {
    let mut job = Job::new(3);
    let mails: [Arc<Mail>; 3] = Default::default();
    let [first, second, third] = mails.clone().map(|mail| mail as Arc<dyn Relay>);
    job.leader = job.leader.with_relay(Some(first));
    job.followers = [second, third]
        .into_iter()
        .zip(std::mem::take(&mut job.followers))
        .map(|(relay, follower)| follower.with_relay(Some(relay)))
        .collect();
    job.tenths(30, &[1, 1, 1]);
    assert!(!job.contents().leader_state.as_ref().unwrap().contains("receipts"));
    job.ranks.iter().for_each(|rank| rank.live.end());
    mails[2].waiting.lock().unwrap().push(RelayedMessage { number: 1, text: "{}".to_owned() });
    job.request(1, Change::Pause);
    job.tenths(5, &[1, 1, 1]);
    let taken = mails[0].taken.lock().unwrap().clone();
    assert!(taken.len() >= 2 && taken.iter().all(|it| *it == (2, "first".to_owned(), 1)), "{taken:?}");
    let receipts = mails[2].receipts.lock().unwrap().clone();
    assert_eq!(receipts.first(), Some(&Receipt { taken: 1, sent: 0 }));
    assert_eq!(receipts.last(), Some(&Receipt { taken: 1, sent: 1 }));
    assert_eq!((mails[1].receipts.lock().unwrap().len(), mails[2].waiting().len()), (0, 0));
    // No change is agreed upon any more.
    assert!(job.said.is_empty() && job.stage(1) == Stage::Waiting, "{:?}", job.said);
}

#[test]
fn while_a_rank_is_silent_nobody_ends_and_it_is_tried_again() {
    let mut job = Job::new(3);
    job.tenths(30, &[3, 3, 3]);
    job.ranks[1].wants_stop.store(true, Ordering::Relaxed);
    for _ in 0..400 {
        job.tenth(&[3, 3, 3], |rank| rank != 2);
    }
    assert!(job.ranks.iter().all(|rank| rank.stopped.is_none()));
    let withdrawn = job.said.iter().filter(|said| matches!(said, LeaderEvent::Withdrawn { .. })).count();
    assert!((1..=2).contains(&withdrawn), "{:?}", job.said);
    job.tenths(900, &[3, 3, 3]);
    let steps: Vec<_> = job.ranks.iter().map(|rank| rank.stopped).collect();
    assert!(steps[0].is_some() && steps.iter().all(|step| *step == steps[0]), "{steps:?}");
}
