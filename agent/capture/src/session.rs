//! One step of one rank, while it is captured.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::ThreadId;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use trainmon_core::config::CaptureTask;
use trainmon_dump::capture::{
    EntryRecord, Frames, Header, Hole, JsonText, Made, RankDirectory, RankName, Recorder, WriteError, data_name_member,
    documents_of,
};

use crate::entry::Entry;
use crate::files::{Files, TensorFile, Writing};
use crate::log::{self, ErrorLog};
use crate::names::file_name;
use crate::plan::{CapturePlan, Direction};
use crate::scope::Scope;
use crate::tensor::{DeviceNumbers, Later, LaterValue};
use crate::tensor_text::{device_numbers, digest_of};
use crate::values::Values;

/// Which step, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturePlace {
    /// The step's number.
    pub step: u64,
    /// `None`: the rank is not known (yet); the directory is named after the process.
    pub rank: Option<u64>,
}

/// Something the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Told of everything the user should know, once for each kind.
pub type Listener = Arc<dyn Fn(&Notice) + Send + Sync>;

/// A session could not begin. The training is to go on without.
pub type OpenError = WriteError;

/// The names of a call and of its backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallName {
    /// Like `Functional.relu.0.forward`, `Module.a.fc.Linear.forward.0`.
    pub forward: String,
    /// Like `Functional.relu.0.backward`, `Module.a.fc.Linear.backward.0`.
    pub backward: String,
    /// How often it was called before in this step.
    pub index: u64,
}

/// A stack of calls that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackId(pub(crate) u32);

/// How far a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pieces of entries in the record file.
    pub entries: u64,
    /// Bytes of the record file and of tensor files.
    pub bytes: u64,
    /// Tensor files that are whole.
    pub files: u64,
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
    /// The process it was begun in: a forked child captures nothing.
    process: u32,
    listener: Listener,
    directory: Mutex<RankDirectory>,
    records: Arc<Records>,
    state: Mutex<State>,
    files: Mutex<Option<Arc<Files>>>,
    next_hole: AtomicU32,
    tensor_bytes: AtomicU64,
    log: ErrorLog,
}

/// What the writers of files need of a session, too.
struct Records {
    recorder: Mutex<Recorder>,
    is_stopped: AtomicBool,
    why_stopped: Mutex<Option<String>>,
    listener: Listener,
    entries: AtomicU64,
    bytes: AtomicU64,
    files: AtomicU64,
    overflows: AtomicU64,
    /// Bytes allowed.
    budget: u64,
}

