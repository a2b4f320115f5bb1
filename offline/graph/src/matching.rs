//! Pairs the nodes of two call trees.

use std::collections::{HashMap, VecDeque};

use trainmon_compare::Capture;
use trainmon_compare::matching::{LayerMapping, nodes_by_layer};

use crate::names::{NodeKind, uncounted};
use crate::tree::{CallTree, ROOT_INDEX};

/// The way in which nodes pair.
#[derive(Clone, Debug, Default)]
pub enum NodeMatching {
    /// By the same name below parents of the same names.
    #[default]
    Name,
    /// Modules by the same name, and the operators in them in order, whatever the numbers of their calls.
    Fuzzy,
    /// By a mapping of modules, with the operators in them.
    Layer(LayerMapping),
}

/// The pairs of two trees.
pub(crate) struct NodePairs {
    /// For each node of the target, the baseline's.
    pub(crate) of_target: Vec<Option<usize>>,
    /// For each node of the baseline, the target's.
    pub(crate) of_golden: Vec<Option<usize>>,
}

impl NodePairs {
    fn add(&mut self, target: usize, golden: usize) {
        if self.of_target[target].is_none() && self.of_golden[golden].is_none() {
            self.of_target[target] = Some(golden);
            self.of_golden[golden] = Some(target);
        }
    }
}

/// One side: the tree, and the capture that it was built from.
#[derive(Clone, Copy)]
pub(crate) struct TreeSide<'t> {
    pub(crate) tree: &'t CallTree,
    pub(crate) capture: &'t Capture,
}

/// Pairs the nodes.
pub(crate) fn pair(target: TreeSide<'_>, golden: TreeSide<'_>, matching: &NodeMatching) -> NodePairs {
    let mut pairs =
        NodePairs { of_target: vec![None; target.tree.nodes.len()], of_golden: vec![None; golden.tree.nodes.len()] };
    match matching {
        NodeMatching::Name => by_name(target.tree, golden.tree, &mut pairs),
        NodeMatching::Fuzzy => by_order(target.tree, golden.tree, &mut pairs),
        NodeMatching::Layer(mapping) => {
            by_mapping(target.tree, golden.tree, &nodes_by_layer(target.capture, golden.capture, mapping), &mut pairs);
        }
    }
    pairs
}

fn by_name(target: &CallTree, golden: &CallTree, pairs: &mut NodePairs) {
    pairs.add(ROOT_INDEX, ROOT_INDEX);
    // Parents first.
    for &node in target.order.iter().rev() {
        let above = target.nodes[node].parent.and_then(|parent| pairs.of_target[parent]);
        if let (Some(above), Some(other)) = (above, golden.find(&target.nodes[node].name))
            && golden.nodes[other].parent == Some(above)
        {
            pairs.add(node, other);
        }
    }
}

/// A node that no mapping contains pairs by its name.
fn by_mapping(target: &CallTree, golden: &CallTree, mapped: &HashMap<Box<str>, Box<str>>, pairs: &mut NodePairs) {
    for (node, found) in target.nodes.iter().enumerate() {
        if let Some(other) = mapped.get(&*found.name).and_then(|name| golden.find(name)) {
            pairs.add(node, other);
        }
    }
    for (node, found) in target.nodes.iter().enumerate() {
        if let Some(other) = golden.find(&found.name) {
            pairs.add(node, other);
        }
    }
}

fn by_order(target: &CallTree, golden: &CallTree, pairs: &mut NodePairs) {
    for &node in target.order.iter().rev() {
        let Some(found) = target.nodes.get(node).filter(|found| found.kind != NodeKind::Operator) else { continue };
        let Some(other) = golden.find(&found.name) else { continue };
        pairs.add(node, other);
        let mut waiting: HashMap<String, VecDeque<usize>> = HashMap::new();
        for &child in &golden.nodes[other].children {
            if golden.nodes[child].kind == NodeKind::Operator {
                waiting.entry(uncounted(&golden.nodes[child].name)).or_default().push_back(child);
            }
        }
        let operators = found.children.iter().filter(|&&child| target.nodes[child].kind == NodeKind::Operator);
        for &child in operators {
            let waiting = waiting.get_mut(&uncounted(&target.nodes[child].name));
            if let Some(twin) = waiting.and_then(VecDeque::pop_front) {
                pairs.add(child, twin);
            }
        }
    }
}
