//! Captures on demand for a front: the due step, the directory of its files, and the outcome.
//!
//! `trainmon-control` agrees on a capture with the other ranks. A front calls [`Monitor::due_capture`] when a step begins,
//! captures the step, and reports the outcome.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use trainmon_control::{AgreedCapture, CaptureState};
use trainmon_core::Step;
use trainmon_core::config::{CaptureOnDemand, Config, FileLayout};
use trainmon_service::{Notice, Severity};

use crate::captures::{ReplayOutcome, RequestFile};
use crate::inner::Inner;
use crate::monitor::Monitor;
use crate::run_place::ranks_here;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// A step to capture.
#[derive(Debug)]
pub struct CaptureTicket {
    /// The step; for a replayed step, its original number.
    pub step: Step,
    /// The step in progress.
    at: Step,
    /// This rank, as in the name of its directory.
    pub rank: u32,
    /// The config of the capture as text: level, task, scope, directory, size limit.
    pub config: String,
    capture: Arc<AgreedCapture>,
    /// The directory of this rank's files of the step.
    place: PathBuf,
    began: SystemTime,
}

impl CaptureTicket {
    /// The directory of this rank's files of the step.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The number of the capture, equal on all ranks.
    pub fn number(&self) -> u64 {
        self.capture.id
    }

    /// A short description of the capture and its requester.
    pub fn in_words(&self) -> String {
        format!("{}, requested by {}", self.capture.order.in_words(), self.capture.asked)
    }
}

impl Monitor {
    /// Declares that the front captures steps on [`due_capture`](Self::due_capture). Without it, requests for captures are
    /// refused.
    pub fn offer_captures(&self) {
        self.inner().live.captures().offer();
    }

    /// Whether captures can be requested during training.
    pub fn has_captures(&self) -> bool {
        self.inner().config.capture.is_some()
    }

    /// Requests a capture of the next step that all ranks can reach, like a signal. Safe in a signal handler: one atomic add.
    pub fn ask_for_capture(&self) {
        self.inner().live.captures().ask_by_signal();
    }

    /// The capture that includes the step in progress. Costs one load if none is near.
    #[inline]
    pub fn due_capture(&self) -> Option<Arc<AgreedCapture>> {
        if self.inner().fork.is_child() { None } else { self.inner().live.captures().due(self.step()) }
    }

    /// The latest captures on demand, oldest first.
    pub fn captures(&self) -> Vec<CaptureState> {
        self.inner().live.captures().states()
    }

    /// Registers that the front keeps the step in progress for a replay. Returns the step that the front can discard for it.
    pub fn keep_step(&self) -> Option<Step> {
        let inner = self.inner();
        let most = inner.config.capture.as_ref().map_or(0, CaptureOnDemand::kept_steps);
        inner.live.captures().kept().keep(self.step().0, most as usize).map(Step)
    }

    /// Registers that the front no longer keeps steps.
    pub fn forget_steps(&self) {
        self.inner().live.captures().kept().forget_all();
    }

    /// Begins capturing the step in progress, or the replay of an earlier one. `None` if this is impossible: the capture has
    /// then ended with a warning.
    pub fn begin_capture(&self, capture: &Arc<AgreedCapture>) -> Option<CaptureTicket> {
        let inner = self.inner();
        let (at, rank) = (self.step(), inner.ranks.rank.0);
        let step = capture.replay.map_or(at, Step);
        if rank == 0 && at.0 == capture.first {
            inner.tell_what_is_captured_instead(capture);
        }
        let root = root(inner);
        let budget_mib = match inner.disk_budget_mib(&root) {
            Ok(budget) => budget,
            Err(why) => {
                inner.end_capture(capture, Some(why), None);
                return None;
            }
        };
        let place = root.join(format!("step{step}")).join(format!("rank{rank}"));
        let config = capture.order.text(&root.to_string_lossy(), Some(budget_mib));
        inner.live.captures().begin(capture.id, place.clone());
        let (capture, began) = (Arc::clone(capture), SystemTime::now());
        Some(CaptureTicket { step, at, rank, config, capture, place, began })
    }

