//! The state that all clones of a monitor share, and the path of a batch out of the training thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trainmon_alerts::AlertManager;
use trainmon_control::{Control, Live, Switch};
use trainmon_core::config::Config;
use trainmon_core::{
    CollectiveTotals, DropReason, Kind, Ledger, PartTable, Phase, Record, Statistic, StatisticSet, Step, TensorId,
    TensorTable,
};
use trainmon_service::{ForkGuard, Notice, Notices, Severity};

use crate::captures::RequestFiles;
use crate::cost::CostTotals;
use crate::guard::HookGuard;
use crate::late::MissingCounts;
use crate::queue::QueuedStep;
use crate::queue_loss::{LossChange, QueueCounts};
use crate::rank::Ranks;
use crate::recorder::{Leaving, MAX_STEP_RECORDS, Pushed, Recorder};
use crate::report::{Report, SinkReport, WORKER_HINT};
use crate::requests::Requests;
use crate::rotation::Rotation;
use crate::run_place::RunPlace;
use crate::scalar_names::ScalarNames;
use crate::sink_shared::SinkShared;
use crate::step_facts::StepFacts;
use crate::throttle::{Throttle, Verdict};
use crate::worker::Worker;

/// The state that all clones share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) ranks: Ranks,
    pub(crate) run: String,
    pub(crate) place: RunPlace,
    pub(crate) tensors: TensorTable,
    pub(crate) requests: Requests,
    /// The step in progress, the active plan, and the channel for a new plan.
    pub(crate) live: Arc<Live>,
    pub(crate) rotation: Arc<Rotation>,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) captures: RequestFiles,
    /// `None` if live control is off or the monitor is shut down.
    pub(crate) control: Mutex<Option<Control>>,
    pub(crate) alerts: Arc<AlertManager>,
    /// `None` once shut down, and in an inert monitor.
    pub(crate) worker: Mutex<Option<Worker>>,
    pub(crate) sinks: Vec<(Arc<SinkShared>, Vec<String>)>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) collectives: Arc<CollectiveTotals>,
    pub(crate) part_table: Arc<PartTable>,
    pub(crate) costs: Arc<CostTotals>,
    pub(crate) guard: HookGuard,
    pub(crate) fork: ForkGuard,
    pub(crate) so_far: SoFar,
    pub(crate) notices: Notices,
}

/// The history of a monitor; empty at its start.
#[derive(Default)]
pub(crate) struct SoFar {
    /// Whether shutdown has finished.
    pub(crate) is_shut_down: AtomicBool,
    /// Steps offered to the worker, and steps that its queue dropped.
    steps: QueueCounts,
    /// Numbers missing from delivered steps.
    missing: MissingCounts,
    /// Whether the user was warned of a step with too many records.
    full_step_told: AtomicBool,
    /// Whether the opening message was logged, so that the closing one follows.
    pub(crate) is_announced: AtomicBool,
    pub(crate) unsupported_told: Mutex<Vec<String>>,
    pub(crate) scalars: Mutex<ScalarNames>,
}

impl Inner {
    pub(crate) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this tensor is measured in this step. Tensors from the script always are.
    pub(crate) fn admits(&self, tensor: TensorId, kind: Kind) -> bool {
        kind == Kind::Adhoc || self.rotation.admits(tensor)
    }

    /// Counts a record and reports its outcome.
    pub(crate) fn count(&self, pushed: Pushed) {
        self.count_all(1, u64::from(pushed == Pushed::Kept), pushed);
    }

    /// Counts records, of which `kept` were kept, and reports the outcome of the others.
    fn count_all(&self, records: u64, kept: u64, pushed: Pushed) {
        self.ledger.observe(records);
        if kept < records {
            self.ledger.skip(records - kept);
        }
        if pushed == Pushed::StepFull && !self.so_far.full_step_told.swap(true, Ordering::Relaxed) {
            self.notices.warn(
                format!("the step has {MAX_STEP_RECORDS} records; further ones are only counted until it ends"),
                Some("end each step with `Watch::step` or `Monitor::end_step`".to_owned()),
            );
        }
    }

