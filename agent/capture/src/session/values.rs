//! A call's values as the format writes them.

use std::fmt::Write as _;

use trainmon_capture_files::JsonText;
use trainmon_core::config::{CaptureTask, Summary};

use super::Session;
use super::tensor_text::Measured;
use crate::bench::Sum;
use crate::tensor::{Later, LaterValue, Tensor};

/// The other side of a send or receive.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'p> {
    /// `isend`, `irecv`.
    pub operation: &'p str,
    /// The other rank.
    pub rank: i64,
    /// Told apart from others between the same two by it.
    pub tag: i64,
    /// The members of the group.
    pub group: &'p [u64],
}

/// Nesting beyond this is cut off: a list that contains itself has no end, and readers of JSON stop at 200.
const DEEPEST: usize = 160;

/// Bytes that the arguments of a call need, and a value's path: memory is taken once.
const USUAL_TEXT: usize = 512;
const USUAL_PATH: usize = 96;

/// Where one value stands in what contains it.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The path's length up to the container.
    path: usize,
    /// The next item's number; `None` in an object, whose keys are told.
    next: Option<usize>,
}

/// Writes one part of an entry. Lists and objects may be nested; every value is one call.
///
/// Names of files are made of the keys and numbers on the way to a tensor. Cost: no allocation but what the text needs.
#[derive(Debug)]
pub struct Values<'s> {
    pub(crate) session: &'s Session,
    pub(crate) json: JsonText,
    /// The entry's name, and the place in it: `X.forward.input.0.1`.
    pub(crate) path: String,
    levels: Vec<Level>,
    /// Containers that were begun too deep, and are not written.
    too_deep: usize,
    pub(crate) saves_tensors: bool,
    /// Whether a NaN or an infinity was seen.
    pub(crate) has_nonfinite: Option<bool>,
    /// The tensors' checksums, where they are held against others.
    pub(crate) sums: Vec<Sum>,
}

impl<'s> Values<'s> {
    pub(crate) fn new(session: &'s Session, saves_tensors: bool) -> Self {
        Self {
            session,
            json: JsonText::with_capacity(USUAL_TEXT),
            path: String::with_capacity(USUAL_PATH),
            levels: Vec::new(),
            too_deep: 0,
            saves_tensors,
            has_nonfinite: None,
            sums: Vec::new(),
        }
    }

    /// A list or tuple begins.
    pub fn begin_list(&mut self) {
        if self.begin_container(Some(0)) {
            self.json.begin_list();
        }
    }

    /// It ends.
    pub fn end_list(&mut self) {
        if self.end_container() {
            self.json.end_list();
        }
    }

    /// A dict, named tuple or data class begins.
    pub fn begin_object(&mut self) {
        if self.begin_container(None) {
            self.json.begin_object();
        }
    }

    /// The key of the value that follows.
    pub fn key(&mut self, key: &str) {
        if self.too_deep > 0 {
            return;
        }
        if let Some(level) = self.levels.last() {
            self.path.truncate(level.path);
            self.path.push('.');
            self.path.push_str(key);
        }
        self.json.key(key);
    }

    /// It ends.
    pub fn end_object(&mut self) {
        if self.end_container() {
            self.json.end_object();
        }
    }

    fn begin_container(&mut self, next: Option<usize>) -> bool {
        if self.too_deep > 0 || self.levels.len() == DEEPEST {
            if self.too_deep == 0 {
                self.place();
                self.json.null();
            }
            self.too_deep += 1;
            return false;
        }
        self.place();
        self.levels.push(Level { path: self.path.len(), next });
        true
    }

