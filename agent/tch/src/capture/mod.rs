//! Captures: what every operator of a step takes in and gives out, forward and backward, in msprobe's files.
//!
//! ```text
//! torch's observers (shim/record.cpp) ─▶ Active: names, scope ─▶ Entry (trainmon-capture) ─▶ record file ─▶ dump.json
//! Watched modules (watch/module.rs) ──▶ around_module ─────────────▲
//! ```
//!
//! An operator that torch itself writes as others (`linear`) is captured as these (`addmm`, `t`); what runs inside another, and
//! what a backward computes with, is not captured. Reading a tensor calls no operator of torch: nothing is captured of the
//! capture itself, and no number of the training changes. What runs on a device to find a tensor's numbers is not observed.

mod devices;
mod modules;
mod options;
mod stack;
mod values;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use trainmon_capture::{
    CaptureLevel, CapturePlace, CapturePlan, CaptureTask, Direction, Notices, OpenError, Part, Progress, Session,
};

use self::devices::Devices;
pub(crate) use self::modules::around_module;
pub use self::options::CaptureOptions;
use crate::ffi::{CallData, OperatorObserver, OperatorValues, Recording};

/// A capture cannot begin; the training goes on without.
#[derive(Debug, thiserror::Error)]
pub enum CaptureBeginError {
    /// The directory, or the record file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another capture is at work in this process, or libtorch refuses its observers.
    #[error("the operators cannot be observed: {message}")]
    Observe {
        /// Why.
        message: String,
    },
    /// What is held against an earlier capture is called anew with its tensors, which torch's observers cannot.
    #[error("the task `diff_check` is PyTorch's; capture with `summary_mode` `md5` and use `trainmon compare`")]
    DiffCheck,
    /// What a tch training has no names for.
    #[error("a capture of the level `{level}` saves values that a script names; tch has `L0`, `L1`, `L2` and `mix`")]
    Level {
        /// The level.
        level: &'static str,
    },
}

/// A capture of one step of this process: it begins here and ends with [`finish`](Self::finish).
///
/// The levels `L1` and `L2` are operators, `L0` is watched modules ([`Watched`](crate::Watched)), `mix` both. Operators are
/// called `Aten.<operator>.<overload>.<k>.forward` and `….backward`.
#[derive(Debug)]
pub struct Capture {
    active: Arc<Active>,
    recording: Option<Recording>,
}

/// What callbacks need.
struct Active {
    session: Session,
    devices: Devices,
    /// No other capture of this process has it.
    number: u64,
    /// Whether Rust's call stacks are wanted.
    has_stacks: bool,
}

impl fmt::Debug for Active {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(to)
    }
}

/// The capture that modules tell of their calls.
static CURRENT: RwLock<Option<Arc<Active>>> = RwLock::new(None);
/// Whether there is one: all that a module's call costs while there is none.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Captures begun so far.
static BEGUN: AtomicU64 = AtomicU64::new(0);

