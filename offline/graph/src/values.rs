//! The captured values of a node as the texts of the database.

use std::borrow::Cow;

use trainmon_capture_files::{Leaf, Operator, Plain, Section};
use trainmon_compare::compat::{Cell, Mode, Row};
use trainmon_compare::{Address, Capture};

use crate::json::Object;

/// The text of an absent value.
const NULL: &str = "null";
/// The name of a file that does not exist.
const NO_FILE: &str = "-1";

/// The two sides of a node.
pub(crate) struct NodeValues {
    /// Arguments and parameters, and the gradients of parameters.
    pub(crate) input: String,
    /// Results.
    pub(crate) output: String,
}

impl NodeValues {
    /// A node without values.
    pub(crate) fn none() -> Self {
        Self { input: "{}".to_owned(), output: "{}".to_owned() }
    }

    /// The values of an operator. `add`: adds the metrics of the value at an index.
    pub(crate) fn of(capture: &Capture, operator: u32, mut add: impl FnMut(usize, &mut Object)) -> Self {
        let (mut input, mut output) = (Object::new(), Object::new());
        let found = &capture.document.operators[operator as usize];
        let has_digests = capture.document.has_digests();
        for at in 0..found.values.len() {
            let address = Address { operator, value: at as u32 };
            let mut value = fields(capture, address, has_digests);
            if !is_nothing(&found.values[at].leaf) {
                add(at, &mut value);
            }
            let is_output = found.values[at].section == Section::Output;
            let side = if is_output { &mut output } else { &mut input };
            side.json(&name(found, at), &value.finish());
        }
        Self { input: input.finish(), output: output.finish() }
    }
}

/// A value without a description. msprobe has none of slices either.
fn is_nothing(leaf: &Leaf) -> bool {
    matches!(leaf, Leaf::Nothing) || matches!(leaf, Leaf::Plain { kind, .. } if &**kind == "slice")
}

/// The name of a value: that of its file, if it has one.
fn name(operator: &Operator, value: usize) -> String {
    let value = &operator.values[value];
    let file = value.tensor().and_then(|tensor| tensor.data_name.as_deref()).and_then(|file| file.rsplit_once('.'));
    file.map_or_else(|| operator.name_of(value), |(stem, _)| stem.to_owned())
}

/// The values of one section, by index.
pub(crate) fn indices(operator: &Operator, section: Section) -> impl Iterator<Item = u32> {
    operator.values.iter().zip(0_u32..).filter(move |(value, _)| value.section == section).map(|(_, at)| at)
}

fn fields(capture: &Capture, address: Address, has_digests: bool) -> Object {
    let item = capture.at(address);
    let mut object = Object::new();
    match &item.value.leaf {
        leaf if is_nothing(leaf) => object.text("value", NULL),
        Leaf::Nothing => {}
        Leaf::Tensor(tensor) => {
            object.text("type", &tensor.kind);
            object.text("dtype", &text(&tensor.dtype));
            object.text("shape", &text(&tensor.shape));
            for (key, value) in ["Max", "Min", "Mean", "Norm"].into_iter().zip(&tensor.statistics) {
                object.text(key, &text(value));
            }
            object.text("requires_grad", tensor.requires_grad.map_or(NULL, |is| if is { "True" } else { "False" }));
            if let Some(digest) = &tensor.digest {
                object.text("md5", &text(digest));
            }
            object.text("data_name", tensor.data_name.as_deref().unwrap_or(NO_FILE));
        }
        Leaf::Plain { kind, value } => {
            object.text("type", kind);
            object.text("value", &text(value));
            described(&mut object, capture, address, has_digests);
        }
        Leaf::Group { ranks, id } => {
            object.text("type", "torch.ProcessGroup");
            object.text("group_ranks", &text(ranks));
            object.text("group_id", id.as_deref().unwrap_or(NULL));
            described(&mut object, capture, address, has_digests);
        }
    }
    object
}

/// Adds the cells that a table has for a value that is no tensor: its number in place of statistics.
fn described(object: &mut Object, capture: &Capture, address: Address, has_digests: bool) {
    object.text("data_name", NO_FILE);
    object.text("requires_grad", NULL);
    let row = Row::of_golden(capture, address, Mode::Statistics, false);
    for (key, cell) in ["Max", "Min", "Mean", "Norm"].into_iter().zip(row.statistics.iter().skip(4)) {
        object.text(key, &cell_text(cell));
    }
    object.text("dtype", &cell_text(&row.basic[3]));
    object.text("shape", &cell_text(&row.basic[5]));
    if has_digests {
        let row = Row::of_golden(capture, address, Mode::Digest, false);
        object.text("md5", &row.measured.get(1).map_or(NULL.into(), cell_text));
    }
}

/// The text of a value, without the quotes of Python's texts.
fn text(value: &Plain) -> String {
    match value {
        Plain::Null => NULL.to_owned(),
        value => unquoted(&Cell::Number(value.clone()).text()),
    }
}

fn cell_text(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Word("None") => NULL.into(),
        cell => unquoted(&cell.text()).into(),
    }
}

fn unquoted(text: &str) -> String {
    text.replace('\'', "")
}
