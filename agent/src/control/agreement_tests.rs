//! Leader and followers over a board in memory, with a clock of the test's own.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trainmon_core::Step;
use trainmon_core::config::{Config, Plan, PlanChange};

use super::board::Board;
use super::follower::{Follower, Missed};
use super::leader::{Leader, Said};
use super::progress::{ProgressBook, Stage};
use super::wish::{Change, Wish};
use crate::live::{Live, Switched};

#[derive(Default)]
struct Wall {
    sheet: Option<String>,
    notes: BTreeMap<u32, String>,
    is_broken: bool,
}

#[derive(Clone, Default)]
struct MemoryBoard(Arc<Mutex<Wall>>);

impl MemoryBoard {
    fn wall(&self) -> io::Result<std::sync::MutexGuard<'_, Wall>> {
        let wall = self.0.lock().unwrap();
        if wall.is_broken { Err(io::ErrorKind::StaleNetworkFileHandle.into()) } else { Ok(wall) }
    }
}

impl Board for MemoryBoard {
    fn put_sheet(&mut self, text: &str) -> io::Result<()> {
        self.wall()?.sheet = Some(text.to_owned());
        Ok(())
    }

    fn sheet(&mut self) -> io::Result<Option<String>> {
        Ok(self.wall()?.sheet.clone())
    }

    fn put_note(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.wall()?.notes.insert(rank, text.to_owned());
        Ok(())
    }

    fn note(&mut self, rank: u32) -> io::Result<Option<String>> {
        Ok(self.wall()?.notes.get(&rank).cloned())
    }
}

/// One rank: its training is a number that grows.
struct Rank {
    live: Arc<Live>,
    /// Steps that were measured under a plan with this interval.
    intervals: Vec<u64>,
}

impl Rank {
    fn new(config: &Config) -> Self {
        Self { live: Arc::new(Live::new(Step(0), true, Plan::of(config))), intervals: Vec::new() }
    }

    /// What the training thread does at the end of a step.
    fn end_step(&mut self, took: Duration) {
        self.intervals.push(self.live.plan().window.step_interval);
        self.live.add_step(Duration::ZERO, Some(took), 0);
        let next = Step(self.live.step().0 + 1);
        if let Some(switch) = self.live.take_due(next) {
            self.live.set_switched(&switch, next);
        }
        self.live.step.store(next.0, std::sync::atomic::Ordering::Relaxed);
    }

    fn first_step_with(&self, interval: u64) -> Option<u64> {
        self.intervals.iter().position(|&found| found == interval).map(|step| step as u64)
    }
}

struct Job {
    board: MemoryBoard,
    now: Instant,
    ranks: Vec<Rank>,
    leader: Leader,
    followers: Vec<Follower>,
    book: ProgressBook,
    said: Vec<Said>,
    missed: Vec<Missed>,
}

impl Job {
    fn new(world: u32) -> Self {
        let config = Arc::new(Config::default());
        let (board, book) = (MemoryBoard::default(), ProgressBook::default());
        let ranks: Vec<Rank> = (0..world).map(|_| Rank::new(&config)).collect();
        let leader = Leader::new("session".into(), world, config, Arc::clone(&ranks[0].live), book.clone());
        let followers = (1..world).map(|rank| follower(rank, "first", &ranks[rank as usize])).collect();
        let now = Instant::now();
        Self { board, now, ranks, leader, followers, book, said: Vec::new(), missed: Vec::new() }
    }

    fn wish(&mut self, id: u64, change: Change) {
        self.leader.push(Wish { id, what: format!("wish {id}"), change });
    }

    fn set_interval(&mut self, id: u64, interval: u64) {
        self.wish(id, Change::Set(PlanChange { step_interval: Some(interval), ..PlanChange::default() }));
    }

