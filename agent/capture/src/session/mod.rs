//! One step of one rank, while it is captured.

mod calls;
mod entry;
mod later;
mod progress;
mod records;
mod tensor_files;
mod tensor_text;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use trainmon_capture_files::{
    EntryRecord, Frames, Header, Hole, JsonText, Made, RankDirectory, RankName, Recorder, WriteError, documents_of,
};
use trainmon_core::config::CaptureTask;
use trainmon_core::with_causes;
use trainmon_service::{ForkGuard, Notices};

pub use self::calls::CallName;
use self::calls::State;
pub use self::entry::Entry;
use self::progress::ProgressLines;
use self::records::Records;
pub use self::values::{Peer, Values};
use crate::bench::Bench;
use crate::files::Files;
use crate::log::ErrorLog;
use crate::plan::CapturePlan;

/// The number of differences that are each reported.
const MOST_TOLD: u64 = 10;

/// A step of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturePlace {
    /// The step's number.
    pub step: u64,
    /// The rank, or `None` while it is unknown; the directory is then named after the process.
    pub rank: Option<u64>,
}

/// Error of [`Session::open`]. The training should continue without the capture.
pub type OpenError = WriteError;

/// The number of a recorded call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackId(pub(crate) u32);

/// The progress of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of pieces of entries in the record file.
    pub entries: u64,
    /// The size of the record file and the tensor files in bytes. Files with several names count once.
    pub bytes: u64,
    /// The number of complete tensor files, counting each name.
    pub files: u64,
    /// The bytes of tensors whose names are further names of other tensors' files.
    pub shared_bytes: u64,
    /// The bytes of all tensors among the values, after slicing: the size of a capture of these calls with the task `tensor`.
    pub tensor_bytes: u64,
    /// The number of tensor files that are not written yet, and their bytes.
    pub waiting: (usize, usize),
    /// The number of calls with a NaN or an infinity in their outputs.
    pub overflows: u64,
    /// The reason why the capture of this step stopped, if it did.
    pub stopped: Option<String>,
}

/// One step of one rank, while it is captured. All threads of the host share it; none blocks another for longer than a
/// small write.
pub struct Session {
    plan: Arc<CapturePlan>,
    place: CapturePlace,
    /// A forked child captures nothing: the record file belongs to its parent, and the writer threads do not exist in it.
    fork: ForkGuard,
    notices: Notices,
    directory: Mutex<RankDirectory>,
    set_aside: Option<PathBuf>,
    records: Arc<Records>,
    state: Mutex<State>,
    files: Mutex<Option<Arc<Files>>>,
    next_hole: AtomicU32,
    /// The baseline of `diff_check`.
    pub(crate) bench: Option<Bench>,
    tensor_bytes: AtomicU64,
    /// The last documents, and the length of the record file when they were made.
    documents: Mutex<Option<(u64, Made)>>,
    log: ErrorLog,
}

impl fmt::Debug for Session {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Session")
            .field("place", &self.place)
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Begins the capture of a step. Renames a directory that another run has used, and logs the new name.
    ///
    /// # Errors
    /// Another process captures into the directory, a symbolic link is in place of a directory, or an I/O error occurs. The
    /// training should continue without the capture.
    pub fn open(plan: Arc<CapturePlan>, place: CapturePlace, notices: Notices) -> Result<Self, OpenError> {
        let config = plan.config();
        let against = config.bench_path.as_ref().filter(|_| config.task == CaptureTask::DiffCheck);
        let bench = against.map(|path| Bench::load(path, place.step, place.rank.unwrap_or(0))).transpose()?;
        let opened = RankDirectory::create(&config.dump_path, place.step, rank_name(place.rank))?;
        if let Some(aside) = &opened.set_aside {
            let now = opened.directory.path();
            let hint = "its files are unchanged; remove it if you no longer need it, or set another `dump_path`";
            let message = format!("renamed the capture of another run: `{}` to `{}`", now.display(), aside.display());
            notices.warn(message, Some(hint.to_owned()));
        }
        // Readers treat a capture of `diff_check` as one of tensors.
        let task = if config.task == CaptureTask::DiffCheck { CaptureTask::Tensor } else { config.task };
        let header = Header {
            task: task.name().to_owned(),
            level: config.level.name().to_owned(),
            framework: "pytorch".to_owned(),
            extra_info: config.extra_info,
        };
        let recorder = Recorder::create(&opened.directory, &header)?;
        let records = Records {
            recorder: Mutex::new(recorder),
            is_stopped: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            why_stopped: Mutex::default(),
            notices: notices.clone(),
            progress: ProgressLines::new(place.step, Instant::now()),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            shared_bytes: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            budget: config.files.disk_budget_mib.map_or(u64::MAX, |budget| budget << 20),
        };
        Ok(Self {
            plan,
            place,
            fork: ForkGuard::of_this_process(),
            notices,
            directory: Mutex::new(opened.directory),
            set_aside: opened.set_aside,
            records: Arc::new(records),
            state: Mutex::default(),
            files: Mutex::default(),
            next_hole: AtomicU32::new(0),
            bench,
            tensor_bytes: AtomicU64::new(0),
            documents: Mutex::default(),
            log: ErrorLog::default(),
        })
    }