    /// Ends the step in progress and sends the batches that are ready.
    pub(crate) fn end_step(&self, facts: StepFacts) {
        let start = Instant::now();
        let mut recorder = self.recorder();
        if recorder.queue.is_none() {
            return;
        }
        if let Some(ops) = recorder.close(self.ledger.snapshot(), facts) {
            self.requests.replace(ops.iter().copied().collect());
        }
        let verdict = recorder.judge_last_step();
        let switched = self.live.take_due(recorder.clock.step());
        if let Some(switch) = &switched {
            self.switch(&mut recorder, switch);
        }
        self.rotation.set(recorder.sampling_stride(), recorder.clock.turn());
        self.live.begin_step(recorder.clock.step(), recorder.collecting(), recorder.sampling_stride());
        let notices = self.send(&mut recorder, false);
        // The batch has been sent, so the time for sending it counts in the next one.
        recorder.add_cost(Phase::Offer, start.elapsed(), 0);
        let budget = recorder.throttle.as_ref().map_or(1.0, Throttle::budget);
        drop(recorder);
        self.tell(&notices);
        self.tell_throttling(verdict, budget);
    }

    /// Applies a plan to the step that begins now.
    fn switch(&self, recorder: &mut Recorder, switch: &Switch) {
        // For a requested end or captures, the plan is unchanged, including settings made by the script.
        if !switch.keeps_plan {
            recorder.switch(switch, self.ranks.rank.0);
            self.requests.take_up(&self.config.with_plan(&switch.plan));
        }
        self.live.set_switched(switch, recorder.clock.step());
    }

    fn tell_throttling(&self, verdict: Verdict, budget: f64) {
        // Rounded: 100 times 0.07 is 7.000000000000001.
        let percent = (1e6 * budget).round() / 1e4;
        match verdict {
            Verdict::Keep => {}
            Verdict::Less(stride) => self.notices.warn(
                format!("measuring took more than {percent} % of the step; trainmon now measures one layer in {stride} per step"),
                Some(
                    "measure less, or raise `overhead_budget` or `step_interval`; `sampling_ratio` shows it".to_owned(),
                ),
            ),
            Verdict::More(1) => self.notices.info("measuring is within its budget again; trainmon measures every layer"),
            Verdict::More(stride) => {
                self.notices.info(format!("measuring is below its budget; trainmon now measures one layer in {stride} per step"));
            }
            Verdict::Exhausted => self.notices.warn(
                format!("measuring exceeds {percent} % of the step even at the lowest sampling ratio"),
                Some("raise `overhead_budget` or `step_interval`".to_owned()),
            ),
        }
    }

    /// Sends all closed batches that are ready.
    pub(crate) fn send_ready(&self) {
        if self.fork.is_child() {
            return;
        }
        // The lock is taken for each batch, so that the training thread does not wait for all of them.
        loop {
            let sent = self.send_oldest(&mut self.recorder(), false);
            let Some(notices) = sent else { return };
            self.tell(&notices);
        }
    }

    /// Sends the batches that are ready, first to the journal. Returns the notices for later: a receiver of notices may be slow,
    /// and the lock is held.
    #[must_use]
    fn send(&self, recorder: &mut Recorder, by_force: bool) -> Vec<Notice> {
        std::iter::from_fn(|| self.send_oldest(recorder, by_force)).flatten().collect()
    }

