//! Captures: the inputs and outputs of every operator of a step, forward and backward, in msprobe's files.
//!
//! ```text
//! torch's observers (shim/record.cpp) ─▶ Active: names, scope ─▶ Entry (trainmon-capture) ─▶ record file ─▶ dump.json
//! Watched modules (watch/module.rs) ──▶ around_module ─────────────▲
//! ```
//!
//! An operator that torch decomposes (`linear`) is captured as its parts (`addmm`, `t`). Calls within another operator,
//! and the operators of a backward, are not captured. Reading a tensor calls no operator of torch, so a capture never
//! contains itself and never changes the training's numbers. Observers are paused while a device computes statistics.

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

/// The reason why a capture cannot begin; training continues without it.
#[derive(Debug, thiserror::Error)]
pub enum CaptureBeginError {
    /// The directory or the record file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another capture is running in this process, or libtorch rejects the observers.
    #[error("cannot observe the operators: {message}")]
    Observe {
        /// The reason.
        message: String,
    },
    /// The task calls operators again with the tensors of an earlier capture, which torch's observers cannot do.
    #[error("the task `diff_check` requires PyTorch: set `summary_mode` to `md5` and run `trainmon compare`")]
    DiffCheck,
    /// The level captures values by names that a tch training lacks.
    #[error("tch does not support the level `{level}`, which saves named values: use `L0`, `L1`, `L2` or `mix`")]
    Level {
        /// The level.
        level: &'static str,
    },
}

/// A capture of one step of this process, from [`begin`](Self::begin) to [`finish`](Self::finish).
///
/// The levels `L1` and `L2` capture operators, `L0` captures watched modules ([`Watched`](crate::Watched)), and `mix`
/// captures both. Operators are named `Aten.<operator>.<overload>.<k>.forward` and `….backward`.
#[derive(Debug)]
pub struct Capture {
    active: Arc<Active>,
    recording: Option<Recording>,
}

/// The state that callbacks use.
struct Active {
    session: Session,
    devices: Devices,
    /// The number of the capture, unique in this process.
    number: u64,
    /// Whether Rust's call stacks are recorded.
    has_stacks: bool,
}

impl fmt::Debug for Active {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(to)
    }
}

/// The running capture, to which modules report their calls.
static CURRENT: RwLock<Option<Arc<Active>>> = RwLock::new(None);
/// Whether a capture is running. Without one, reading this flag is the only cost of a module's call.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The number of captures begun so far.
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
    /// Begins the capture of a step: it contains every operator of every thread from now on.
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
        // Checked before anything is written.
        if current().is_some() {
            return Err(CaptureBeginError::Observe { message: "another capture is running".to_owned() });
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

    /// The progress of the capture.
    pub fn progress(&self) -> Progress {
        self.active.session.progress()
    }

    /// The new path of an earlier run's capture that was in the same place; `None` if there was none.
    pub fn set_aside(&self) -> Option<&Path> {
        self.active.session.set_aside()
    }

    /// Stops capturing, waits for the tensors' files and writes the documents. After that, [`progress`](Self::progress)
    /// is final.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub fn write(&mut self) -> Result<(), OpenError> {
        self.stop();
        self.active.session.write_documents().map(drop)
    }

    /// Ends the capture, writes the documents and describes them.
    ///
    /// # Errors
    /// A document cannot be written. The record file stays, and `trainmon recover` creates the documents from it.
    pub fn finish(mut self) -> Result<Option<trainmon_capture::Made>, OpenError> {
        self.stop();
        self.active.session.finish()
    }

    fn stop(&mut self) {
        self.recording = None;
        // Another capture may be the current one, which continues.
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

/// Returns the prefix and the name, such as `Aten` and `mm.default`. Namespaces other than torch's own have the prefix
/// `Torch`.
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
            // Values that libtorch cannot show are missing in the entry; training continues.
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
            // The backward may be requested without the forward.
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
        // The graph belongs to an earlier capture and has its names.
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
