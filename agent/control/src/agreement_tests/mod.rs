//! Leader and followers over a store in memory, with a clock of the test's own.

mod captures;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trainmon_core::Step;
use trainmon_core::config::{CaptureOnDemand, CaptureRequest, Config, Plan, PlanChange};

use crate::capture_requests::{self, CaptureRequests};
use crate::captures::AskedBy;
use crate::change_request::{Change, ChangeIds, ChangeRequest, MAX_WAITING_CHANGES};
use crate::follower::{Follower, FollowerEvent};
use crate::leader::{Leader, LeaderEvent};
use crate::live::{Live, Switched};
use crate::progress::{ProgressBook, Stage};
use crate::rank_store::RankStore;
use crate::stop::{StopRequest, WantsStop};

#[derive(Default)]
struct Wall {
    leader_state: Option<String>,
    rank_states: BTreeMap<u32, String>,
    is_broken: bool,
    /// Every leader state that was put up.
    leader_states: Vec<String>,
    /// Sheets with this in them are refused; the second says whether they are up nevertheless.
    refused: Option<(&'static str, bool)>,
    /// A rank whose state cannot be read.
    unreadable: Option<u32>,
}

#[derive(Clone, Default)]
struct MemoryRankStore(Arc<Mutex<Wall>>);

impl MemoryRankStore {
    fn wall(&self) -> io::Result<std::sync::MutexGuard<'_, Wall>> {
        let wall = self.0.lock().unwrap();
        if wall.is_broken { Err(io::ErrorKind::StaleNetworkFileHandle.into()) } else { Ok(wall) }
    }
}

impl RankStore for MemoryRankStore {
    fn put_leader_state(&mut self, text: &str) -> io::Result<()> {
        let mut wall = self.wall()?;
        let refused = wall.refused.filter(|(part, _)| text.contains(part));
        if refused.is_none_or(|(_, is_up)| is_up) {
            wall.leader_state = Some(text.to_owned());
            wall.leader_states.push(text.to_owned());
        }
        if refused.is_some() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn leader_state(&mut self) -> io::Result<Option<String>> {
        Ok(self.wall()?.leader_state.clone())
    }

    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.wall()?.rank_states.insert(rank, text.to_owned());
        Ok(())
    }

    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>> {
        let wall = self.wall()?;
        match wall.unreadable {
            Some(unreadable) if unreadable == rank => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok(wall.rank_states.get(&rank).cloned()),
        }
    }
}

/// One rank: its training is a number that grows.
struct Rank {
    live: Arc<Live>,
    /// Steps that were measured under a plan with this interval.
    intervals: Vec<u64>,
    /// Whether an alert of it asks the training to end, and the first step that saw it asked.
    wants_stop: Arc<AtomicBool>,
    stopped: Option<u64>,
    /// The steps captured, with the number of the capture.
    captured: Vec<(u64, u64)>,
}

impl Rank {
    fn new(config: &Config) -> Self {
        let live = Arc::new(Live::new(Step(0), true, Plan::of(config)));
        live.captures().offer();
        Self { live, intervals: Vec::new(), wants_stop: Arc::default(), stopped: None, captured: Vec::new() }
    }

    fn asks_to_stop(&self) -> WantsStop {
        let wants_stop = Arc::clone(&self.wants_stop);
        Arc::new(move || wants_stop.load(Ordering::Relaxed))
    }

    /// What the training thread does at the end of a step.
    fn end_step(&mut self, took: Duration) {
        self.intervals.push(self.live.plan().window.step_interval);
        self.live.add_step(Duration::ZERO, Some(took), 0);
        let next = Step(self.live.step().0 + 1);
        if let Some(switch) = self.live.take_due(next) {
            self.live.set_switched(&switch, next);
        }
        self.live.begin_step(next, true, 1);
        if let Some(capture) = self.live.captures().due(next) {
            self.captured.push((next.0, capture.id));
            self.live.captures().begin(capture.id, format!("step{next}").into());
            if next.0 + 1 == capture.end() {
                self.live.captures().end(capture.id, None);
            }
        }
        if self.live.is_stopped() {
            self.stopped = self.stopped.or(Some(next.0));
        }
    }

    fn first_step_with(&self, interval: u64) -> Option<u64> {
        self.intervals.iter().position(|&found| found == interval).map(|step| step as u64)
    }
}

struct Job {
    rank_store: MemoryRankStore,
    now: Instant,
    ranks: Vec<Rank>,
    leader: Leader,
    followers: Vec<Follower>,
    book: ProgressBook,
    said: Vec<LeaderEvent>,
    heard: Vec<FollowerEvent>,
}

