//! One row of msprobe's table.

use trainmon_capture_files::Section;

use super::cell::Cell;
use trainmon_distance::Distance;

/// One value's row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The target's operator, by index; the golden's, if it alone has the value.
    pub operator: u32,
    /// Whether the value goes in or comes out.
    pub section: Section,
    /// Names, dtypes, shapes and `requires_grad`, the target's first in each pair.
    pub basic: [Cell; 8],
    /// What the mode measures: eight differences, six distances or two checksums.
    pub measured: Vec<Cell>,
    /// Max, min, mean and norm, four of each side; none between checksums.
    pub statistics: Vec<Cell>,
    /// Whether both or neither takes part in differentiation.
    pub is_requires_grad_consistent: bool,
    /// The rules' messages.
    pub messages: Vec<&'static str>,
    /// The stack, with an operator's first value.
    pub stack: Option<Cell>,
    /// The two files.
    pub data_names: Option<Cell>,
    /// Of a send or receive in a batch: what it is and the other rank, the target's first in each pair.
    pub peers: Option<Box<[Cell; 4]>>,
    /// What was measured between both tensors.
    pub distance: Option<Box<Distance>>,
    /// Why a tensor could not be read.
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

    /// Its cells in the order of the columns.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(32);
        self.visit(&mut |cell| cells.push(cell.clone()));
        cells
    }

    /// Shows its cells in the order of the columns.
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

    /// The cells before the verdict.
    pub fn measurements(&self) -> impl Iterator<Item = &Cell> {
        self.basic.iter().chain(&self.measured).chain(&self.statistics)
    }
}