#[derive(Default)]
struct State {
    /// Calls by prefix and function, module, or name.
    counters: HashMap<String, u64, FixedState>,
    open: HashMap<ThreadId, Vec<String>, FixedState>,
    scope: Scope,
    stacks: HashMap<Box<[u8]>, u32, FixedState>,
    /// Modules whose backward was captured.
    backwards: HashSet<String, FixedState>,
    micro_step: Option<u32>,
    is_finished: bool,
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
    /// Begins the capture of a step. A directory that another run has used is set aside, and the listener is told where.
    ///
    /// # Errors
    /// Another process captures there, a symbolic link is in the way, or the system refuses. The training goes on without.
    pub fn open(plan: Arc<CapturePlan>, place: CapturePlace, listener: Listener) -> Result<Self, OpenError> {
        let process = std::process::id();
        let config = plan.config();
        let opened = RankDirectory::create(&config.dump_path, place.step, rank_name(place.rank, process))?;
        if let Some(aside) = opened.set_aside {
            let now = opened.directory.path();
            listener(&Notice {
                message: format!("`{}` was used by another run, and is now `{}`", now.display(), aside.display()),
                hint: Some(
                    "nothing of it was changed; remove it when it is not needed, or name another `dump_path`"
                        .to_owned(),
                ),
            });
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
            why_stopped: Mutex::default(),
            listener: Arc::clone(&listener),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            budget: config.disk_budget_mib.map_or(u64::MAX, |budget| budget << 20),
        };
        Ok(Self {
            plan,
            place,
            process,
            listener,
            directory: Mutex::new(opened.directory),
            records: Arc::new(records),
            state: Mutex::default(),
            files: Mutex::default(),
            next_hole: AtomicU32::new(0),
            tensor_bytes: AtomicU64::new(0),
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

    /// The names of a call of a function, which is counted: `prefix` `Functional`, `api` `relu`. `linalg.norm` counts and is
    /// named by its last segment. Every call is counted, captured or not: numbers mean the same in every capture.
    pub fn begin_call(&self, prefix: &str, api: &str) -> CallName {
        let api = api.rsplit('.').next().unwrap_or(api);
        self.begin_operator(prefix, api)
    }

    /// The names of a call of an operator, which is counted: `Aten`, `add.Tensor`. The whole name stays.
    pub fn begin_operator(&self, prefix: &str, operator: &str) -> CallName {
        let name = format!("{prefix}.{operator}");
        let index = self.count(&name);
        CallName { forward: format!("{name}.{index}.forward"), backward: format!("{name}.{index}.backward"), index }
    }

    /// The names of a call of a module, which is counted: `module` is `Module.<name>.<Class>`.
    pub fn begin_module_call(&self, module: &str) -> CallName {
        let index = self.count(module);
        CallName { forward: format!("{module}.forward.{index}"), backward: format!("{module}.backward.{index}"), index }
    }

    /// The name of the gradients of a module's parameters: one more each time it is asked for.
    pub fn begin_gradients(&self, module: &str) -> String {
        let name = format!("{module}.parameters_grad");
        let index = self.count(&name);
        format!("{name}.{index}")
    }

    /// The names of a value that a script saves, and of its gradient: `y.0.debug`, `y_grad.0.debug`.
    pub fn begin_saved(&self, name: &str) -> CallName {
        let index = self.count(&format!("{name}.debug"));
        CallName { forward: format!("{name}.{index}.debug"), backward: format!("{name}_grad.{index}.debug"), index }
    }

    fn count(&self, name: &str) -> u64 {
        let mut state = self.state.lock();
        if let Some(count) = state.counters.get_mut(name) {
            *count += 1;
            return *count - 1;
        }
        state.counters.insert(name.to_owned(), 1);
        0
    }

    /// A call begins. Whether it is captured: if not, neither are its outputs. Every call is to be told, and its
    /// [`end`](Self::end): `scope` and `list` are opened and closed by them.
    pub fn begin(&self, name: &str, direction: Direction) -> bool {
        self.begin_any(name, direction, false)
    }

    /// A call has ended, its outputs are appended. Also after it has raised.
    pub fn end(&self, name: &str) {
        self.state.lock().scope.end(&self.plan, name);
    }

    /// As [`begin`](Self::begin), of a module's call; it is then the innermost open one of this thread.
    pub fn begin_module(&self, name: &str, direction: Direction) -> bool {
        let is_wanted = self.begin_any(name, direction, true);
        let mut state = self.state.lock();
        state.open.entry(std::thread::current().id()).or_default().push(name.to_owned());
        is_wanted
    }

    /// As [`end`](Self::end). Modules that were begun inside and not ended (they raised) are ended, too.
    pub fn end_module(&self, name: &str) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(open) = state.open.get_mut(&std::thread::current().id())
            && let Some(at) = open.iter().rposition(|open| open == name)
        {
            for left in open.drain(at..).skip(1) {
                state.scope.end(&self.plan, &left);
            }
        }
        state.scope.end(&self.plan, name);
    }

    fn begin_any(&self, name: &str, direction: Direction, is_module: bool) -> bool {
        let mut state = self.state.lock();
        let is_inside = state.scope.begin(&self.plan, name, is_module);
        let is_wanted = is_inside && self.plan.wants_direction(direction) && self.is_on();
        if is_wanted && is_module && direction == Direction::Backward {
            let module = name.rsplitn(3, '.').nth(2).unwrap_or(name);
            if !state.backwards.contains(module) {
                state.backwards.insert(module.to_owned());
            }
        }
        is_wanted
    }

    /// Whether the gradients of a module's parameters are captured: `module` is `Module.<name>.<Class>`.
    pub fn wants_gradients(&self, module: &str) -> bool {
        let state = self.state.lock();
        self.plan.wants_parameter_gradients()
            && self.is_on()
            && (state.backwards.contains(module) || state.scope.holds(&self.plan, module))
    }

    /// The innermost module that is open on this thread.
    pub fn open_module(&self) -> Option<String> {
        self.innermost().0
    }

    pub(crate) fn innermost(&self) -> (Option<String>, Option<u32>) {
        let state = self.state.lock();
        let open = state.open.get(&std::thread::current().id()).and_then(|open| open.last());
        (open.cloned(), state.micro_step)
    }

    /// Which micro-batch runs; `None`: the framework does not tell.
    pub fn micro_step(&self, micro_step: Option<u32>) {
        self.state.lock().micro_step = micro_step;
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

    /// As [`entry`](Self::entry), with its tensors in files whatever the plan says: a call that differs from what it is held
    /// against.
    pub fn entry_with_tensors(&self, name: &str) -> Entry<'_> {
        Entry::new(self, name, true)
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
        // A forked child has the same file: what it appended would stand in the middle of ours.
        self.is_on() && std::process::id() == self.process && self.records.append(frames)
    }

    /// Whether anything is captured (any more): not after the disk was full or the budget spent.
    pub fn is_on(&self) -> bool {
        !self.records.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn checks_for_nan(&self) -> bool {
        matches!(self.plan.config().task, CaptureTask::NanCheck | CaptureTask::OverflowCheck)
    }

    pub(crate) fn new_hole(&self) -> Hole {
        Hole(self.next_hole.fetch_add(1, Ordering::Relaxed))
    }

    /// A tensor of so many bytes is among the values.
    pub(crate) fn count_tensor(&self, bytes: u64) {
        self.tensor_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Hands a tensor to the writers of files.
    pub(crate) fn save(&self, file: &TensorFile<'_>, size: usize, copy: impl FnOnce(&mut [u8])) {
        if !self.is_on() || std::process::id() != self.process {
            return;
        }
        let Some(files) = self.files() else { return };
        let config = self.plan.config();
        let mut name = file_name(file.path, config.file_format.extension());
        if config.compress {
            name.push_str(".zst");
        }
        files.put(file, name, size, copy);
    }

    fn files(&self) -> Option<Arc<Files>> {
        let mut files = self.files.lock();
        if let Some(files) = &*files {
            return Some(Arc::clone(files));
        }
        let config = self.plan.config();
        let started = self.directory.lock().tensors().and_then(|directory| {
            let writing = Writing {
                format: config.file_format,
                compress: config.compress,
                bound: usize::try_from(config.pool_mib << 20).unwrap_or(usize::MAX),
            };
            let records = Arc::clone(&self.records);
            let done = Box::new(move |hole: Hole, written: Result<(&str, u64), _>| records.file_done(hole, written));
            Files::start(directory, writing, done)
                .map_err(|source| WriteError::Write { path: config.dump_path.clone(), source })
        });
        match started {
            Ok(started) => {
                let started = Arc::new(started);
                *files = Some(Arc::clone(&started));
                Some(started)
            }
            Err(error) => {
                self.records.stop(log::with_causes(&error), error.hint());
                None
            }
        }
    }

    /// Tells what was found on a device: numbers, and the bytes in logical order where they were wanted.
    pub fn fill(&self, later: &Later, found: &DeviceNumbers, bytes: Option<FoundBytes<'_>>) {
        let mut fills: Vec<(Hole, JsonText)> = Vec::with_capacity(5);
        let mut put = |hole: Hole, write: &dyn Fn(&mut JsonText)| {
            let mut json = JsonText::new();
            write(&mut json);
            fills.push((hole, json));
        };
        for (hole, number) in later.numbers.iter().flatten().zip(device_numbers(found)) {
            put(*hole, &|json| json.number(number));
        }
        if let (Some(hole), Some(found)) = (later.digest, &bytes) {
            let digest = digest_of(found.bytes, self.plan.config().summary);
            put(hole, &|json| json.checksum(digest));
        }
        if let (Some(file), Some(found)) = (&later.file, bytes) {
            let of = TensorFile { hole: file.hole, path: &file.path, dtype: found.dtype, shape: found.shape };
            if found.bytes.len() == found.shape.elements() * found.dtype.size() && !found.bytes.is_empty() {
                self.save(&of, found.bytes.len(), |target| target.copy_from_slice(found.bytes));
            }
        }
        self.write_fills(&fills);
    }

    /// Tells a value that came later.
    pub fn fill_value(&self, later: &LaterValue, write: impl FnOnce(&mut Values<'_>)) {
        let mut values = Values::new(self, later.saves_tensors);
        values.path.clone_from(&later.path);
        write(&mut values);
        values.close();
        if !values.json.is_empty() {
            self.write_fills(&[(later.hole, values.json)]);
        }
    }

    fn write_fills(&self, fills: &[(Hole, JsonText)]) {
        if fills.is_empty() {
            return;
        }
        let mut frames = Frames::new();
        frames.fills(fills.iter().map(|(hole, json)| (*hole, json.as_bytes())));
        self.write(&frames);
    }

    /// The rank became known: the directory is renamed. `false` if it could not be; it keeps its name then.
    pub fn set_rank(&self, rank: u64) -> bool {
        match self.directory.lock().rename(RankName::Rank(rank)) {
            Ok(renamed) => renamed,
            Err(error) => {
                (self.listener)(&Notice { message: log::with_causes(&error), hint: Some(error.hint().to_owned()) });
                false
            }
        }
    }

    /// Writes what went wrong to `dump_error_info.log`, once for each kind in a step. `stack` is the outermost line first.
    pub fn note_error(&self, kind: &str, message: &str, stack: &[String]) {
        if std::process::id() == self.process {
            self.log.note(&self.directory.lock(), kind, message, stack);
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let Records { entries, bytes, files, overflows, why_stopped, .. } = &*self.records;
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Progress {
            entries: load(entries),
            bytes: load(bytes),
            files: load(files),
            tensor_bytes: load(&self.tensor_bytes),
            waiting: self.files.lock().as_ref().map_or((0, 0), |files| files.waiting()),
            overflows: load(overflows),
            stopped: why_stopped.lock().clone(),
        }
    }

    /// Writes the documents of what was captured so far, as `stop()` does: waits for the tensor files. More may be captured
    /// afterwards, in the same step. Cost: time linear in the step's records.
    ///
    /// # Errors
    /// The system refuses. The record file stays: `trainmon recover` makes the documents of it.
    pub fn write_documents(&self) -> Result<Made, WriteError> {
        if let Some(files) = self.files.lock().clone() {
            files.drain();
        }
        documents_of(&self.directory.lock())
    }

    /// Ends the capture of the step: as [`write_documents`](Self::write_documents), and removes the record file. What is told
    /// afterwards is dropped.
    ///
    /// # Errors
    /// As there.
    pub fn finish(&self) -> Result<Option<Made>, WriteError> {
        if std::process::id() != self.process || std::mem::replace(&mut self.state.lock().is_finished, true) {
            return Ok(None);
        }
        let files = self.files.lock().take();
        if let Some(files) = files {
            files.close();
        }
        self.records.is_stopped.store(true, Ordering::Relaxed);
        let directory = self.directory.lock();
        let made = documents_of(&directory)?;
        directory.remove_records()?;
        Ok(Some(made))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            (self.listener)(&Notice { message: log::with_causes(&error), hint: Some(error.hint().to_owned()) });
        }
    }
}

/// A device tensor's bytes, in the host's memory and logical order.
#[derive(Clone, Copy, Debug)]
pub struct FoundBytes<'b> {
    /// Their dtype.
    pub dtype: trainmon_core::Dtype,
    /// Their shape.
    pub shape: trainmon_core::Shape,
    /// They.
    pub bytes: &'b [u8],
}

impl Records {
    /// `false`: nothing can be written any more.
    fn append(&self, frames: &Frames) -> bool {
        let mut recorder = self.recorder.lock();
        match recorder.append(frames) {
            Ok(()) => {
                drop(recorder);
                self.spend(frames.as_bytes().len() as u64);
                true
            }
            Err(error) => {
                drop(recorder);
                self.stop(log::with_causes(&error), error.hint());
                false
            }
        }
    }

    fn file_done(&self, hole: Hole, written: Result<(&str, u64), trainmon_dump::tensor_file::write::WriteError>) {
        match written {
            Ok((name, bytes)) => {
                let mut frames = Frames::new();
                frames.fills([(hole, &*data_name_member(name))].into_iter());
                // Also after a stop: the file is there.
                if self.recorder.lock().append(&frames).is_ok() {
                    self.files.fetch_add(1, Ordering::Relaxed);
                }
                self.spend(bytes + frames.as_bytes().len() as u64);
            }
            Err(error) => self.stop(
                format!("a tensor could not be written: {}", log::with_causes(&error)),
                "check that the disk has room; what was captured before is kept",
            ),
        }
    }

    fn spend(&self, bytes: u64) {
        let spent = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if spent > self.budget {
            self.stop(
                format!("{} MiB are written (`disk_budget_mib`)", spent >> 20),
                "capture fewer steps or names, or allow more",
            );
        }
    }

    /// Ends the capture of the step, and says so once. What is there stays.
    fn stop(&self, why: String, hint: &str) {
        if self.is_stopped.swap(true, Ordering::Relaxed) {
            return;
        }
        let message = format!("the capture of this step stops: {why}");
        *self.why_stopped.lock() = Some(why);
        (self.listener)(&Notice { message, hint: Some(hint.to_owned()) });
    }
}

fn rank_name(rank: Option<u64>, process: u32) -> RankName {
    rank.map_or(RankName::Process(process), RankName::Rank)
}
