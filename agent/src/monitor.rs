//! The public interface: pass tensors, end steps, shut down. `start` opens it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use trainmon_alerts::{AlertStateError, LoadedAlertState, Raised};
use trainmon_core::config::{Config, Plan};
use trainmon_core::{
    AlertRule, AlertTotalsSnapshot, Kind, MicroStep, Phase, Record, Statistic, Step, TensorId, TensorInfo, TensorStats,
    TensorView,
};
use trainmon_service::{Notice, Notices, Severity, panic_text};
use trainmon_stats::{Request, measure};

use crate::cost::CostSummary;
use crate::inner::Inner;
use crate::label::Label;
use crate::pending_step::PendingStep;
use crate::rank::Ranks;
use crate::recorder::Pushed;
use crate::report::Report;
use crate::step_facts::StepFacts;

/// The maximum number of different reasons reported for unmeasured tensors; further ones are only counted.
const MAX_REASONS_TOLD: usize = 32;

/// A running monitor. Cheap to clone; every clone is the same monitor.
///
/// No method panics, blocks on I/O or changes its inputs. Methods may be called from any thread. Dropping the last clone shuts
/// the monitor down within its deadline; [`Monitor::shutdown`] does so at a chosen moment and returns the report.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<Inner>,
}

impl Drop for Monitor {
    /// Leaks the state in a forked child: the other ends of its queues belong to threads of the parent, and one of them may have
    /// held a queue's lock during the fork.
    fn drop(&mut self) {
        if self.inner.fork.is_child() {
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

impl Monitor {
    pub(crate) fn assemble(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The config the monitor runs with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The rank of this process, and the size of the job.
    pub fn ranks(&self) -> Ranks {
        self.inner.ranks
    }

    /// The run's name: the `run` label, the same on every rank.
    pub fn run_name(&self) -> &str {
        &self.inner.run
    }

    /// The directory of this run. In the layout `run`, it holds the directories of all ranks and has the run's name, with a
    /// number appended if an earlier run has that name. In msprobe's layout it is the rank's own and is created in the first
    /// step. `None` if nothing is written there.
    pub fn run_directory(&self) -> Option<&Path> {
        self.inner.place.run_directory.as_deref()
    }

    /// The directory of this rank's files; see [`run_directory`](Self::run_directory).
    pub fn rank_directory(&self) -> Option<&Path> {
        self.inner.place.rank_directory.as_deref()
    }

    /// The locations of each exporter's output, by exporter. `control` lists the Unix socket or address of live control, then the
    /// file that describes both.
    pub fn locations(&self) -> Vec<(&'static str, Vec<String>)> {
        let sinks = self.inner.sinks.iter().map(|(shared, places)| (shared.name, places.clone()));
        sinks.chain(self.inner.ways_in().map(|ways| ("control", ways))).collect()
    }

    /// Assigns an id to a tensor. Call it once per tensor, when installing the hook.
    pub fn register(&self, name: &str, vpp_stage: u32) -> TensorId {
        let info = TensorInfo { name: name.into(), vpp_stage };
        let id = self.inner.tensors.register(info.clone());
        self.inner.rotation.register(id, &info);
        id
    }

    /// The name of a tensor and the number of its model chunk.
    pub fn tensor(&self, id: TensorId) -> Option<TensorInfo> {
        self.inner.tensors.get(id)
    }

    /// The step in progress.
    pub fn step(&self) -> Step {
        self.inner.live.step()
    }

    /// Whether the step in progress is measured on this rank. A front can check it to skip its own work.
    pub fn collecting(&self) -> bool {
        self.inner.live.is_collecting() && !self.inner.fork.is_child()
    }

    /// Excludes everything until [`resume`](Self::resume) from the step in progress. Only the training thread may call it.
    pub fn suspend(&self) {
        self.inner.live.suspend();
    }

    /// Continues the step in progress.
    pub fn resume(&self) {
        self.inner.live.resume();
    }

    /// The request for a kind, empty for a feature that the front computes; `None` if the config does not measure it.
    pub fn request(&self, kind: Kind) -> Option<Request> {
        self.inner.requests.get(kind)
    }

    /// The current plan: the config's, or that of live control.
    pub fn plan(&self) -> Arc<Plan> {
        self.inner.live.plan()
    }

    /// The number of changes of the plan. If it changed when a step begins, a front reads targets and kinds from the
    /// [`plan`](Self::plan) again. One load.
    pub fn plan_version(&self) -> u64 {
        self.inner.live.version()
    }

    /// Declares that the front reads the targets of the [`plan`](Self::plan) when [`plan_version`](Self::plan_version) changes,
    /// so that live control may change them.
    pub fn follow_targets(&self) {
        self.inner.live.follow_targets();
    }

    /// Whether a tensor is measured in the step in progress: its kind is requested, and the overhead budget includes it.
    /// [`observe`](Self::observe) and [`record`](Self::record) check it too. A front that checks first can skip its own work, and
    /// then calls [`leave_out`](Self::leave_out). A few loads.
    pub fn wants(&self, tensor: TensorId, kind: Kind) -> bool {
        self.collecting() && self.inner.requests.get(kind).is_some() && self.inner.admits(tensor, kind)
    }

    /// Counts a tensor that was passed but not measured because it was not requested.
    pub fn leave_out(&self, kind: Kind) {
        if self.inner.requests.get(kind).is_some() {
            self.inner.count(Pushed::NotItsTurn);
        }
    }

    /// The sampling factor of the step in progress: one layer in this many is measured, to keep the overhead budget; 1 means all.
    /// Above 1, a front cannot combine a norm over tensors.
    pub fn sampling_stride(&self) -> u32 {
        self.inner.rotation.stride()
    }

    /// Changes the statistics of every signal, in column order. Returns them without duplicates; the norm if none is given.
    ///
    /// They apply at once if nothing of the step in progress is measured yet, else from the next step on. Until then, both
    /// sets are measured and the old one is written. A CSV file of several steps is renamed to `….csv.old`, and a new file
    /// gets the new columns. [`Monitor::config`] does not change. A front that reuses readings of unchanged tensors must not
    /// use one from another [`Monitor::request`].
    pub fn set_ops(&self, ops: &[Statistic]) -> Vec<Statistic> {
        let mut asked: Vec<Statistic> = Vec::with_capacity(ops.len());
        for &op in if ops.is_empty() { &[Statistic::Norm] } else { ops } {
            if !asked.contains(&op) {
                asked.push(op);
            }
        }
        if !self.inner.fork.is_child() {
            self.inner.set_ops(&asked);
        }
        asked
    }

    /// Measures a tensor in place and records it. Returns the reading, for a front that can use it twice.
    ///
    /// `None` if the kind is not configured or the step is not measured. Cost: one pass over the tensor; no allocation once
    /// the step's record buffer has its final size.
    pub fn observe(
        &self,
        tensor: TensorId,
        kind: Kind,
        micro_step: MicroStep,
        view: &TensorView<'_>,
    ) -> Option<TensorStats> {
        let start = Instant::now();
        let label = Label { tensor, kind, micro_step };
        let request = self.request_now(label)?;
        let cost = (start, view.size_in_bytes() as u64);
        self.record_read(label, request, cost, |request| measure(view, request)).map(|(reading, _)| reading)
    }

    /// The request for a tensor that is passed now. Counts one that is not measured in this step.
    pub fn request_now(&self, label: Label) -> Option<Request> {
        let request = self.request(label.kind)?;
        let why_not = if !self.collecting() {
            Pushed::TooLate
        } else if !self.inner.admits(label.tensor, label.kind) {
            Pushed::NotItsTurn
        } else {
            return Some(request);
        };
        self.inner.count(why_not);
        None
    }

    /// Records the result of `read` for a tensor that [`request_now`](Self::request_now) admitted, and returns it with its
    /// request. If the request changes meanwhile, calls `read` again with the new one. The time since the start and the bytes
    /// read count with the record.
    pub(crate) fn record_read(
        &self,
        label: Label,
        mut request: Request,
        (start, bytes_read): (Instant, u64),
        mut read: impl FnMut(Request) -> TensorStats,
    ) -> Option<(TensorStats, Request)> {
        let (reading, pushed) = loop {
            let reading = read(request);
            let mut recorder = self.inner.recorder();
            // The statistics change only under this lock, so the reading has the columns of its batch.
            let now = self.request(label.kind)?;
            if now == request {
                // Another thread may have ended the step meanwhile.
                let pushed = if recorder.collecting() {
                    recorder.push(label.with(reading), Phase::Measure, start.elapsed(), bytes_read)
                } else {
                    Pushed::TooLate
                };
                break (reading, pushed);
            }
            request = now;
        };
        self.inner.count(pushed);
        Some((reading, request))
    }

    /// Records that a hook received no tensor where it expected one (an output without gradient).
    pub fn observe_missing(&self, tensor: TensorId, kind: Kind, micro_step: MicroStep) {
        if self.request(kind).is_some() {
            self.record(Record { tensor, kind, micro_step, reading: None }, Duration::ZERO, 0);
        }
    }

    /// Counts a tensor that cannot be measured (sparse, quantised, without memory) and reports each reason once. Reasons that
    /// differ only in numbers count as one.
    pub fn observe_unsupported(&self, tensor: TensorId, kind: Kind, why: &str) {
        if self.request(kind).is_none() {
            return;
        }
        self.inner.count(Pushed::TooLate);
        // The text may hold an address or a size; the rest identifies the reason.
        let reason: String = why.chars().filter(|letter| !letter.is_ascii_hexdigit()).collect();
        let mut told = self.inner.so_far.unsupported_told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_REASONS_TOLD || told.contains(&reason) {
            return;
        }
        told.push(reason);
        drop(told);
        let name = self.tensor(tensor).map_or_else(|| "?".to_owned(), |info| info.name.to_string());
        self.inner.notices.warn(format!("{kind} of `{name}` is not measured: {why}"), None);
    }

    /// Records a reading made elsewhere: derived from another, or computed by the front. `time` is its cost in the training
    /// thread, `bytes_read` the memory read for it.
    pub fn record(&self, record: Record, time: Duration, bytes_read: u64) {
        let pushed = if !self.inner.admits(record.tensor, record.kind) {
            Pushed::NotItsTurn
        } else if self.collecting() {
            self.inner.recorder().push(record, Phase::Measure, time, bytes_read)
        } else {
            Pushed::TooLate
        };
        self.inner.count(pushed);
    }

    /// Adds time that the training thread spent for the monitor outside of [`Monitor::observe`].
    pub fn add_cost(&self, phase: Phase, time: Duration) {
        if !self.inner.fork.is_child() {
            self.inner.recorder().add_cost(phase, time, 0);
        }
    }

    /// Keeps the batch of the step in progress open for readings that arrive after its end.
    pub fn pending_step(&self) -> PendingStep {
        let recorder = self.inner.recorder();
        let (step, count) = (recorder.clock.step(), recorder.holds());
        PendingStep::new(Arc::clone(&self.inner), step, count)
    }

    /// Ends the step: closes its batch, hands it over, and decides whether the next step is measured.
    ///
    /// Never waits: if the queue is full the batch is dropped and counted.
    pub fn end_step(&self, facts: StepFacts) {
        if self.inner.fork.is_child() {
            return;
        }
        if self.guard("end_step", || self.inner.end_step(facts)).is_none() {
            // Without this, steps that never end would accumulate in one batch.
            self.inner.live.stop_collecting();
        }
    }

    /// Counts a skipped step: the optimizer did not apply it (for example, a loss scaler found an overflow). Its measurements are
    /// discarded and counted as not sampled; the step keeps its number.
    pub fn skip_step(&self) {
        if !self.inner.fork.is_child() {
            let records = self.inner.recorder().skip_step();
            self.inner.ledger.skip(records);
        }
    }

    /// Restarts the step in progress, which the loop abandoned (a backward pass that ran out of memory, discarded gradients). Its
    /// measurements are discarded and counted as not sampled. Returns true, and counts the step as skipped, if its gradients held
    /// NaN or infinities.
    pub fn restart_step(&self) -> bool {
        if self.inner.fork.is_child() {
            return false;
        }
        let (records, is_skipped) = self.inner.recorder().restart_step();
        self.inner.ledger.skip(records);
        is_skipped
    }

    /// Counts a step as skipped whose gradients a device later reported as having NaN or infinities.
    pub fn count_skipped_step(&self) {
        if !self.inner.fork.is_child() {
            self.inner.recorder().count_skipped();
        }
    }

    /// Withdraws the step's records of these tensors and kind, except the last of each if `keep_last`: later records replaced
    /// them, or they turned out to be of another kind. Counts them as not sampled. One pass over the step's records.
    pub fn retract(&self, kind: Kind, tensors: &[TensorId], keep_last: bool) {
        if !tensors.is_empty() && !self.inner.fork.is_child() {
            let records = self.inner.recorder().retract(kind, tensors, keep_last);
            self.inner.ledger.skip(records);
        }
    }

    /// Whether an alert with the action `stop` requests the end of the training. The loop must end it. One load.
    ///
    /// With several ranks, it becomes true on all ranks when the same step begins, some seconds after the alert: they agree on it
    /// like on a change by live control. Until every rank has answered, it stays false.
    pub fn stop_requested(&self) -> bool {
        if self.inner.ranks.world_size > 1 { self.inner.live.is_stopped() } else { self.inner.alerts.stop_requested() }
    }

    /// The totals of all alerts so far.
    pub fn alert_totals(&self) -> AlertTotalsSnapshot {
        self.inner.alerts.totals().snapshot()
    }

    /// Raises an alert that the front found, on the front's own thread. Never panics; does nothing in a forked child.
    pub fn raise(&self, raised: Raised) {
        if !self.inner.fork.is_child() {
            self.inner.alerts.raise(raised);
        }
    }

    /// Sets the description of a hang for `trainmon ctl status`; `None` once the run continues.
    pub fn set_hang(&self, sentence: Option<String>) {
        self.inner.live.set_hang(sentence);
    }

    /// Counts another finding of an alert that is active.
    pub fn count_finding(&self, rule: AlertRule) {
        self.inner.alerts.count(rule);
    }

    /// The state of the alert rules after all steps ended so far, to be saved with a checkpoint. Its JSON text (`to_string`)
    /// is complete.
    ///
    /// Waits for the worker, usually milliseconds and at most five seconds. Steps that wait for late device readings are not
    /// included. `null` in a forked child, and, with a warning, if the worker does not finish in time.
    pub fn alert_state(&self) -> serde_json::Value {
        if self.inner.fork.is_child() {
            return serde_json::Value::Null;
        }
        let state = self.guard("alert state", || self.inner.alerts.save());
        state.flatten().unwrap_or_default()
    }

    /// Continues from a saved state, as if the run had not stopped. Call it before the first step. Series of rules that the
    /// config no longer has are skipped; the monitor warns and returns them. `null` has no effect. Waits at most five seconds.
    ///
    /// # Errors
    /// The value is not a saved state or has another version, or the rules are busy. The rules are then unchanged.
    pub fn load_alert_state(&self, state: serde_json::Value) -> Result<LoadedAlertState, AlertStateError> {
        if state.is_null() || self.inner.fork.is_child() {
            return Ok(LoadedAlertState::default());
        }
        self.inner.alerts.load(state)
    }

    /// The monitor's notices, for further messages.
    pub fn notices(&self) -> Notices {
        self.inner.notices.clone()
    }

    /// Logs information through the monitor's notices.
    pub fn info(&self, message: impl Into<String>, hint: Option<String>) {
        self.inner.notices.say(&Notice { severity: Severity::Info, message: message.into(), hint });
    }

    /// Warns through the monitor's notices that something is not measured or not delivered.
    pub fn warn(&self, message: impl Into<String>, hint: Option<String>) {
        self.inner.notices.warn(message, hint);
    }

    /// Runs a hook and keeps its panics away from the host. A hook that panics is disabled and reported once; the result is then
    /// `None`, also for all later calls.
    pub fn guard<R>(&self, hook: &'static str, body: impl FnOnce() -> R) -> Option<R> {
        if self.inner.guard.is_disabled(hook) {
            return None;
        }
        catch_unwind(AssertUnwindSafe(body)).map_err(|panic| self.inner.guard.disable(hook, &panic_text(&*panic))).ok()
    }

    /// The monitor's cost so far.
    pub fn cost(&self) -> CostSummary {
        self.inner.costs.summary()
    }

    /// The report so far; final once the monitor is shut down.
    pub fn report(&self) -> Report {
        self.inner.report()
    }

    /// Whether all deliveries are finished. A [`shutdown`](Self::shutdown) on another thread may still be in progress. True in a
    /// forked child.
    pub fn is_shut_down(&self) -> bool {
        self.inner.so_far.is_shut_down.load(Ordering::Relaxed) || self.inner.fork.is_child()
    }

    /// Delivers what is queued, within the configured deadline, and closes every exporter. Later calls only report.
    pub fn shutdown(&self) -> Report {
        self.inner.shutdown();
        self.inner.report()
    }
}
