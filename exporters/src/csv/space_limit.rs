//! The size limit of a rank's files. Older steps are thinned out on a separate thread.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Instant;

use trainmon_service::step_back;

use super::thinning::{TOLD_IN, Thinned, Thinning};

/// The largest share of the limit in one file, because only complete files are thinned out.
const FILES: u64 = 16;
/// The reduced numbers of steps per file, if the layout's number does not fit. Each divides the previous one.
const FEWER_STEPS: [u64; 2] = [1_000, 100];
const MIB: u64 = 1 << 20;

/// The size limit of one rank's files.
#[derive(Debug)]
pub(super) struct SpaceLimit {
    limit: u64,
    /// The thinning, unless it is in progress.
    thinning: Option<Thinning>,
    under_way: Option<Receiver<(Thinning, Result<Thinned, String>)>>,
    /// The first step of the current files.
    current: Option<u64>,
    /// The last ratio reported: one step in this many.
    told: u64,
    is_full_told: bool,
    warning: Option<String>,
}

impl SpaceLimit {
    /// `limit`: the maximum size of the files in the directory, in bytes.
    pub(super) fn new(directory: PathBuf, limit: u64) -> Self {
        let thinning = Some(Thinning::new(directory, limit));
        Self { limit, thinning, under_way: None, current: None, told: 1, is_full_told: false, warning: None }
    }

    /// The number of steps per file, at most `most`, if a training step has `bytes_per_step` bytes.
    pub(super) fn steps_per_file(&self, most: u64, bytes_per_step: u64) -> u64 {
        let fits = |steps: &u64| steps.saturating_mul(bytes_per_step) <= self.limit / FILES;
        let fewer = FEWER_STEPS.into_iter().filter(|steps| *steps < most);
        let all: Vec<u64> = [most].into_iter().chain(fewer).collect();
        all.iter().copied().find(fits).unwrap_or(all[all.len() - 1])
    }

    /// Records that the current files begin with this step. Returns whether files have become complete since the last
    /// call.
    pub(super) fn look(&mut self, first: u64) -> bool {
        self.take_up();
        let has_new_files = self.current.replace(first).is_some_and(|current| current != first);
        if has_new_files {
            self.begin(first);
        }
        has_new_files
    }

    fn begin(&mut self, current: u64) {
        let Some(mut thinning) = self.thinning.take() else { return };
        let (done, under_way) = sync_channel(1);
        let body = move || {
            step_back();
            let thinned = thinning.free_space(current).map_err(|error| error.to_string());
            // After the end of the run, the receiver is gone.
            let _taken = done.send((thinning, thinned)).is_ok();
        };
        match std::thread::Builder::new().name("trainmon-thin".to_owned()).spawn(body) {
            Ok(_detached) => self.under_way = Some(under_way),
            Err(error) => {
                self.warning = Some(format!("csv: older steps are not thinned out: cannot start the thread: {error}"));
            }
        }
    }

    fn take_up(&mut self) {
        match self.under_way.as_ref().map(Receiver::try_recv) {
            Some(Ok((thinning, thinned))) => {
                (self.thinning, self.under_way) = (Some(thinning), None);
                self.tell(thinned);
            }
            Some(Err(TryRecvError::Disconnected)) => self.under_way = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
    }

    fn tell(&mut self, thinned: Result<Thinned, String>) {
        let all = self.limit / MIB;
        match thinned {
            Ok(Thinned { steps: Some((first, last)), one_in, .. }) if one_in > self.told => {
                self.told = one_in;
                self.warning = Some(format!(
                    "csv: the files reached their limit of {all} MiB (`csv_budget_mib`): at most one in {one_in} of steps {first} to {last} \
                     is kept; `{TOLD_IN}` lists them"
                ));
            }
            Ok(Thinned { is_too_much: true, .. }) if !self.is_full_told => {
                self.is_full_told = true;
                self.warning =
                    Some(format!("csv: the files exceed {all} MiB, and no older steps are left to thin out"));
            }
            Ok(_) => {}
            Err(error) => self.warning = Some(format!("csv: older steps are not thinned out: {error}")),
        }
    }

    /// The pending warning, once.
    pub(super) fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Waits for the thinning in progress, until the deadline.
    pub(super) fn finish(&mut self, deadline: Instant) {
        let Some(under_way) = self.under_way.take() else { return };
        if let Ok((_, thinned)) = under_way.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.tell(thinned);
        }
    }
}
