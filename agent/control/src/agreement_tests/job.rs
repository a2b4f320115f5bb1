//! The ranks of a job, and their store in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trainmon_core::Step;
use trainmon_core::config::{CaptureOnDemand, CaptureRequest, Config, Plan, PlanChange, WindowChange};

use crate::capture_requests::{self, CaptureRequests};
use crate::captures::AskedBy;
use crate::change_request::{Change, ChangeIds, ChangeRequest};
use crate::follower::{Follower, FollowerEvent};
use crate::leader::{Leader, LeaderEvent};
use crate::live::Live;
use crate::progress::{ProgressLog, Stage};
use crate::rank_store::RankStore;
use crate::stop::{StopRequest, WantsStop};

#[derive(Default)]
pub(super) struct Contents {
    pub(super) leader_state: Option<String>,
    pub(super) rank_states: BTreeMap<u32, String>,
    pub(super) is_broken: bool,
    /// Every leader state that was put up.
    pub(super) leader_states: Vec<String>,
    /// Leader states with this in them are refused; the second says whether they are up nevertheless.
    pub(super) refused: Option<(&'static str, bool)>,
    /// A rank whose state cannot be read.
    pub(super) unreadable: Option<u32>,
}

#[derive(Clone, Default)]
pub(super) struct MemoryRankStore(pub(super) Arc<Mutex<Contents>>);

impl MemoryRankStore {
    pub(super) fn contents(&self) -> io::Result<std::sync::MutexGuard<'_, Contents>> {
        let contents = self.0.lock().unwrap();
        if contents.is_broken { Err(io::ErrorKind::StaleNetworkFileHandle.into()) } else { Ok(contents) }
    }
}

impl RankStore for MemoryRankStore {
    fn put_leader_state(&mut self, text: &str) -> io::Result<()> {
        let mut contents = self.contents()?;
        let refused = contents.refused.filter(|(part, _)| text.contains(part));
        if refused.is_none_or(|(_, is_up)| is_up) {
            contents.leader_state = Some(text.to_owned());
            contents.leader_states.push(text.to_owned());
        }
        if refused.is_some() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn leader_state(&mut self) -> io::Result<Option<String>> {
        Ok(self.contents()?.leader_state.clone())
    }

    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.contents()?.rank_states.insert(rank, text.to_owned());
        Ok(())
    }

    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>> {
        let contents = self.contents()?;
        match contents.unreadable {
            Some(unreadable) if unreadable == rank => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok(contents.rank_states.get(&rank).cloned()),
        }
    }
}

/// One rank: its training is a number that grows.
pub(super) struct Rank {
    pub(super) live: Arc<Live>,
    /// Steps that were measured under a plan with this interval.
    pub(super) intervals: Vec<u64>,
    /// Whether an alert of it asks the training to end, and the first step that saw it asked.
    pub(super) wants_stop: Arc<AtomicBool>,
    pub(super) stopped: Option<u64>,
    /// The steps captured, with the number of the capture.
    pub(super) captured: Vec<(u64, u64)>,
    /// How many steps it keeps, and those that were run again.
    pub(super) kept: usize,
    pub(super) replayed: Vec<u64>,
}

impl Rank {
    pub(super) fn new(config: &Config) -> Self {
        let live = Arc::new(Live::new(Step(0), true, Plan::of(config)));
        live.captures().offer();
        Self {
            live,
            intervals: Vec::new(),
            wants_stop: Arc::default(),
            stopped: None,
            captured: Vec::new(),
            kept: 0,
            replayed: Vec::new(),
        }
    }

    pub(super) fn asks_to_stop(&self) -> WantsStop {
        let wants_stop = Arc::clone(&self.wants_stop);
        Arc::new(move || wants_stop.load(Ordering::Relaxed))
    }

    /// Ends a step as the training thread does.
    pub(super) fn end_step(&mut self, took: Duration) {
        self.intervals.push(self.live.plan().window.step_interval);
        self.live.add_step(Duration::ZERO, Some(took), 0);
        let next = Step(self.live.step().0 + 1);
        if let Some(switch) = self.live.take_due(next) {
            self.live.set_switched(&switch, next);
        }
        self.live.begin_step(next, true, 1);
        if self.kept > 0 {
            self.live.captures().kept().keep(next.0, self.kept);
        }
        if let Some(capture) = self.live.captures().due(next) {
            self.captured.push((next.0, capture.id));
            self.replayed.extend(capture.replay);
            self.live.captures().begin(capture.id, format!("step{next}").into());
            if next.0 + 1 == capture.end() {
                self.live.captures().end(capture.id, None);
            }
        }
        if self.live.is_stopped() {
            self.stopped = self.stopped.or(Some(next.0));
        }
    }

