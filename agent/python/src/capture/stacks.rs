//! Where a call came from: the frames of Python, rendered once for each place in the code.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use trainmon_capture::{Session, StackId};

/// Frames that are looked at, at most: a recursion may be deep.
const DEEPEST: usize = 256;

/// The stacks of a session that were seen.
#[derive(Default)]
pub(crate) struct Stacks {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_frames: HashMap<u64, StackId, FixedState>,
    /// The code objects of the frames: an address is never that of another.
    codes: HashMap<usize, Py<PyAny>, FixedState>,
}

impl Stacks {
    /// The stack that called into us. Cost: a fraction of a microsecond for each frame; a new one is also rendered.
    pub(crate) fn of_caller(&self, py: Python<'_>, session: &Session) -> PyResult<StackId> {
        static RENDER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let innermost = GET_FRAME.import(py, "sys", "_getframe")?.call0()?;
        let mut hasher = FixedState::default().build_hasher();
        let mut codes = Vec::with_capacity(64);
        let mut frame = Some(innermost.clone());
        while let Some(current) = frame.take_if(|_| codes.len() < DEEPEST) {
            let code = current.getattr(intern!(py, "f_code"))?;
            let at: i64 = current.getattr(intern!(py, "f_lasti"))?.extract()?;
            hasher.write_usize(code.as_ptr() as usize);
            hasher.write_i64(at);
            codes.push(code);
            let outer = current.getattr(intern!(py, "f_back"))?;
            frame = (!outer.is_none()).then_some(outer);
        }
        let key = hasher.finish();
        if let Some(&known) = self.known.lock().by_frames.get(&key) {
            return Ok(known);
        }
        let lines: Vec<String> =
            RENDER.import(py, "trainmon.captures.stacks", "lines_of")?.call1((innermost,))?.extract()?;
        let id = session.stack(&lines);
        let mut known = self.known.lock();
        known.codes.extend(codes.into_iter().map(|code| (code.as_ptr() as usize, code.unbind())));
        known.by_frames.insert(key, id);
        Ok(id)
    }
}