    /// A tenth of a second: one look of every control thread that is `awake`, and `steps` of each rank's training.
    fn tenth(&mut self, steps: &[u32], awake: impl Fn(u32) -> bool) {
        self.now += Duration::from_millis(100);
        let board: &mut dyn Board = &mut self.board;
        if awake(0) {
            self.said.extend(self.leader.tick(self.now, board).unwrap_or_default());
        }
        for (rank, follower) in (1..).zip(&mut self.followers) {
            if awake(rank) {
                self.missed.extend(follower.tick(self.now, board).unwrap_or_default());
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

    fn stage(&self, id: u64) -> Stage {
        self.book.all().iter().find(|progress| progress.id == id).unwrap().stage
    }
}

fn follower(rank: u32, word: &str, of: &Rank) -> Follower {
    Follower::new(rank, word.to_owned(), Arc::clone(&of.live))
}

#[test]
fn a_single_process_switches_at_its_next_step() {
    let mut job = Job::new(1);
    job.tenths(3, &[1]);
    job.set_interval(1, 7);
    job.tenths(3, &[1]);
    assert_eq!(job.ranks[0].first_step_with(7), Some(4));
    assert_eq!(job.stage(1), Stage::Switched);
    assert_eq!(job.said, [Said::Agreed { what: "wish 1".into(), step: 4 }]);
    assert_eq!(job.board.0.lock().unwrap().sheet, None, "nobody to tell");
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
    assert_eq!(job.missed, []);
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
    let Said::Withdrawn { why, .. } = &job.said[0] else { panic!("{:?}", job.said) };
    assert_eq!(why, "no answer within 20 s from rank 2");
    // It wakes up again: what was withdrawn stays so, the next wish is fulfilled.
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
    let Said::Withdrawn { why, .. } = &job.said[0] else { panic!("{:?}", job.said) };
    assert!(why.starts_with("rank 1 never came to the board"), "{why}");
}

#[test]
fn a_rank_that_learns_too_late_switches_at_once_and_everybody_hears_of_it() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    for _ in 0..200 {
        // It answers the proposal, then sleeps past the step that is agreed upon.
        let answered = job.board.0.lock().unwrap().notes.get(&1).is_some_and(|note| note.contains(r#""heard":1"#));
        let is_past =
            matches!(job.said.first(), Some(Said::Agreed { step, .. }) if job.ranks[1].live.step().0 > step + 5);
        job.tenth(&[1, 1], |rank| rank == 0 || !answered || is_past);
    }
    let Said::Agreed { step, .. } = job.said[0] else { panic!("{:?}", job.said) };
    assert_eq!(job.ranks[0].first_step_with(7), Some(step));
    let late = job.ranks[1].first_step_with(7).unwrap();
    assert!(late > step);
    assert_eq!(job.missed.len(), 1);
    assert!(
        matches!(job.said[1], Said::Late { late: found, .. } if found.rank == 1 && found.step == late),
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
    let wall = std::mem::take(&mut *earlier.board.0.lock().unwrap());
    assert!(wall.sheet.as_ref().unwrap().contains("\"agreed\":{"), "{:?}", wall.sheet);
    // The same directory, new processes; rank 1 is there first.
    let mut job = Job::new(2);
    *job.board.0.lock().unwrap() = wall;
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
fn a_rank_that_starts_anew_is_told_the_plan() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    job.tenths(100, &[1, 1]);
    assert_eq!(job.stage(1), Stage::Switched);
    job.ranks[1] = Rank::new(&Config::default());
    job.followers = vec![follower(1, "second", &job.ranks[1])];
    // Its coming is noticed when the next wish is on its way.
    job.wish(2, Change::Pause);
    job.tenths(600, &[1, 1]);
    assert_eq!(job.stage(2), Stage::Switched);
    let plan = job.ranks[1].live.plan();
    assert_eq!((plan.window.step_interval, plan.paused), (7, true));
    assert_eq!(job.ranks[0].live.plan(), plan);
}

#[test]
fn a_board_that_fails_for_a_while_delays_and_breaks_nothing() {
    let mut job = Job::new(2);
    job.tenths(30, &[1, 1]);
    job.set_interval(1, 7);
    job.board.0.lock().unwrap().is_broken = true;
    job.tenths(20, &[1, 1]);
    assert!(job.leader.tick(job.now, &mut job.board.clone()).is_err());
    job.board.0.lock().unwrap().is_broken = false;
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
