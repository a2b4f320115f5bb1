//! How much room the files of a rank may take, and what makes some: older steps are thinned out on a thread of its own.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Instant;

use trainmon_service::step_back;

use super::thinning::{TOLD_IN, Thinned, Thinning};

/// A file holds at most this part of what all may have: only complete files are thinned out.
const FILES: u64 = 16;
/// Steps of a file, where fewer fit than the layout has. Each divides the one before.
const FEWER_STEPS: [u64; 2] = [1_000, 100];
const MIB: u64 = 1 << 20;

/// The room of one rank.
#[derive(Debug)]
pub(super) struct Room {
    limit: u64,
    /// The thinning, while it is not under way.
    thinning: Option<Thinning>,
    under_way: Option<Receiver<(Thinning, Result<Thinned, String>)>>,
    /// The first step of the files that are written now.
    current: Option<u64>,
    /// What was told last: one step in so many.
    told: u64,
    is_full_told: bool,
    warning: Option<String>,
}

impl Room {
    /// `limit`: bytes of the files in the directory.
    pub(super) fn new(directory: PathBuf, limit: u64) -> Self {
        let thinning = Some(Thinning::new(directory, limit));
        Self { limit, thinning, under_way: None, current: None, told: 1, is_full_told: false, warning: None }
    }

    /// How many steps a file is to have, at most so many, where a step of the training has so many bytes.
    pub(super) fn steps_per_file(&self, most: u64, bytes_per_step: u64) -> u64 {
        let fits = |steps: &u64| steps.saturating_mul(bytes_per_step) <= self.limit / FILES;
        let fewer = FEWER_STEPS.into_iter().filter(|steps| *steps < most);
        let all: Vec<u64> = [most].into_iter().chain(fewer).collect();
        all.iter().copied().find(fits).unwrap_or(all[all.len() - 1])
    }

    /// The files that begin with this step are written now. Gives whether those before are complete since the last call.
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
            let thinned = thinning.make_room(current).map_err(|error| error.to_string());
            // Nobody waits any more where the run has ended.
            let _taken = done.send((thinning, thinned)).is_ok();
        };
        match std::thread::Builder::new().name("trainmon-thin".to_owned()).spawn(body) {
            Ok(_detached) => self.under_way = Some(under_way),
            Err(error) => self.warning = Some(format!("csv: older steps are not thinned out: no thread: {error}")),
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
                    "csv: the files reached their {all} MiB (`csv_budget_mib`): of steps {first} to {last} one in {one_in} or fewer \
                     are kept; `{TOLD_IN}` says which"
                ));
            }
            Ok(Thinned { is_too_much: true, .. }) if !self.is_full_told => {
                self.is_full_told = true;
                self.warning =
                    Some(format!("csv: the files have more than {all} MiB, and no older step can be thinned out"));
            }
            Ok(_) => {}
            Err(error) => self.warning = Some(format!("csv: older steps are not thinned out: {error}")),
        }
    }

    /// What is to be said, once.
    pub(super) fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Waits until then for what is under way.
    pub(super) fn finish(&mut self, deadline: Instant) {
        let Some(under_way) = self.under_way.take() else { return };
        if let Ok((_, thinned)) = under_way.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.tell(thinned);
        }
    }
}
