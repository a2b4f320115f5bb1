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

/// Differences that are told one by one.
const MOST_TOLD: u64 = 10;

/// Which step, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturePlace {
    /// The step's number.
    pub step: u64,
    /// `None`: the rank is not known (yet); the directory is named after the process.
    pub rank: Option<u64>,
}

/// A session could not begin. The training is to go on without.
pub type OpenError = WriteError;

/// A stack of calls that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackId(pub(crate) u32);

/// How far a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pieces of entries in the record file.
    pub entries: u64,
    /// Bytes of the record file and of tensor files, those of several names once.
    pub bytes: u64,
    /// Tensor files that are whole, each name counted.
    pub files: u64,
    /// Bytes of tensors that are in files of others: their names are further names of these.
    pub shared_bytes: u64,
    /// Bytes of all tensors among the values, slices cut: what a capture of the same calls with the task `tensor` writes.
    pub tensor_bytes: u64,
    /// Tensor files and their bytes that wait to be written.
    pub waiting: (usize, usize),
    /// Calls in which a NaN or an infinity came out.
    pub overflows: u64,
    /// Why nothing is captured any more in this step.
    pub stopped: Option<String>,
}

/// One step of one rank, while it is captured. Shared by all threads of the host; none waits for another longer than one
/// small write takes.
pub struct Session {
    plan: Arc<CapturePlan>,
    place: CapturePlace,
    /// A forked child captures nothing: the record file is its parent's, and its threads are not there.
    fork: ForkGuard,
    notices: Notices,
    directory: Mutex<RankDirectory>,
    set_aside: Option<PathBuf>,
    records: Arc<Records>,
    state: Mutex<State>,
    files: Mutex<Option<Arc<Files>>>,
    next_hole: AtomicU32,
    /// What it is held against.
    pub(crate) bench: Option<Bench>,
    tensor_bytes: AtomicU64,
    /// The documents as they were made last, and the length of the record file then.
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
    /// Begins the capture of a step. A directory that another run has used is set aside, and it is said where.
    ///
    /// # Errors
    /// Another process captures there, a symbolic link is in the way, or the system refuses. The training goes on without.
    pub fn open(plan: Arc<CapturePlan>, place: CapturePlace, notices: Notices) -> Result<Self, OpenError> {
        let config = plan.config();
        let against = config.bench_path.as_ref().filter(|_| config.task == CaptureTask::DiffCheck);
        let bench = against.map(|path| Bench::load(path, place.step, place.rank.unwrap_or(0))).transpose()?;
        let opened = RankDirectory::create(&config.dump_path, place.step, rank_name(place.rank))?;
        if let Some(aside) = &opened.set_aside {
            let now = opened.directory.path();
            let hint = "nothing of it was changed; remove it when it is not needed, or name another `dump_path`";
            let message = format!("`{}` was used by another run, and is now `{}`", now.display(), aside.display());
            notices.warn(message, Some(hint.to_owned()));
        }
        // What checksums are held against is a capture of tensors to its readers.
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

    /// What is captured.
    pub fn plan(&self) -> &CapturePlan {
        &self.plan
    }

    /// Which step, and whose.
    pub fn place(&self) -> CapturePlace {
        self.place
    }

    /// Takes a stack, the innermost line first, each `File {path}, line {n}, in {function}, \n {source}`. One that is known
    /// costs a comparison.
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

    /// An entry of this name in the making. It is written when it is appended.
    pub fn entry(&self, name: &str) -> Entry<'_> {
        Entry::new(self, name, self.plan.saves_tensors_of(name))
    }

    /// An entry differs from the one it is held against: `write` writes it once more, its tensors in files whatever the plan
    /// says. The user is told, and after `diff_nums` of them the step's capture ends.
    pub fn save_difference(&self, name: &str, write: impl FnOnce(&mut Entry<'_>)) {
        let mut entry = Entry::new(self, name, true);
        write(&mut entry);
        entry.append();
        let (Some(bench), config) = (&self.bench, self.plan.config()) else { return };
        let count = bench.count();
        let path = config.bench_path.as_deref().unwrap_or(Path::new(""));
        if count <= MOST_TOLD {
            let message = format!("step {}: `{name}` differs from that in `{}`", self.place.step, path.display());
            self.notices
                .warn(message, Some("what went in is the same; its tensors are in `dump_tensor_data`".to_owned()));
        }
        if config.diff_nums.is_some_and(|most| count >= most) {
            let message = format!("{count} calls differ from `{}` (`diff_nums`)", path.display());
            self.records.stop(message, "the capture of this step ends here");
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
                let message = format!("{count} calls gave a NaN or an infinity (`overflow_nums`)");
                self.records.stop(message, "the capture of this step ends here");
            }
        }
    }

    fn write(&self, frames: &Frames) -> bool {
        self.takes_more() && self.records.append(frames)
    }

    /// Whether the rest of a call that has begun to be captured is written.
    pub(crate) fn takes_more(&self) -> bool {
        !self.fork.is_child() && !self.records.is_closed.load(Ordering::Relaxed)
    }

    /// Whether anything is captured (any more): not after the disk was full or the budget spent, and not in a forked child.
    pub fn is_on(&self) -> bool {
        !self.fork.is_child() && !self.records.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn checks_for_nan(&self) -> bool {
        matches!(self.plan.config().task, CaptureTask::NanCheck | CaptureTask::OverflowCheck)
    }

    pub(crate) fn new_hole(&self) -> Hole {
        Hole(self.next_hole.fetch_add(1, Ordering::Relaxed))
    }

    /// Where the capture that an earlier run left in this place was renamed to.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// A tensor of so many bytes is among the values.
    pub(crate) fn count_tensor(&self, bytes: u64) {
        self.tensor_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The rank became known: the directory is renamed. `false` if it could not be; it keeps its name then.
    pub fn set_rank(&self, rank: u64) -> bool {
        let renamed = self.directory.lock().rename(RankName::Rank(rank));
        match renamed {
            Ok(renamed) => {
                // They name the directory.
                *self.documents.lock() = None;
                renamed
            }
            Err(error) => {
                self.notices.warn(with_causes(&error), Some(error.hint().to_owned()));
                false
            }
        }
    }

    /// Writes what went wrong to `dump_error_info.log`, once for each kind in a step. `stack` is the outermost line first.
    pub fn note_error(&self, kind: &str, message: &str, stack: &[String]) {
        if !self.fork.is_child() {
            self.log.note(&self.directory.lock(), kind, message, stack);
        }
    }

    /// How far it is.
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

    /// The step's tensor files are expected to take about so many bytes: what is said of progress names them.
    pub fn expect_bytes(&self, bytes: u64) {
        self.records.progress.expect(bytes);
    }

    /// Writes the documents of what was captured so far, as `stop()` does: waits for the tensor files. More may be captured
    /// afterwards, in the same step. Cost: time linear in the step's records.
    ///
    /// # Errors
    /// The system refuses. The record file stays: `trainmon recover` makes the documents of it.
    pub fn write_documents(&self) -> Result<Made, WriteError> {
        // The lock is not held meanwhile: other threads save.
        let files = self.files.lock().clone();
        if let Some(files) = files {
            files.drain();
        }
        self.make_documents(&self.directory.lock())
    }

    /// Those that say all that was captured are left as they are.
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

    /// Ends the capture of the step: as [`write_documents`](Self::write_documents), and removes the record file. What is told
    /// afterwards is dropped.
    ///
    /// # Errors
    /// As there.
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

fn rank_name(rank: Option<u64>) -> RankName {
    rank.map_or_else(|| RankName::Process(std::process::id()), RankName::Rank)
}