    /// Sends the oldest batch; `None` if it is not ready.
    #[must_use]
    fn send_oldest(&self, recorder: &mut Recorder, by_force: bool) -> Option<Vec<Notice>> {
        let Leaving { batch, missing, is_overdue } = recorder.next_ready(by_force)?;
        let mut notices = self.so_far.missing.leave_without(batch.step, missing, is_overdue);
        self.costs.add_step(&batch.cost, batch.duration, batch.bytes_read);
        self.live.add_step(batch.cost.in_step(), batch.duration, batch.bytes_read);
        let records = batch.records.len() as u64;
        let in_journal = recorder.journal.as_mut().is_some_and(|journal| journal.append(&batch, &mut notices));
        self.so_far.steps.offer();
        let outcome = match &recorder.queue {
            Some(queue) => queue.offer(QueuedStep { batch, in_journal }),
            None => Err(DropReason::WorkerGone),
        };
        self.ledger.offer(records, outcome);
        match (&mut recorder.journal, outcome) {
            (Some(journal), Ok(())) if !in_journal => journal.hand_over(),
            (Some(journal), Err(_)) if in_journal => journal.keep_alone(records),
            _ => {}
        }
        match outcome {
            Ok(()) => self.alerts.announce(),
            Err(DropReason::QueueFull) => notices.extend(self.so_far.steps.drop_one().map(overflow)),
            Err(DropReason::WorkerGone) => {}
        }
        Some(notices)
    }

    fn tell(&self, notices: &[Notice]) {
        for notice in notices {
            self.notices.say(notice);
        }
    }

    /// Changes the statistics: at once if nothing of the step in progress is measured yet. Otherwise, both sets are measured
    /// until the step ends, then only the new one. All records of a batch therefore have its columns.
    pub(crate) fn set_ops(&self, ops: &[Statistic]) {
        let set: StatisticSet = ops.iter().copied().collect();
        let mut recorder = self.recorder();
        if recorder.set_ops(ops.into()) {
            self.requests.replace(set);
        } else {
            self.requests.add(set);
        }
    }

    pub(crate) fn record_late(&self, step: Step, records: impl Iterator<Item = Record>) {
        let (kept, lost, pushed) = self.recorder().push_late(step, records);
        self.count_all(kept + lost, kept, pushed);
    }

    /// Whether the monitor is neither inert nor shut down.
    pub(crate) fn is_running(&self) -> bool {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The addresses of live control.
    pub(crate) fn ways_in(&self) -> Option<Vec<String>> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.as_ref().map(|control| control.locations().to_vec()).filter(|ways| !ways.is_empty())
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            next_step: self.live.step(),
            counts: self.ledger.snapshot(),
            steps: self.so_far.steps.loss(),
            missing: self.so_far.missing.snapshot(),
            sinks: self
                .sinks
                .iter()
                .map(|(shared, locations)| SinkReport {
                    name: shared.name,
                    counts: shared.ledger.snapshot(),
                    steps: shared.steps.loss(),
                    locations: locations.clone(),
                })
                .collect(),
            collectives: self.collectives.summaries(),
            cost: self.costs.summary(),
        }
    }

    pub(crate) fn shutdown(&self) {
        // Only the parent has the threads, and a lock may have been held during the fork.
        if self.fork.is_child() {
            return;
        }
        let Some(worker) = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let deadline = Instant::now() + Duration::from_millis(self.config.pipeline.shutdown_timeout_ms);
        self.live.end();
        self.alerts.close_by(deadline);
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(control) = &mut control {
            control.close(deadline);
        }
        let mut recorder = self.recorder();
        let notices = self.send(&mut recorder, true);
        self.ledger.skip(recorder.discard_open());
        recorder.queue = None;
        drop(recorder);
        self.tell(&notices);
        worker.finish(deadline, &self.notices);
        self.alerts.hand_over(deadline);
        // Not earlier: alerts of the last steps go to rank 0.
        if let Some(control) = control {
            control.stop(deadline);
        }
        self.alerts.finish(deadline);
        self.captures.finish(deadline);
        if self.so_far.is_announced.load(Ordering::Relaxed) {
            self.notices.info(self.report().closing());
        }
        self.so_far.is_shut_down.store(true, Ordering::Relaxed);
    }
}

fn overflow(change: LossChange) -> Notice {
    let message = match change {
        LossChange::First => "the worker is too slow: it dropped and counted this step's records".to_owned(),
        LossChange::Share(loss) => format!("the worker is too slow: {loss} dropped and counted so far"),
    };
    Notice {
        severity: Severity::Warning,
        message: format!("{message}; training continues"),
        hint: Some(WORKER_HINT.to_owned()),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}
