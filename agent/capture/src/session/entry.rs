//! One call in the making.

use std::borrow::Cow;

use trainmon_capture_files::{EntryRecord, Node, part};

use super::values::Values;
use super::{Session, StackId};
use crate::bench::Sum;
use crate::part::Part;

/// Parts that a piece of an entry has, at most, as a rule.
const MOST_PARTS: usize = 3;

/// What the part in the making needs when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Plain,
    /// Is what goes in.
    Input,
    /// Stands in a list of its own.
    Gradient,
    /// Is looked through for NaN.
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

/// A call in the making. Nothing of it is kept before [`append`](Self::append), and nothing if it is dropped without.
///
/// A call may be appended in several pieces, say its inputs before it runs and its outputs after: they become one entry. A
/// part given twice is the later one.
#[derive(Debug)]
#[must_use = "an entry is kept when it is appended"]
pub struct Entry<'s> {
    name: String,
    /// Whether it began while calls were captured: it is then written, though the capture may stop meanwhile.
    is_wanted: bool,
    values: Values<'s>,
    /// Key and end of each part in the text.
    parts: Vec<(Cow<'static, str>, usize)>,
    current: Current,
    node: Option<(Option<String>, Option<u32>)>,
    stack: Option<StackId>,
    moves_to_end: bool,
    /// Whether its outputs were told, and whether a NaN or an infinity is among them; `None`: nobody could look.
    has_output: bool,
    is_nan: Option<bool>,
    /// Checksums of what went in and of what came out, where they are held against others.
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

    /// Whether this part is kept. What is not need not be walked.
    pub fn wants(&self, part: Part<'_>) -> bool {
        self.values.session.plan().wants_part(part)
    }

    /// Begins a part. One that the plan does not want is begun like any other: ask [`wants`](Self::wants) first.
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

    /// In `construct.json` the entry stands under the innermost module that is open on this thread.
    pub fn inside_open_module(&mut self) {
        let (parent, micro_step) = self.values.session.innermost();
        self.node = Some((parent, micro_step));
    }

    /// In `construct.json` the entry stands under this parent: `optimizer`, `clip_grad`, a module; or under none.
    pub fn under(&mut self, parent: Option<&str>) {
        let (_, micro_step) = self.values.session.innermost();
        self.node = Some((parent.map(str::to_owned), micro_step));
    }

    /// Where the call came from.
    pub fn stack(&mut self, stack: StackId) {
        self.stack = Some(stack);
    }

    /// The entry moves to the end of the document: a module does when its output is there, so that what it is made of stands
    /// before it.
    pub fn move_to_end(&mut self) {
        self.moves_to_end = true;
    }

    /// Hands the entry to the kernel: from here on it survives whatever ends the process.
    ///
    /// Whether it differs from the one it is held against (`diff_check`): it is then to be written once more, by
    /// [`Session::save_difference`].
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
