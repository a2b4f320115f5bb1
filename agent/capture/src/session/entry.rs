//! The entry of one call.

use std::borrow::Cow;

use trainmon_capture_files::{EntryRecord, Node, part};

use super::values::Values;
use super::{Session, StackId};
use crate::bench::Sum;
use crate::part::Part;

/// The usual maximum number of parts in a piece of an entry.
const MOST_PARTS: usize = 3;

/// The type of the open part, which determines how the part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Plain,
    Input,
    /// Written in a list of its own.
    Gradient,
    /// Searched for NaN.
    Output,
}

impl Current {
    fn of(part: Part<'_>) -> Self {
        match part {
            Part::Gradient(_) => Self::Gradient,
            Part::Output => Self::Output,
            Part::InputArgs | Part::InputKwargs | Part::Input => Self::Input,
            _ => Self::Plain,
        }
    }
}

/// Builds the entry of a call. [`append`](Self::append) writes it; an entry that is dropped without it is discarded.
///
/// A call may be appended in several pieces, for example its inputs before it runs and its outputs after. They become one
/// entry. A later part replaces an earlier one of the same key.
#[derive(Debug)]
#[must_use = "an entry is only written when it is appended"]
pub struct Entry<'s> {
    name: String,
    /// Whether it began while calls were captured. It is then written even if the capture stops meanwhile.
    is_wanted: bool,
    values: Values<'s>,
    /// The key of each part and its end in the text.
    parts: Vec<(Cow<'static, str>, usize)>,
    current: Current,
    node: Option<(Option<String>, Option<u32>)>,
    stack: Option<StackId>,
    moves_to_end: bool,
    /// Whether the entry has outputs.
    has_output: bool,
    /// Whether the outputs contain a NaN or an infinity; `None` if no tensor was readable.
    is_nan: Option<bool>,
    /// Checksums of the inputs and outputs, if they are compared with a baseline.
    inputs: Option<Vec<Sum>>,
    outputs: Option<Vec<Sum>>,
}

impl<'s> Entry<'s> {
    pub(crate) fn new(session: &'s Session, name: &str, saves_tensors: bool) -> Self {
        let is_wanted = session.is_on();
        Self {
            name: name.to_owned(),
            is_wanted,
            values: Values::new(session, saves_tensors && is_wanted),
            parts: Vec::with_capacity(MOST_PARTS),
            current: Current::Plain,
            node: None,
            stack: None,
            moves_to_end: false,
            has_output: false,
            is_nan: None,
            inputs: None,
            outputs: None,
        }
    }

    /// Whether this part is captured. Values of other parts need not be walked.
    pub fn wants(&self, part: Part<'_>) -> bool {
        self.values.session.plan().wants_part(part)
    }

    /// Begins a part, even if the plan excludes it: check [`wants`](Self::wants) first.
    pub fn part(&mut self, part: Part<'_>) -> &mut Values<'s> {
        self.end_part();
        self.current = Current::of(part);
        self.parts.push((part.key(), usize::MAX));
        let values = &mut self.values;
        values.json.begin_piece();
        values.path.clear();
        values.path.push_str(&self.name);
        if part != Part::Saved {
            values.path.push('.');
            values.path.push_str(&part.category());
        }
        if self.current == Current::Gradient {
            values.json.begin_list();
        }
        values
    }

    fn end_part(&mut self) {
        let Some((_, end)) = self.parts.last_mut().filter(|(_, end)| *end == usize::MAX) else { return };
        self.values.close();
        if self.current == Current::Gradient {
            self.values.json.end_list();
        }
        if self.values.json.is_piece_empty() {
            self.values.json.null();
        }
        *end = self.values.json.len();
        let sums = std::mem::take(&mut self.values.sums);
        if self.values.session.bench.is_some() {
            match self.current {
                Current::Input => self.inputs.get_or_insert_default().extend(sums),
                Current::Output | Current::Gradient => self.outputs.get_or_insert_default().extend(sums),
                Current::Plain => {}
            }
        }
        let nonfinite = self.values.has_nonfinite.take();
        if self.current == Current::Output {
            (self.has_output, self.is_nan) = (true, nonfinite);
        }
    }

    /// Sets the entry's parent in `construct.json` to the innermost module that is open on this thread.
    pub fn inside_open_module(&mut self) {
        let (parent, micro_step) = self.values.session.innermost();
        self.node = Some((parent, micro_step));
    }

    /// Sets the entry's parent in `construct.json`: `optimizer`, `clip_grad`, a module, or none.
    pub fn under(&mut self, parent: Option<&str>) {
        let (_, micro_step) = self.values.session.innermost();
        self.node = Some((parent.map(str::to_owned), micro_step));
    }

    /// Sets the call stack.
    pub fn stack(&mut self, stack: StackId) {
        self.stack = Some(stack);
    }

    /// Moves the entry to the end of the document. A module is moved when its outputs are available, so that the calls inside
    /// it come first.
    pub fn move_to_end(&mut self) {
        self.moves_to_end = true;
    }

    /// Writes the entry to the record file, where it survives a crash of the process.
    ///
    /// Returns whether it differs from the baseline (`diff_check`). If so, write it again with [`Session::save_difference`].
    pub fn append(mut self) -> bool {
        self.end_part();
        let session = self.values.session;
        let checks = session.checks_for_nan() && self.has_output;
        let mut parts: Vec<(&str, &[u8])> = Vec::with_capacity(self.parts.len() + 1);
        let mut from = 0;
        for (key, end) in &self.parts {
            parts.push((key, &self.values.json.as_bytes()[from..*end]));
            from = *end;
        }
        if checks {
            parts.push((part::IS_NAN, self.is_nan.map_or(b"null".as_slice(), |found| if found { b"1" } else { b"0" })));
        }
        let node =
            self.node.as_ref().map(|(parent, micro_step)| Node { parent: parent.as_deref(), micro_step: *micro_step });
        let record = EntryRecord {
            name: &self.name,
            moves_to_end: self.moves_to_end,
            node,
            stack: self.stack.map(|stack| stack.0),
            parts: &parts,
        };
        if self.is_wanted {
            session.append(&record, checks && self.is_nan == Some(true));
        }
        let bench = session.bench.as_ref();
        bench.is_some_and(|bench| bench.differs(&self.name, self.inputs.as_deref(), self.outputs.as_deref()))
    }
}