    pub(super) fn first_step_with(&self, interval: u64) -> Option<u64> {
        self.intervals.iter().position(|&found| found == interval).map(|step| step as u64)
    }
}

pub(super) struct Job {
    pub(super) rank_store: MemoryRankStore,
    pub(super) now: Instant,
    pub(super) ranks: Vec<Rank>,
    pub(super) leader: Leader,
    pub(super) followers: Vec<Follower>,
    pub(super) progress_log: ProgressLog,
    pub(super) said: Vec<LeaderEvent>,
    pub(super) heard: Vec<FollowerEvent>,
}

impl Job {
    pub(super) fn new(world: u32) -> Self {
        let capture = CaptureOnDemand { max_captures: 3, min_distance: 1_000, ..CaptureOnDemand::default() };
        let config = Arc::new(Config { capture: Some(capture), ..Config::default() });
        let captures = CaptureRequests::new(&config, ChangeIds::default());
        let (rank_store, progress_log) = (MemoryRankStore::default(), ProgressLog::default());
        let ranks: Vec<Rank> = (0..world).map(|_| Rank::new(&config)).collect();
        let leader = Leader::new("session".into(), world, config, Arc::clone(&ranks[0].live), progress_log.clone())
            .with_stop(StopRequest::new(ranks[0].asks_to_stop(), ChangeIds::default()))
            .with_captures(captures);
        let followers = (1..world).map(|rank| follower(rank, "first", &ranks[rank as usize])).collect();
        let now = Instant::now();
        Self { rank_store, now, ranks, leader, followers, progress_log, said: Vec::new(), heard: Vec::new() }
    }

    pub(super) fn request(&mut self, id: u64, change: Change) {
        self.leader.push(ChangeRequest { id, what: format!("wish {id}"), change });
    }

    pub(super) fn keep_steps(&mut self, most: usize) {
        self.ranks.iter_mut().for_each(|rank| rank.kept = most);
    }

    pub(super) fn capture(&mut self, id: u64, at: Option<u64>, steps: u32) {
        let request = CaptureRequest { at, steps: Some(steps), ..CaptureRequest::default() };
        let order = CaptureOnDemand::default().order(&request, "test").unwrap();
        self.leader.push(capture_requests::request(id, order, AskedBy::Ctl, 0));
    }

    /// The steps captured, where all ranks have the same.
    pub(super) fn captured(&self) -> Vec<(u64, u64)> {
        let first = &self.ranks[0].captured;
        assert!(self.ranks.iter().all(|rank| rank.captured == *first));
        first.clone()
    }

    pub(super) fn set_interval(&mut self, id: u64, interval: u64) {
        let window = WindowChange { step_interval: Some(interval), ..WindowChange::default() };
        self.request(id, Change::Set(PlanChange { window, ..PlanChange::default() }));
    }

    /// A tenth of a second: one look of every control thread that is `awake`, and `steps` of each rank's training.
    pub(super) fn tenth(&mut self, steps: &[u32], awake: impl Fn(u32) -> bool) {
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

    pub(super) fn tenths(&mut self, count: u32, steps: &[u32]) {
        for _ in 0..count {
            self.tenth(steps, |_| true);
        }
    }

    /// A rank's process is gone, and a new one is there.
    pub(super) fn start_anew(&mut self, rank: usize, word: &str) {
        self.ranks[rank] = Rank::new(&Config::default());
        self.followers[rank - 1] = follower(u32::try_from(rank).unwrap(), word, &self.ranks[rank]);
    }

    pub(super) fn contents(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.rank_store.0.lock().unwrap()
    }

    pub(super) fn first_steps_with(&self, interval: u64) -> Vec<Option<u64>> {
        self.ranks.iter().map(|rank| rank.first_step_with(interval)).collect()
    }

    pub(super) fn stage(&self, id: u64) -> Stage {
        self.progress_log.all().iter().find(|progress| progress.id == id).unwrap().stage
    }
}

pub(super) fn follower(rank: u32, word: &str, of: &Rank) -> Follower {
    Follower::new(rank, word.to_owned(), Arc::clone(&of.live), of.asks_to_stop())
}