    /// Ends a captured step. `bytes`: the size of its files, or none if its directory was unavailable (it may belong to another
    /// capture). `why`: the reason if it is incomplete. `replayed`: the outcome of a replay. The capture ends after its last step
    /// or an incomplete one.
    pub fn end_capture(
        &self,
        ticket: CaptureTicket,
        bytes: Option<u64>,
        why: Option<String>,
        replayed: Option<ReplayOutcome>,
    ) {
        let inner = self.inner();
        // In a forked child, the threads and the files belong to the parent.
        if inner.fork.is_child() {
            return;
        }
        let CaptureTicket { step, at, capture, place, began, .. } = ticket;
        let is_opened = bytes.is_some();
        let documents = ["dump.json", "stack.json", "construct.json"].map(|name| size_of(&place.join(name)));
        let bytes = bytes.map_or(0, |bytes| bytes + documents.iter().sum::<u64>());
        inner.live.captures().end_step(capture.id, bytes);
        let is_last = at.0.saturating_add(1) >= capture.end();
        if why.is_some() || is_last {
            inner.end_capture(&capture, why.clone(), replayed);
        }
        if is_opened && place.is_dir() {
            let before = (at.0 == capture.first).then(|| inner.captures.before.look(&inner.config, step));
            let run = inner.run.clone();
            let (rank, world_size) = (inner.ranks.rank.0, inner.ranks.world_size);
            let file = RequestFile { place, run, rank, world_size, capture, step, began, bytes, why, replayed, before };
            inner.captures.write(file);
        }
    }
}

impl Inner {
    /// Warns that not every rank can do the replay that an alert requested.
    fn tell_what_is_captured_instead(&self, capture: &AgreedCapture) {
        if let (Some(wanted), None) = (capture.asked.replay(), capture.replay) {
            self.notices.warn(
                format!("cannot replay step {wanted}; capturing step {} instead", capture.first),
                Some("to keep steps for a replay, call them through `watch.step_fn` (docs/capture.md)".to_owned()),
            );
        }
    }

    fn end_capture(&self, capture: &AgreedCapture, why: Option<String>, replayed: Option<ReplayOutcome>) {
        let (words, first) = (capture.order.in_words(), capture.first);
        let root = root(self);
        let what = capture.replay.map(|step| format!("of step {step}, replayed before step {first},"));
        match &why {
            None if self.ranks.rank.0 == 0 => {
                let hint = format!("open it with `trainmon compare` or msprobe's tools: {}", root.display());
                let asked = &capture.asked;
                let message = match capture.replay {
                    Some(step) => format!(
                        "captured step {step}, replayed before step {first}: {words}, requested by {asked}{}",
                        replayed.map(ReplayOutcome::in_words).unwrap_or_default()
                    ),
                    None => format!("captured from step {first} on: {words}, requested by {asked}"),
                };
                self.notices.say(&Notice { severity: Severity::Info, message, hint: Some(hint) });
            }
            None => {}
            Some(why) => {
                let what = what.unwrap_or_else(|| format!("from step {first} on"));
                let message = format!("the capture {what} is incomplete: {why}");
                self.notices.warn(message, Some("training continues; the files written so far are kept".to_owned()));
            }
        }
        self.live.captures().end(capture.id, why);
    }

    /// The size limit of the step in MiB: the rest of the run's budget, and this rank's share of half of the free space.
    fn disk_budget_mib(&self, root: &Path) -> Result<u64, String> {
        let budget = self.config.capture.as_ref().map_or(0, |capture| capture.budget_mib);
        let left = budget.saturating_sub(self.live.captures().bytes() / MIB);
        if left == 0 {
            return Err(format!("the run's captures have reached their limit of {budget} MiB (`capture.budget_mib`)"));
        }
        // The ranks of a machine write at the same time.
        let ranks = u64::from(ranks_here(self.ranks.world_size));
        let half = free_mib(root).map_or(u64::MAX, |free| free / 2 / ranks);
        if half == 0 {
            return Err(format!("no free disk space for `{}`", root.display()));
        }
        Ok(left.min(half))
    }
}

/// The parent directory of the steps: shared by all ranks if the run has its own directory.
fn root(inner: &Inner) -> PathBuf {
    let Config { capture, csv_layout, .. } = &inner.config;
    if let Some(given) = capture.as_ref().and_then(|capture| capture.dump_path.clone()) {
        return given;
    }
    match (&inner.place.run_directory, csv_layout.layout) {
        (Some(run), Some(FileLayout::Run)) => run.join("captures"),
        _ => inner.place.base.join(format!("captures-{}", as_word(&inner.run))),
    }
}

/// Replaces characters other than letters, digits, dashes and dots, for use as a directory name.
fn as_word(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    text.chars().map(letter).collect()
}

/// The free space on the disk of a directory that may not exist yet; `None` if the system does not report it.
fn free_mib(directory: &Path) -> Option<u64> {
    let there = directory.ancestors().find(|place| place.is_dir() || place.as_os_str().is_empty())?;
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let told = rustix::fs::statvfs(there).ok()?;
    Some(told.f_bavail.saturating_mul(told.f_frsize) / MIB)
}

fn size_of(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.len())
}
