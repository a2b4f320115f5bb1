//! One row of msprobe's table.

use trainmon_capture_files::Section;

use super::cell::Cell;
use trainmon_distance::Distance;

/// The row of a value.
#[derive(Clone, Debug)]
pub struct Row {
    /// The index of the target's operator; the baseline's, if only it has the value.
    pub operator: u32,
    /// Whether the value is an input or an output.
    pub section: Section,
    /// Names, dtypes, shapes and `requires_grad`, the target's first in each pair.
    pub basic: [Cell; 8],
    /// The measures of the mode: eight differences, six distances or two checksums.
    pub measured: Vec<Cell>,
    /// Max, min, mean and norm of each side; empty for checksums.
    pub statistics: Vec<Cell>,
    /// Whether `requires_grad` is equal on both sides.
    pub is_requires_grad_consistent: bool,
    /// The messages of the rules.
    pub messages: Vec<&'static str>,
    /// The stack, at an operator's first value.
    pub stack: Option<Cell>,
    /// The names of the two files.
    pub data_names: Option<Cell>,
    /// For a send or receive in a batch: its kind and the other rank, the target's first in each pair.
    pub peers: Option<Box<[Cell; 4]>>,
    /// The measured distance of both tensors.
    pub distance: Option<Box<Distance>>,
    /// The reason why a tensor could not be read.
    pub trouble: Option<String>,
}

impl Row {
    /// `error`, `warning` or `pass`.
    pub fn result(&self) -> &'static str {
        let any = |level: &str| self.messages.iter().any(|message| message.starts_with(level));
        if any("error") {
            "error"
        } else if any("warning") {
            "warning"
        } else {
            "pass"
        }
    }

    /// The cells in the order of the columns.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(32);
        self.visit(&mut |cell| cells.push(cell.clone()));
        cells
    }

    /// Passes the cells to `see` in the order of the columns.
    pub fn visit(&self, see: &mut dyn FnMut(&Cell)) {
        self.measurements().for_each(&mut *see);
        see(&Cell::Bool(self.is_requires_grad_consistent));
        see(&Cell::Word(self.result()));
        if self.messages.is_empty() {
            see(&Cell::Word("[]"));
        } else {
            let messages: Vec<String> = self.messages.iter().map(|message| format!("\"{message}\"")).collect();
            see(&Cell::Text(format!("[{}]", messages.join(", ")).into()));
        }
        self.stack.iter().chain(&self.data_names).for_each(see);
    }

    /// The cells before the result.
    pub fn measurements(&self) -> impl Iterator<Item = &Cell> {
        self.basic.iter().chain(&self.measured).chain(&self.statistics)
    }
}