impl Job {
    fn new(world: u32) -> Self {
        let capture = CaptureOnDemand { max_captures: 3, min_distance: 1_000, ..CaptureOnDemand::default() };
        let config = Arc::new(Config { capture: Some(capture), ..Config::default() });
        let captures = CaptureRequests::new(&config, ChangeIds::default());
        let (rank_store, book) = (MemoryRankStore::default(), ProgressBook::default());
        let ranks: Vec<Rank> = (0..world).map(|_| Rank::new(&config)).collect();
        let leader = Leader::new("session".into(), world, config, Arc::clone(&ranks[0].live), book.clone())
            .listening_for(StopRequest::new(ranks[0].asks_to_stop(), ChangeIds::default()))
            .capturing(captures);
        let followers = (1..world).map(|rank| follower(rank, "first", &ranks[rank as usize])).collect();
        let now = Instant::now();
        Self { rank_store, now, ranks, leader, followers, book, said: Vec::new(), heard: Vec::new() }
    }

    fn request(&mut self, id: u64, change: Change) {
        self.leader.push(ChangeRequest { id, what: format!("wish {id}"), change });
    }

    fn capture(&mut self, id: u64, at: Option<u64>, steps: u32) {
        let request = CaptureRequest { at, steps: Some(steps), ..CaptureRequest::default() };
        let order = CaptureOnDemand::default().order(&request, "test").unwrap();
        self.leader.push(capture_requests::request(id, order, AskedBy::Ctl, 0));
    }

    /// The steps captured, where all ranks have the same.
    fn captured(&self) -> Vec<(u64, u64)> {
        let first = &self.ranks[0].captured;
        assert!(self.ranks.iter().all(|rank| rank.captured == *first));
        first.clone()
    }

    fn set_interval(&mut self, id: u64, interval: u64) {
        self.request(id, Change::Set(PlanChange { step_interval: Some(interval), ..PlanChange::default() }));
    }

    /// A tenth of a second: one look of every control thread that is `awake`, and `steps` of each rank's training.
    fn tenth(&mut self, steps: &[u32], awake: impl Fn(u32) -> bool) {
        self.now += Duration::from_millis(100);
        let rank_store: &mut dyn RankStore = &mut self.rank_store;
        if awake(0) {
            self.said.extend(self.leader.tick(self.now, rank_store).unwrap_or_default());
        }
        for (rank, follower) in (1..).zip(&mut self.followers) {
            if awake(rank) {
                self.heard.extend(follower.tick(self.now, rank_store).unwrap_or_default());
            }
        }
        for (rank, &count) in self.ranks.iter_mut().zip(steps) {
            for _ in 0..count {
                rank.end_step(Duration::from_millis(100) / count);
            }
        }
    }

    fn tenths(&mut self, count: u32, steps: &[u32]) {
        for _ in 0..count {
            self.tenth(steps, |_| true);
        }
    }

    /// A rank's process is gone, and a new one is there.
    fn start_anew(&mut self, rank: usize, word: &str) {
        self.ranks[rank] = Rank::new(&Config::default());
        self.followers[rank - 1] = follower(u32::try_from(rank).unwrap(), word, &self.ranks[rank]);
    }

    fn wall(&self) -> std::sync::MutexGuard<'_, Wall> {
        self.rank_store.0.lock().unwrap()
    }

    fn first_steps_with(&self, interval: u64) -> Vec<Option<u64>> {
        self.ranks.iter().map(|rank| rank.first_step_with(interval)).collect()
    }

    fn stage(&self, id: u64) -> Stage {
        self.book.all().iter().find(|progress| progress.id == id).unwrap().stage
    }
}

fn follower(rank: u32, word: &str, of: &Rank) -> Follower {
    Follower::new(rank, word.to_owned(), Arc::clone(&of.live), of.asks_to_stop())
}

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
    assert!(job.book.all().iter().all(|progress| progress.late.is_empty() && progress.waiting_for.is_empty()));
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
    assert!(why.starts_with("rank 1 never came to the store"), "{why}");
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
    assert_eq!(job.book.all()[0].late.len(), 1);
    assert_eq!(job.stage(1), Stage::Switched);
}

#[test]
fn a_sheet_left_over_from_an_earlier_run_is_not_obeyed() {
    let mut earlier = Job::new(2);
    earlier.tenths(30, &[1, 1]);
    earlier.set_interval(1, 7);
    earlier.tenths(30, &[0, 0]);
    let wall = std::mem::take(&mut *earlier.rank_store.0.lock().unwrap());
    assert!(wall.leader_state.as_ref().unwrap().contains("\"agreed\":{"), "{:?}", wall.leader_state);
    // The same directory, new processes; rank 1 is there first.
    let mut job = Job::new(2);
    *job.rank_store.0.lock().unwrap() = wall;
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
    job.wall().refused = Some((r#""agreed":{"#, false));
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1]);
    assert_eq!(job.first_steps_with(7), [None, None]);
    assert_eq!((job.stage(1), job.ranks[0].live.awaited()), (Stage::Asking, None));
    job.wall().refused = None;
    job.tenths(200, &[1, 1]);
    assert_eq!(job.stage(1), Stage::Switched);
    let steps = job.first_steps_with(7);
    assert!(steps[0].is_some() && steps[0] == steps[1], "{steps:?}");
}