    /// The plan of the capture.
    pub fn plan(&self) -> &CapturePlan {
        &self.plan
    }

    /// The step and rank.
    pub fn place(&self) -> CapturePlace {
        self.place
    }

    /// Records a call stack, innermost line first, each `File {path}, line {n}, in {function}, \n {source}`. A known stack
    /// costs one lookup.
    pub fn stack<L: AsRef<str>>(&self, lines: &[L]) -> StackId {
        let mut json = JsonText::new();
        json.begin_list();
        for line in lines {
            json.text(line.as_ref());
        }
        json.end_list();
        let mut state = self.state.lock();
        let next = state.stacks.len() as u32;
        if let Some(&known) = state.stacks.get(json.as_bytes()) {
            return StackId(known);
        }
        state.stacks.insert(json.as_bytes().into(), next);
        drop(state);
        let mut frames = Frames::new();
        frames.stack(next, json.as_bytes());
        self.write(&frames);
        StackId(next)
    }

    /// Begins an entry with this name, which [`Entry::append`] writes.
    pub fn entry(&self, name: &str) -> Entry<'_> {
        Entry::new(self, name, self.plan.saves_tensors_of(name))
    }

    /// Records an entry that differs from the baseline: `write` writes it again, with tensor files whatever the plan says.
    /// Warns about the first differences, and ends the capture of the step after `diff_nums` of them.
    pub fn save_difference(&self, name: &str, write: impl FnOnce(&mut Entry<'_>)) {
        let mut entry = Entry::new(self, name, true);
        write(&mut entry);
        entry.append();
        let (Some(bench), config) = (&self.bench, self.plan.config()) else { return };
        let count = bench.count();
        let path = config.bench_path.as_deref().unwrap_or(Path::new(""));
        if count <= MOST_TOLD {
            let message = format!("step {}: `{name}` differs from `{}`", self.place.step, path.display());
            self.notices
                .warn(message, Some("its inputs are equal; compare its tensors in `dump_tensor_data`".to_owned()));
        }
        if config.diff_nums.is_some_and(|most| count >= most) {
            let message =
                format!("the outputs of {} differ from `{}` (`diff_nums`)", counted_calls(count), path.display());
            self.records.stop(message, "to capture the whole step, set `diff_nums` to -1");
        }
    }

    pub(crate) fn append(&self, entry: &EntryRecord<'_>, is_overflow: bool) {
        let mut frames = Frames::new();
        frames.entry(entry);
        if self.write(&frames) {
            self.records.entries.fetch_add(1, Ordering::Relaxed);
        }
        if is_overflow {
            let count = self.records.overflows.fetch_add(1, Ordering::Relaxed) + 1;
            let config = self.plan.config();
            if config.task == CaptureTask::OverflowCheck && config.overflow_nums.is_some_and(|most| count >= most) {
                let message = format!("{} produced a NaN or an infinity (`overflow_nums`)", counted_calls(count));
                self.records.stop(message, "to capture the whole step, set `overflow_nums` to -1");
            }
        }
    }

    fn write(&self, frames: &Frames) -> bool {
        self.takes_more() && self.records.append(frames)
    }

    /// Whether the rest of a call whose capture has begun is still written.
    pub(crate) fn takes_more(&self) -> bool {
        !self.fork.is_child() && !self.records.is_closed.load(Ordering::Relaxed)
    }

    /// Whether new calls are captured: false after the capture of the step has stopped, and in a forked child.
    pub fn is_on(&self) -> bool {
        !self.fork.is_child() && !self.records.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn checks_for_nan(&self) -> bool {
        matches!(self.plan.config().task, CaptureTask::NanCheck | CaptureTask::OverflowCheck)
    }

    pub(crate) fn new_hole(&self) -> Hole {
        Hole(self.next_hole.fetch_add(1, Ordering::Relaxed))
    }

    /// The new path of an earlier run's capture that [`open`](Self::open) renamed.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Adds a tensor of `bytes` bytes to [`Progress::tensor_bytes`].
    pub(crate) fn count_tensor(&self, bytes: u64) {
        self.tensor_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Renames the directory once the rank is known. Returns `false` if that fails; the directory then keeps its name.
    pub fn set_rank(&self, rank: u64) -> bool {
        let renamed = self.directory.lock().rename(RankName::Rank(rank));
        match renamed {
            Ok(renamed) => {
                // The documents contain the directory's name.
                *self.documents.lock() = None;
                renamed
            }
            Err(error) => {
                self.notices.warn(with_causes(&error), Some(error.hint().to_owned()));
                false
            }
        }
    }

    /// Writes an error to `dump_error_info.log`, once per kind and step. `stack` starts with the outermost line.
    pub fn note_error(&self, kind: &str, message: &str, stack: &[String]) {
        if !self.fork.is_child() {
            self.log.note(&self.directory.lock(), kind, message, stack);
        }
    }

    /// The progress of the session.
    pub fn progress(&self) -> Progress {
        let Records { entries, bytes, files, shared_bytes, overflows, why_stopped, .. } = &*self.records;
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Progress {
            entries: load(entries),
            bytes: load(bytes),
            files: load(files),
            shared_bytes: load(shared_bytes),
            tensor_bytes: load(&self.tensor_bytes),
            waiting: self.files.lock().as_ref().map_or((0, 0), |files| files.waiting()),
            overflows: load(overflows),
            stopped: why_stopped.lock().clone(),
        }
    }

    /// Sets the expected size of the step's tensor files in bytes, which the progress lines show.
    pub fn expect_bytes(&self, bytes: u64) {
        self.records.progress.expect(bytes);
    }

    /// Waits for the tensor files and writes the documents of everything captured so far, as `stop()` does. More of the step
    /// may be captured afterwards. Cost: linear in the step's records.
    ///
    /// # Errors
    /// An I/O error occurs. The record file remains, and `trainmon recover` makes the documents from it.
    pub fn write_documents(&self) -> Result<Made, WriteError> {
        // Release the lock while waiting: other threads save tensors.
        let files = self.files.lock().clone();
        if let Some(files) = files {
            files.drain();
        }
        self.make_documents(&self.directory.lock())
    }

    /// Makes the documents, or returns the last ones if nothing was captured since.
    fn make_documents(&self, directory: &RankDirectory) -> Result<Made, WriteError> {
        let length = self.records.trim();
        let mut documents = self.documents.lock();
        if let Some((of, made)) = &*documents
            && *of == length
        {
            return Ok(made.clone());
        }
        let made = documents_of(directory)?;
        *documents = Some((length, made.clone()));
        Ok(made)
    }

    /// Ends the capture of the step: writes the documents like [`write_documents`](Self::write_documents) and removes the
    /// record file. Later calls are dropped.
    ///
    /// # Errors
    /// See [`write_documents`](Self::write_documents).
    pub fn finish(&self) -> Result<Option<Made>, WriteError> {
        if self.fork.is_child() || std::mem::replace(&mut self.state.lock().is_finished, true) {
            return Ok(None);
        }
        self.records.is_stopped.store(true, Ordering::Relaxed);
        self.records.is_closed.store(true, Ordering::Relaxed);
        let files = self.files.lock().take();
        if let Some(files) = files {
            files.close();
        }
        self.plan.spare_memory().end_step(self.plan.is_past(self.place.step + 1));
        let directory = self.directory.lock();
        let made = self.make_documents(&directory)?;
        directory.remove_records()?;
        Ok(Some(made))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            self.notices.warn(with_causes(&error), Some(error.hint().to_owned()));
        }
    }
}

fn counted_calls(count: u64) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

fn rank_name(rank: Option<u64>) -> RankName {
    rank.map_or_else(|| RankName::Process(std::process::id()), RankName::Rank)
}