fn current() -> Option<Arc<Active>> {
    if !IS_ON.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn set_current(active: Option<Arc<Active>>) {
    IS_ON.store(active.is_some(), Ordering::Relaxed);
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = active;
}

impl Capture {
    /// Begins the capture of a step: every operator of every thread from here on.
    ///
    /// # Errors
    /// See [`CaptureBeginError`].
    pub fn begin(
        plan: &Arc<CapturePlan>,
        place: CapturePlace,
        options: &CaptureOptions,
        notices: Notices,
    ) -> Result<Self, CaptureBeginError> {
        let level = plan.config().level;
        if level == CaptureLevel::Debug {
            return Err(CaptureBeginError::Level { level: level.name() });
        }
        if plan.config().task == CaptureTask::DiffCheck {
            return Err(CaptureBeginError::DiffCheck);
        }
        // Before anything is written.
        if current().is_some() {
            return Err(CaptureBeginError::Observe { message: "another capture is at work".to_owned() });
        }
        let session = Session::open(Arc::clone(plan), place, notices)?;
        let active = Arc::new(Active {
            session,
            devices: Devices::new(options.statistics.clone(), options.is_device_path_only),
            number: BEGUN.fetch_add(1, Ordering::Relaxed),
            has_stacks: options.has_stacks,
        });
        let observer = Arc::clone(&active);
        let recording = if level == CaptureLevel::L0 {
            None
        } else {
            Some(Recording::start(observer).map_err(|message| CaptureBeginError::Observe { message })?)
        };
        set_current(Some(Arc::clone(&active)));
        Ok(Self { active, recording })
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.active.session.progress()
    }

    /// Where the capture that an earlier run left in this one's place was renamed to; `None` if there was none.
    pub fn set_aside(&self) -> Option<&Path> {
        self.active.session.set_aside()
    }

    /// Captures nothing more, waits for the tensors' files and writes the documents: what [`progress`](Self::progress) says
    /// then is all.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn write(&mut self) -> Result<(), OpenError> {
        self.stop();
        self.active.session.write_documents().map(drop)
    }

    /// Ends it and writes the documents. Gives what was made.
    ///
    /// # Errors
    /// The system refuses. The record file stays: `trainmon recover` makes the documents of it.
    pub fn finish(mut self) -> Result<Option<trainmon_capture::Made>, OpenError> {
        self.stop();
        self.active.session.finish()
    }

    fn stop(&mut self) {
        self.recording = None;
        // That of another capture stays where it is.
        let is_ours = current().is_some_and(|active| Arc::ptr_eq(&active, &self.active));
        if is_ours {
            set_current(None);
        }
        self.active.devices.finish(&self.active.session);
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `Aten.mm.default`: torch's own namespace is called after its library.
fn operator_name(space: &str, name: &str, overload: &str) -> (String, String) {
    let overload = if overload.is_empty() { "default" } else { overload };
    if space == "aten" {
        ("Aten".to_owned(), format!("{name}.{overload}"))
    } else {
        ("Torch".to_owned(), format!("{space}.{name}.{overload}"))
    }
}

impl Active {
    fn call(&self, name: String, is_captured: bool) -> CallData {
        CallData { owner: self.number, name, is_captured }
    }

    fn walk(&self, entry: &mut trainmon_capture::Entry<'_>, part: Part<'_>, values: OperatorValues<'_>) {
        if entry.wants(part) {
            let mut launch = self.devices.launch();
            let to = entry.part(part);
            to.begin_list();
            // What libtorch cannot show is missing in the entry; the training goes on.
            let _shown = values.walk(&mut |value| values::write(value, to, &mut launch)).is_ok();
            to.end_list();
            launch.go(&self.session);
        }
    }
}

impl OperatorObserver for Active {
    fn begin(&self, space: &str, name: &str, overload: &str, inputs: OperatorValues<'_>) -> Option<CallData> {
        let session = &self.session;
        let (prefix, operator) = operator_name(space, name, overload);
        if !session.plan().wants_function(&prefix, name) {
            return None;
        }
        let call = session.begin_call(&prefix, &operator).forward;
        if !session.begin(&call, Direction::Forward) {
            session.end(&call);
            // Its backward may be wanted though it is not.
            let may_be = session.plan().wants_direction(Direction::Backward);
            return may_be.then(|| self.call(call, false));
        }
        let mut entry = session.entry(&call);
        if session.plan().config().level.has_modules() {
            entry.inside_open_module();
        }
        if self.has_stacks {
            entry.stack(session.stack(&stack::lines()));
        }
        self.walk(&mut entry, Part::InputArgs, inputs);
        if entry.wants(Part::InputKwargs) {
            let kwargs = entry.part(Part::InputKwargs);
            kwargs.begin_object();
            kwargs.end_object();
        }
        entry.append();
        Some(self.call(call, true))
    }

    fn end(&self, call: CallData, outputs: OperatorValues<'_>) -> Option<CallData> {
        let session = &self.session;
        if call.owner != self.number {
            return None;
        }
        let CallData { name, is_captured, .. } = call;
        if is_captured {
            let mut entry = session.entry(&name);
            self.walk(&mut entry, Part::Output, outputs);
            entry.append();
            session.end(&name);
        }
        let backward = format!("{}backward", name.strip_suffix("forward").unwrap_or(&name));
        session.plan().wants_direction(Direction::Backward).then(|| self.call(backward, true))
    }

    fn backward(&self, data: &CallData, inputs: OperatorValues<'_>, outputs: OperatorValues<'_>) {
        // The graph of an earlier step: its names are that step's.
        if data.owner != self.number {
            return;
        }
        let (session, name) = (&self.session, &data.name);
        if session.begin(name, Direction::Backward) {
            let mut entry = session.entry(name);
            if session.plan().config().level.has_modules() {
                entry.inside_open_module();
            }
            self.walk(&mut entry, Part::Input, inputs);
            self.walk(&mut entry, Part::Output, outputs);
            entry.append();
        }
        session.end(name);
    }
}