    fn end_container(&mut self) -> bool {
        if self.too_deep > 0 {
            self.too_deep -= 1;
            return false;
        }
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.path);
        }
        true
    }

    /// Moves the path to the value that comes now. Whether it is written.
    fn place(&mut self) -> bool {
        if self.too_deep > 0 {
            return false;
        }
        if let Some(level) = self.levels.last_mut()
            && let Some(next) = &mut level.next
        {
            self.path.truncate(level.path);
            // Writing to a String does not fail.
            let _written = write!(self.path, ".{next}").is_ok();
            *next += 1;
        }
        true
    }

    fn put(&mut self, write: impl FnOnce(&mut JsonText)) {
        if self.place() {
            write(&mut self.json);
        }
    }

    /// `None`, and everything that nobody can describe.
    pub fn null(&mut self) {
        self.put(JsonText::null);
    }

    /// A boolean; `kind` is its type's name: `bool`, `bool_`.
    pub fn bool(&mut self, kind: &str, value: bool) {
        self.put(|json| json.typed(kind, |json| json.bool(value)));
    }

    /// An integer: `int`, `int64`.
    pub fn int(&mut self, kind: &str, value: i64) {
        self.put(|json| json.typed(kind, |json| json.int(value)));
    }

    /// An integer beyond 64 bits, as its decimal digits.
    pub fn big_int(&mut self, kind: &str, digits: &str) {
        self.put(|json| json.typed(kind, |json| json.big_int(digits)));
    }

    /// A float: `float`, `float32`.
    pub fn float(&mut self, kind: &str, value: f64) {
        self.put(|json| json.typed(kind, |json| json.float(value)));
    }

    /// A text: `str`, `str_`; also what is written as a text: `torch.dtype`, `torch.device`,
    /// `torch.distributed.ReduceOp`.
    pub fn text(&mut self, kind: &str, value: &str) {
        self.put(|json| json.typed(kind, |json| json.text(value)));
    }

    /// A text of ours, which is no value of the call.
    pub fn plain_text(&mut self, text: &str) {
        self.put(|json| json.text(text));
    }

    /// A slice: start, stop, step.
    pub fn slice(&mut self, ends: [Option<i64>; 3]) {
        self.put(|json| json.slice(ends));
    }

    /// `...`.
    pub fn ellipsis(&mut self) {
        self.put(|json| json.typed("ellipsis", |json| json.text("...")));
    }

    /// A `torch.Size`.
    pub fn size(&mut self, sizes: &[i64]) {
        self.put(|json| json.size(sizes));
    }

    /// A memory format: `channels_last`.
    pub fn memory_format(&mut self, name: &str) {
        self.put(|json| json.memory_format(name));
    }

    /// A group of ranks.
    pub fn process_group(&mut self, ranks: &[u64]) {
        self.put(|json| json.process_group(ranks));
    }

    /// One send or receive of a batch, with its tensor.
    pub fn peer_operation(&mut self, peer: &Peer<'_>, tensor: &Tensor<'_>) -> Option<Later> {
        if !self.place() {
            return None;
        }
        self.json.begin_peer();
        let later = self.tensor_here(tensor);
        self.json.end_peer(peer.operation, peer.rank, peer.tag, peer.group);
        later
    }

    /// Whether numbers are all that is wanted of its tensors, whole: they may come later.
    pub fn wants_only_numbers(&self) -> bool {
        let config = self.session.plan().config();
        let is_plain = config.task == CaptureTask::Statistics && config.summary == Summary::Statistics;
        is_plain && config.slice.is_empty() && !self.saves_tensors
    }

    /// A tensor or array: measured, summed, and handed to the files' writers, as the plan says. Gives what has to be told
    /// later of one on a device.
    ///
    /// Waits only where more bytes of tensors are to be written than memory is allowed to hold.
    pub fn tensor(&mut self, tensor: &Tensor<'_>) -> Option<Later> {
        if self.place() { self.tensor_here(tensor) } else { None }
    }

    fn tensor_here(&mut self, tensor: &Tensor<'_>) -> Option<Later> {
        let measured = Measured::of(self.session, tensor, &self.path, self.saves_tensors);
        if let Some(is_nonfinite) = measured.is_nonfinite {
            self.has_nonfinite = Some(self.has_nonfinite.unwrap_or(false) || is_nonfinite);
        }
        if self.session.bench.is_some() {
            self.sums.push(measured.sum(tensor));
        }
        measured.write(&mut self.json, tensor);
        measured.later
    }

    /// A value that comes later, if at all: `null` until [`Session::fill_value`] tells it.
    pub fn later(&mut self) -> LaterValue {
        let hole = self.session.new_hole();
        if self.place() {
            self.json.hole(hole);
        }
        LaterValue { hole, path: self.path.clone(), saves_tensors: self.saves_tensors }
    }

    /// Ends what is still open: a front that gave up half way leaves valid JSON behind.
    pub(crate) fn close(&mut self) {
        self.too_deep = 0;
        while let Some(level) = self.levels.last() {
            if level.next.is_some() { self.end_list() } else { self.end_object() }
        }
    }
}
