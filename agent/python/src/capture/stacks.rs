//! Python stacks of calls, rendered once for each place in the code.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyWeakrefReference;
use trainmon_capture::{Session, StackId};

/// The maximum number of frames that are read, because a recursion may be deep.
const DEEPEST: usize = 256;

/// The maximum number of stacks that are kept as text.
const MOST_RENDERED: usize = 4096;

/// The stacks seen in a step.
pub(crate) struct Stacks {
    known: Mutex<Known>,
    rendered: Arc<RenderedStacks>,
}

#[derive(Default)]
struct Known {
    by_frames: HashMap<u64, StackId, FixedState>,
    /// The code objects of the frames, kept alive so that an address is not reused.
    codes: HashMap<usize, Py<PyAny>, FixedState>,
}

/// Rendered stacks by their frames; most are the same in every step.
#[derive(Default)]
pub(crate) struct RenderedStacks(Mutex<HashMap<u64, Arc<Rendered>, FixedState>>);

struct Rendered {
    lines: Vec<String>,
    /// The frames' code objects. Weak references, because one of them may own this object.
    codes: Vec<Py<PyWeakrefReference>>,
}

impl Rendered {
    /// Whether it belongs to these code objects, not to others at the same addresses.
    fn is_of(&self, codes: &[Bound<'_, PyAny>]) -> bool {
        let is_alive = |(known, code): (&Py<PyWeakrefReference>, &Bound<'_, PyAny>)| {
            known.bind(code.py()).upgrade().is_some_and(|known| known.is(code))
        };
        self.codes.len() == codes.len() && self.codes.iter().zip(codes).all(is_alive)
    }
}

impl RenderedStacks {
    fn of(&self, key: u64, innermost: &Bound<'_, PyAny>, codes: &[Bound<'_, PyAny>]) -> PyResult<Arc<Rendered>> {
        static RENDER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let known = self.0.lock().get(&key).map(Arc::clone);
        if let Some(known) = known.filter(|known| known.is_of(codes)) {
            return Ok(known);
        }
        let py = innermost.py();
        let lines = RENDER.import(py, "trainmon.captures.stacks", "lines_of")?.call1((innermost,))?.extract()?;
        let codes = codes.iter().map(|code| Ok(PyWeakrefReference::new(code)?.unbind())).collect::<PyResult<_>>()?;
        let rendered = Arc::new(Rendered { lines, codes });
        let mut all = self.0.lock();
        let forgotten = if all.len() >= MOST_RENDERED { std::mem::take(&mut *all) } else { HashMap::default() };
        let replaced = all.insert(key, Arc::clone(&rendered));
        drop(all);
        // Outside the lock, because dropping them may run Python code.
        drop((forgotten, replaced));
        Ok(rendered)
    }
}

impl Stacks {
    pub(crate) fn new(rendered: Arc<RenderedStacks>) -> Self {
        Self { known: Mutex::default(), rendered }
    }

    /// Returns the stack that called into this module. Cost: a fraction of a microsecond per frame, and rendering if the
    /// stack is new.
    pub(crate) fn of_caller(&self, py: Python<'_>, session: &Session) -> PyResult<StackId> {
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
        let id = session.stack(&self.rendered.of(key, &innermost, &codes)?.lines);
        let mut known = self.known.lock();
        known.codes.extend(codes.into_iter().map(|code| (code.as_ptr() as usize, code.unbind())));
        known.by_frames.insert(key, id);
        Ok(id)
    }
}
