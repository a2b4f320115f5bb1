//! The differences and results of paired nodes. The rules are those of `trainmon-compare`.

use trainmon_capture_files::{Section, Task};
use trainmon_compare::compat::{Cell, Mode, Row, graph_rows, headers};
use trainmon_compare::matching::{How, Pair};
use trainmon_compare::{Address, Capture, Evaluation, Sides, common_mode};

use crate::json::Object;
use crate::matching::{NodePairs, TreeSide};
use crate::names::NodeKind;
use crate::tree::CallTree;
use crate::values::indices;

/// The columns of a table before the differences.
const BASIC: usize = 8;
const TAIL: [&str; 3] = ["Requires_grad Consistent", "Result", "Err_message"];
const TAIL_OF_DIGESTS: [&str; 3] = ["Result", "Requires_grad Consistent", "Err_message"];
/// More decimals than these are rounded in percentages.
const DECIMALS: usize = 6;

/// The compared properties of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphTask {
    /// As in a table.
    Values(Mode),
    /// Only the call trees.
    Structure,
}

impl GraphTask {
    /// The properties of both captures; `None` if they have nothing in common.
    pub(crate) fn of(target: &Capture, golden: &Capture) -> Option<Self> {
        if target.document.task == Task::Structure && golden.document.task == Task::Structure {
            return Some(Self::Structure);
        }
        common_mode(target, golden).map(Self::Values)
    }

    /// The text in the database.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Values(Mode::Statistics) => "summary",
            Self::Values(Mode::Tensor) => "all",
            Self::Values(Mode::Digest) => "md5",
            Self::Structure => "structure",
        }
    }
}

/// The results of one rank's target.
pub(crate) struct RankMetrics {
    mode: Option<Mode>,
    headers: Vec<&'static str>,
    /// The rows of each node, in the order of the operator's values.
    rows: Vec<Vec<Option<Row>>>,
    /// The precision index of each node.
    pub(crate) precision: Vec<Option<f64>>,
}

impl RankMetrics {
    /// Evaluates the paired nodes.
    pub(crate) fn of(target: TreeSide<'_>, golden: TreeSide<'_>, pairs: &NodePairs, task: GraphTask) -> Self {
        let count = target.tree.nodes.len();
        let GraphTask::Values(mode) = task else {
            return Self {
                mode: None,
                headers: Vec::new(),
                rows: vec![Vec::new(); count],
                precision: vec![None; count],
            };
        };
        let evaluation = Evaluation::new(target.capture, golden.capture, true);
        let sides = Sides { target: target.capture, golden: golden.capture, evaluation: &evaluation };
        let value_pairs = value_pairs(target, golden, pairs);
        let mut by_operator: Vec<Vec<Option<Row>>> = vec![Vec::new(); target.capture.document.operators.len()];
        for (row, pair) in graph_rows(sides, &value_pairs, mode).into_iter().zip(&value_pairs) {
            if let Some(address) = pair.target {
                let rows = &mut by_operator[address.operator as usize];
                rows.resize(rows.len().max(address.value as usize + 1), None);
                rows[address.value as usize] = Some(row);
            }
        }
        let rows_of = |operator: Option<u32>| operator.map(|at| std::mem::take(&mut by_operator[at as usize]));
        let operators = target.tree.nodes.iter().map(|node| node.operator);
        let rows: Vec<Vec<Option<Row>>> = operators.map(rows_of).map(Option::unwrap_or_default).collect();
        let precision = precision(target.tree, &rows);
        Self { mode: Some(mode), headers: headers(mode, false), rows, precision }
    }

    /// Adds the metrics of a node's value.
    pub(crate) fn add(&self, node: usize, value: usize, object: &mut Object) {
        let (Some(mode), Some(Some(row))) = (self.mode, self.rows[node].get(value)) else { return };
        if mode != Mode::Digest {
            for (key, cell) in self.headers[BASIC..].iter().zip(&row.measured) {
                object.text(key, &measured(cell));
            }
        }
        let cells = row.cells();
        let tail = cells.iter().skip(row.measurements().count());
        let found: Vec<(&str, &Cell)> = TAIL.into_iter().zip(tail).collect();
        for key in if mode == Mode::Digest { TAIL_OF_DIGESTS } else { TAIL } {
            if let Some((_, cell)) = found.iter().find(|(name, _)| *name == key) {
                object.text(key, &cell.text());
            }
        }
    }
}

/// The pairs of values: by their place in a section, operator by operator.
fn value_pairs(target: TreeSide<'_>, golden: TreeSide<'_>, pairs: &NodePairs) -> Vec<Pair> {
    const SECTIONS: [Section; 4] = [Section::Input, Section::Parameter, Section::Output, Section::ParameterGradient];
    let mut found = Vec::new();
    for (node, twin) in target.tree.nodes.iter().zip(&pairs.of_target) {
        let twin = twin.and_then(|twin| golden.tree.nodes[twin].operator);
        let (Some(operator), Some(twin)) = (node.operator, twin) else { continue };
        let [ours, theirs] = [(target, operator), (golden, twin)]
            .map(|(side, operator)| &side.capture.document.operators[operator as usize]);
        let first = found.len();
        for section in SECTIONS {
            let mut others = indices(theirs, section);
            for value in indices(ours, section) {
                let other = others.next().map(|value| Address { operator: twin, value });
                found.push(Pair { target: Some(Address { operator, value }), golden: other, how: How::Name });
            }
        }
        found[first..].sort_by_key(|pair| pair.target);
    }
    found
}

/// The worst result of each node's values; that of a collection is its operators' worst.
fn precision(tree: &CallTree, rows: &[Vec<Option<Row>>]) -> Vec<Option<f64>> {
    let index = |row: &Row| match row.result() {
        "error" => 1.0,
        "warning" => 0.5,
        _ => 0.0,
    };
    let mut precision: Vec<Option<f64>> =
        rows.iter().map(|rows| rows.iter().flatten().map(index).reduce(f64::max)).collect();
    for (node, found) in tree.nodes.iter().enumerate().filter(|(_, found)| found.kind == NodeKind::Collection) {
        precision[node] = found.children.iter().filter_map(|&child| precision[child]).reduce(f64::max);
    }
    precision
}

/// The text of a difference; percentages have at most six decimals.
fn measured(cell: &Cell) -> String {
    let text = cell.text();
    let Cell::Percent(percent) = cell else { return text.into_owned() };
    let decimals = text.trim_end_matches('%').split_once('.').map_or("", |(_, decimals)| decimals);
    if decimals.len() > DECIMALS && decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return format!("{percent:.DECIMALS$}%");
    }
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_unless_they_have_an_exponent() {
        let texts = [1.835_653_123_4, 99900.0, 1.192_117_196_564_747_3e-5, 0.0, f64::INFINITY];
        assert_eq!(
            texts.map(|percent| measured(&Cell::Percent(percent))),
            ["1.835653%", "99900.0%", "1.1921171965647473e-05%", "0.0%", "inf%"]
        );
    }
}
