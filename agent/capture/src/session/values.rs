//! Writes a call's values in the format of the dump.

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
    /// The operation: `isend` or `irecv`.
    pub operation: &'p str,
    /// The other rank.
    pub rank: i64,
    /// The tag, which distinguishes operations between the same two ranks.
    pub tag: i64,
    /// The members of the group.
    pub group: &'p [u64],
}

/// The maximum nesting; deeper values are omitted. A list that contains itself is infinite, and JSON readers stop at 200.
const DEEPEST: usize = 160;

/// The usual size in bytes of a call's arguments, and of a value's path, so that memory is allocated once.
const USUAL_TEXT: usize = 512;
const USUAL_PATH: usize = 96;

/// The position of a value in its container.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The length of the container's path.
    path: usize,
    /// The next item's index; `None` in an object, which has keys.
    next: Option<usize>,
}

/// Writes one part of an entry. Lists and objects may be nested; every value is one method call.
///
/// A tensor's file name consists of the keys and indices on its path. Cost: no allocation except for the text.
#[derive(Debug)]
pub struct Values<'s> {
    pub(crate) session: &'s Session,
    pub(crate) json: JsonText,
    /// The entry's name and the position in it: `X.forward.input.0.1`.
    pub(crate) path: String,
    levels: Vec<Level>,
    /// The number of open containers that are nested too deeply and not written.
    too_deep: usize,
    pub(crate) saves_tensors: bool,
    /// Whether a tensor contains a NaN or an infinity; `None` if none was checked.
    pub(crate) has_nonfinite: Option<bool>,
    /// The tensors' checksums, if they are compared with a baseline.
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

    /// Begins a list or tuple.
    pub fn begin_list(&mut self) {
        if self.begin_container(Some(0)) {
            self.json.begin_list();
        }
    }

    /// Ends the list or tuple.
    pub fn end_list(&mut self) {
        if self.end_container() {
            self.json.end_list();
        }
    }

    /// Begins a dict, named tuple or data class.
    pub fn begin_object(&mut self) {
        if self.begin_container(None) {
            self.json.begin_object();
        }
    }

    /// Writes the key of the next value.
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

    /// Ends the dict, named tuple or data class.
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

    /// Moves the path to the next value and returns whether the value is written.
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

    /// Writes `null`: for `None`, and for values that the format cannot describe.
    pub fn null(&mut self) {
        self.put(JsonText::null);
    }

    /// Writes a boolean; `kind` is the name of its type: `bool`, `bool_`.
    pub fn bool(&mut self, kind: &str, value: bool) {
        self.put(|json| json.typed(kind, |json| json.bool(value)));
    }

    /// Writes an integer: `int`, `int64`.
    pub fn int(&mut self, kind: &str, value: i64) {
        self.put(|json| json.typed(kind, |json| json.int(value)));
    }

    /// Writes an integer beyond 64 bits, given as decimal digits.
    pub fn big_int(&mut self, kind: &str, digits: &str) {
        self.put(|json| json.typed(kind, |json| json.big_int(digits)));
    }

    /// Writes a float: `float`, `float32`.
    pub fn float(&mut self, kind: &str, value: f64) {
        self.put(|json| json.typed(kind, |json| json.float(value)));
    }

    /// Writes a text (`str`, `str_`) or a value in text form: `torch.dtype`, `torch.device`,
    /// `torch.distributed.ReduceOp`.
    pub fn text(&mut self, kind: &str, value: &str) {
        self.put(|json| json.typed(kind, |json| json.text(value)));
    }

    /// Writes a text of trainmon, which is no value of the call.
    pub fn plain_text(&mut self, text: &str) {
        self.put(|json| json.text(text));
    }

    /// Writes a slice: start, stop, step.
    pub fn slice(&mut self, ends: [Option<i64>; 3]) {
        self.put(|json| json.slice(ends));
    }

    /// Writes `...`.
    pub fn ellipsis(&mut self) {
        self.put(|json| json.typed("ellipsis", |json| json.text("...")));
    }

    /// Writes a `torch.Size`.
    pub fn size(&mut self, sizes: &[i64]) {
        self.put(|json| json.size(sizes));
    }

    /// Writes a memory format: `channels_last`.
    pub fn memory_format(&mut self, name: &str) {
        self.put(|json| json.memory_format(name));
    }

    /// Writes a group of ranks.
    pub fn process_group(&mut self, ranks: &[u64]) {
        self.put(|json| json.process_group(ranks));
    }

    /// Writes one send or receive of a batch, with its tensor.
    pub fn peer_operation(&mut self, peer: &Peer<'_>, tensor: &Tensor<'_>) -> Option<Later> {
        if !self.place() {
            return None;
        }
        self.json.begin_peer();
        let later = self.tensor_here(tensor);
        self.json.end_peer(peer.operation, peer.rank, peer.tag, peer.group);
        later
    }

    /// Whether the capture needs only the statistics of whole tensors, which may be passed later.
    pub fn wants_only_numbers(&self) -> bool {
        let config = self.session.plan().config();
        let is_plain = config.task == CaptureTask::Statistics && config.summary == Summary::Statistics;
        is_plain && config.slice.is_empty() && !self.saves_tensors
    }

    /// Writes a tensor or array: measures it, sums it and passes it to the file writers, as the plan requires. For a tensor on
    /// a device, returns the numbers to fill in later.
    ///
    /// Blocks only while the queue of tensor files is full.
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

    /// Writes a placeholder for a later value: `null` until [`Session::fill_value`] fills it in.
    pub fn later(&mut self) -> LaterValue {
        let hole = self.session.new_hole();
        if self.place() {
            self.json.hole(hole);
        }
        LaterValue { hole, path: self.path.clone(), saves_tensors: self.saves_tensors }
    }

    /// Ends the open containers, so that the JSON is valid even if a front stopped half way.
    pub(crate) fn close(&mut self) {
        self.too_deep = 0;
        while let Some(level) = self.levels.last() {
            if level.next.is_some() { self.end_list() } else { self.end_object() }
        }
    }
}