#[test]
fn an_agreement_that_got_through_although_it_was_refused_is_kept() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.wall().refused = Some((r#""agreed":{"#, true));
    job.set_interval(1, 7);
    job.tenths(200, &[1, 1]);
    let steps = job.first_steps_with(7);
    assert!(steps[0].is_some() && steps[0] == steps[1], "{steps:?}");
    assert_eq!((job.stage(1), job.heard.len()), (Stage::Switched, 0));
}

#[test]
fn a_note_that_cannot_be_read_counts_as_none_and_is_said_once() {
    let mut job = Job::new(3);
    job.tenths(30, &[1, 1, 1]);
    for is_garbled in [false, true] {
        let id = 1 + u64::from(is_garbled);
        job.wall().unreadable = (!is_garbled).then_some(1);
        job.set_interval(id, 7);
        for _ in 0..300 {
            if is_garbled {
                job.wall().rank_states.insert(1, "{".to_owned());
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
    assert!(why.starts_with("the state of rank 1 cannot be read"), "{why}");
    job.wall().rank_states.remove(&1);
    job.start_anew(1, "second");
    job.set_interval(3, 5);
    job.tenths(900, &[1, 1, 1]);
    assert_eq!(job.stage(3), Stage::Switched, "{:?}", job.said);
}

#[test]
fn notes_that_come_back_from_earlier_processes_cause_no_change() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1]);
    let of_the_first = job.wall().rank_states[&1].clone();
    let of_an_earlier_run = of_the_first.replace(r#":"session""#, r#":"earlier""#).replace("first", "of then");
    job.start_anew(1, "second");
    job.tenths(100, &[1, 1]);
    let before = job.wall().leader_states.len();
    job.request(2, Change::Pause);
    for round in 0..600 {
        // A cache that cannot make up its mind.
        let shown = match round % 3 {
            0 => Some(of_the_first.clone()),
            1 => Some(of_an_earlier_run.clone()),
            _ => None,
        };
        let kept = job.wall().rank_states[&1].clone();
        if let Some(shown) = shown {
            job.wall().rank_states.insert(1, shown);
            job.tenth(&[1, 1], |rank| rank == 0);
            job.wall().rank_states.insert(1, kept);
        } else {
            job.tenth(&[1, 1], |_| true);
        }
    }
    assert_eq!(job.stage(2), Stage::Switched);
    let leader_states = job.wall().leader_states.len() - before;
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
        job.book.all().iter().filter(|it| it.stage == Stage::Withdrawn).map(|it| it.id).collect()
    };
    assert_eq!(withdrawn(&job), [1, 2, 3]);
    assert!(job.book.all()[0].why.as_ref().unwrap().contains("16 later changes"), "{:?}", job.book.all()[0]);
    for id in 100..200 {
        job.request(id, Change::Pause);
    }
    let waiting = job.book.all().iter().filter(|it| it.stage == Stage::Waiting).count();
    assert_eq!(waiting, MAX_WAITING_CHANGES, "none that waits is forgotten");
}

#[test]
fn a_window_without_a_step_in_it_is_withdrawn() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    let set = |stop_step: Option<u64>, start_step: Option<u64>| {
        Change::Set(PlanChange { stop_step: stop_step.map(Some), start_step, ..PlanChange::default() })
    };
    // Over before the ranks can agree; over before it begins, together with the one before; both in order.
    job.request(1, set(Some(35), None));
    job.request(2, set(Some(900), None));
    job.request(3, set(None, Some(1_000)));
    job.request(4, set(Some(1_001), Some(1_000)));
    job.tenths(900, &[1, 1]);
    let stages = [1, 2, 3, 4].map(|id| job.stage(id));
    assert_eq!(stages, [Stage::Withdrawn, Stage::Switched, Stage::Withdrawn, Stage::Switched]);
    let why = job.book.all()[2].why.clone().unwrap();
    assert_eq!(why, "no step would be measured: `stop_step`, 900, is not after the first step it could be, 1000");
}

#[test]
fn a_board_that_fails_for_a_while_delays_and_breaks_nothing() {
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
        let why = format!("an alert of rank {asking} asks the training to end");
        let agreed =
            job.said.iter().filter(|said| matches!(said, LeaderEvent::Agreed { what, .. } if *what == why)).count();
        assert_eq!(agreed, 1, "{:?}", job.said);
        assert!(job.first_steps_with(5).iter().all(Option::is_some), "what is measured changes all the same");
    }
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
