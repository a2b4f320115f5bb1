//! The rows of one rank's graph.

use std::collections::HashMap;
use std::path::Path;

use trainmon_capture_files::Task;
use trainmon_compare::Capture;
use trainmon_compare::overflow::level;

use crate::database::{GraphLocation, NodeRow, Rows};
use crate::json::list;
use crate::matching::TreeSide;
use crate::metrics::RankMetrics;
use crate::names::{forward_of, is_distributed, module_of_gradients};
use crate::tree::CallTree;
use crate::values::NodeValues;

/// A graph and its results.
pub(crate) struct RankGraph<'g> {
    pub(crate) at: GraphLocation,
    pub(crate) side: TreeSide<'g>,
    /// The other side's tree and, for each node, the counterpart; `None` without a comparison.
    pub(crate) other: Option<(&'g CallTree, &'g [Option<usize>])>,
    /// The results, for the target of a comparison.
    pub(crate) metrics: Option<&'g RankMetrics>,
    pub(crate) is_overflow_checked: bool,
}

impl RankGraph<'_> {
    /// Writes the nodes, children first, and their stacks.
    pub(crate) fn write(&self, to: &mut Rows<'_>) -> rusqlite::Result<()> {
        let TreeSide { tree, capture } = self.side;
        let mut stacks = StackIds::default();
        let tensors = tensor_directory(capture);
        for (order, &index) in tree.order.iter().enumerate() {
            let node = &tree.nodes[index];
            let name = |&at: &usize| &*tree.nodes[at].name;
            let stack = format!("{}_{}", self.at.id(), stacks.number(stack_of(capture, &node.name)));
            let values = self.values(index);
            let operator = node.operator.map(|at| &capture.document.operators[at as usize]);
            // Of gradients of parameters, no input is known.
            let is_levelled = self.is_overflow_checked && module_of_gradients(&node.name).is_none();
            let overflow = operator.filter(|_| is_levelled).and_then(level);
            let children = if node.children.is_empty() { String::new() } else { list(node.children.iter().map(name)) };
            let row = NodeRow {
                order,
                name: &node.name,
                kind: node.kind.code(),
                parent: node.parent.as_ref().map_or("", name),
                children,
                precision: self.metrics.and_then(|metrics| metrics.precision[index]),
                overflow: overflow.map(trainmon_compare::overflow::Level::word),
                micro_step: node.micro_step,
                link: self.link(index),
                stack,
                input: values.input,
                output: values.output,
                tensors: tensors.as_deref(),
                is_distributed: is_distributed(&node.name),
            };
            to.node(self.at, &row)?;
        }
        for (number, frames) in stacks.in_order().into_iter().enumerate() {
            to.stack(&format!("{}_{number}", self.at.id()), frames)?;
        }
        Ok(())
    }

    fn values(&self, node: usize) -> NodeValues {
        let TreeSide { tree, capture } = self.side;
        let Some(operator) = tree.nodes[node].operator else { return NodeValues::none() };
        NodeValues::of(capture, operator, |value, object| {
            if let Some(metrics) = self.metrics {
                metrics.add(node, value, object);
            }
        })
    }

    /// The names from the other side's root to the counterpart.
    fn link(&self, node: usize) -> String {
        let found = self.other.and_then(|(tree, twins)| Some((tree, twins[node]?)));
        found.map_or_else(|| list([]), |(tree, twin)| list(tree.path(twin)))
    }
}

/// The stack of a call; that of its forward call for a backward call.
fn stack_of<'c>(capture: &'c Capture, name: &str) -> &'c [Box<str>] {
    let forward = || capture.stacks.of(&forward_of(name)?);
    capture.stacks.of(name).or_else(forward).unwrap_or_default()
}

/// The directory of the tensors, if they were captured.
fn tensor_directory(capture: &Capture) -> Option<String> {
    let directory = capture.tensors.as_deref().filter(|_| capture.document.task == Task::Tensor)?;
    let absolute = std::path::absolute(directory).ok();
    Some(absolute.as_deref().unwrap_or(directory as &Path).display().to_string())
}

/// Stacks with numbers in the order of their first use.
#[derive(Default)]
struct StackIds {
    numbers: HashMap<String, usize>,
}

impl StackIds {
    fn number(&mut self, frames: &[Box<str>]) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(list(frames.iter().map(|frame| &**frame))).or_insert(next)
    }

    fn in_order(&self) -> Vec<&str> {
        let mut stacks: Vec<(&usize, &str)> = self.numbers.iter().map(|(text, number)| (number, &**text)).collect();
        stacks.sort_unstable();
        stacks.into_iter().map(|(_, text)| text).collect()
    }
}
