//! The call tree of a rank: modules, the operators in them, and collections of operators between modules.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use trainmon_capture_files::Task;
use trainmon_compare::Capture;

use crate::error::GraphError;
use crate::names::{BETWEEN, NodeKind, ROOT, goes, module_of_gradients, turned};

/// The index of the root.
pub(crate) const ROOT_INDEX: usize = 0;

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// The name, which is unique in the tree.
    pub(crate) name: Arc<str>,
    pub(crate) kind: NodeKind,
    /// `None` for the root.
    pub(crate) parent: Option<usize>,
    /// In the order of execution.
    pub(crate) children: Vec<usize>,
    /// The captured values: an index among the capture's operators.
    pub(crate) operator: Option<u32>,
    /// The micro-batch.
    pub(crate) micro_step: u32,
}

/// A rank's tree.
#[derive(Debug)]
pub(crate) struct CallTree {
    /// The root first.
    pub(crate) nodes: Vec<Node>,
    /// All nodes, children before parents.
    pub(crate) order: Vec<usize>,
    index: HashMap<Arc<str>, usize>,
}

impl CallTree {
    /// Builds the tree. Operators that the call tree of the capture does not contain are children of the root.
    pub(crate) fn of(capture: &Capture) -> Result<Self, GraphError> {
        let mut tree = Self { nodes: Vec::new(), order: Vec::new(), index: HashMap::new() };
        tree.add(&Arc::from(ROOT));
        tree.add_construct(capture);
        tree.add_operators(capture);
        if tree.nodes.len() == 1 {
            return Err(GraphError::Empty { path: capture.path.clone() });
        }
        tree.collect_operators();
        tree.order = tree.post_order(&capture.path)?;
        tree.set_micro_steps(capture);
        Ok(tree)
    }

    /// A node by its name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The names from the root to a node.
    pub(crate) fn path(&self, node: usize) -> Vec<&str> {
        let mut path = vec![&*self.nodes[node].name];
        let mut above = self.nodes[node].parent;
        while let Some(parent) = above {
            path.push(&self.nodes[parent].name);
            above = self.nodes[parent].parent;
        }
        path.reverse();
        path
    }

    /// The number of micro-batches.
    pub(crate) fn micro_steps(&self) -> u32 {
        self.nodes.iter().map(|node| node.micro_step).max().unwrap_or(0) + 1
    }

    fn add(&mut self, name: &Arc<str>) -> usize {
        if let Some(known) = self.find(name) {
            return known;
        }
        let index = self.nodes.len();
        self.index.insert(name.clone(), index);
        let kind = NodeKind::of(name);
        let name = name.clone();
        self.nodes.push(Node { name, kind, parent: None, children: Vec::new(), operator: None, micro_step: 0 });
        index
    }

    fn attach(&mut self, node: usize, parent: usize) {
        if node != ROOT_INDEX && self.nodes[node].parent.is_none() {
            self.nodes[node].parent = Some(parent);
            self.nodes[parent].children.push(node);
        }
    }

    /// A backward call without a parent ran in the backward pass of the module in which its forward call ran.
    fn add_construct(&mut self, capture: &Capture) {
        let construct = &capture.construct;
        let above = |name: &str| construct.parent(name).and_then(|parent| parent.name.clone());
        for name in construct.nodes() {
            let twin = || {
                let forward = above(&turned(name, "backward", "forward")?)?;
                let backward = turned(&forward, "forward", "backward")?;
                construct.parent(&backward).map(|_| Arc::from(backward))
            };
            let parent = above(name).or_else(twin);
            let parent = parent.map_or(ROOT_INDEX, |parent: Arc<str>| self.add(&parent));
            let node = self.add(name);
            self.attach(node, parent);
        }
        // Parents that are no entries themselves.
        for node in 1..self.nodes.len() {
            self.attach(node, ROOT_INDEX);
        }
    }

    /// Parameter gradients belong to the last backward call of their module.
    fn add_operators(&mut self, capture: &Capture) {
        let mut last_backward: HashMap<String, usize> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some((module, _)) = node.name.rsplit_once(".backward.") {
                last_backward.insert(module.to_owned(), index);
            }
        }
        for (operator, index) in capture.document.operators.iter().zip(0_u32..) {
            let gradients_of = module_of_gradients(&operator.name).and_then(|module| last_backward.get(module));
            let node = self.add(&Arc::from(&*operator.name));
            self.attach(node, gradients_of.copied().unwrap_or(ROOT_INDEX));
            if capture.document.task != Task::Structure {
                self.nodes[node].operator.get_or_insert(index);
            }
        }
    }

    /// Puts two or more consecutive operators at the root into a collection.
    fn collect_operators(&mut self) {
        let children = std::mem::take(&mut self.nodes[ROOT_INDEX].children);
        let mut collected = Vec::with_capacity(children.len());
        let mut number = 0;
        let is_operator = |node: usize| self.nodes[node].kind == NodeKind::Operator;
        let groups = children.chunk_by(|&one, &next| is_operator(one) && is_operator(next)).map(<[usize]>::to_vec);
        for group in groups.collect::<Vec<_>>() {
            if group.len() < 2 {
                collected.extend(group);
                continue;
            }
            let mut name = format!("{BETWEEN}.{number}");
            while self.find(&name).is_some() {
                number += 1;
                name = format!("{BETWEEN}.{number}");
            }
            let collection = self.add(&Arc::from(name));
            number += 1;
            let node = &mut self.nodes[collection];
            node.kind = NodeKind::Collection;
            node.parent = Some(ROOT_INDEX);
            node.children.clone_from(&group);
            for operator in group {
                self.nodes[operator].parent = Some(collection);
            }
            collected.push(collection);
        }
        self.nodes[ROOT_INDEX].children = collected;
    }

    fn post_order(&self, path: &Path) -> Result<Vec<usize>, GraphError> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut open = vec![(ROOT_INDEX, 0)];
        while let Some((node, next)) = open.last_mut() {
            if let Some(&child) = self.nodes[*node].children.get(*next) {
                *next += 1;
                open.push((child, 0));
            } else {
                order.push(*node);
                open.pop();
            }
        }
        if order.len() < self.nodes.len() {
            let mut is_reached = vec![false; self.nodes.len()];
            for &node in &order {
                is_reached[node] = true;
            }
            let lost = is_reached.iter().position(|reached| !reached).unwrap_or(ROOT_INDEX);
            let node = self.nodes[lost].name.to_string();
            return Err(GraphError::Cycle { path: path.with_file_name("construct.json"), node });
        }
        Ok(order)
    }

    /// The framework's numbers, if it counts micro-batches; otherwise a module's forward call that follows a backward call begins
    /// the next one.
    fn set_micro_steps(&mut self, capture: &Capture) {
        let told = |name: &str| capture.construct.parent(name).and_then(|parent| parent.micro_step);
        let is_told = self.nodes.iter().any(|node| told(&node.name).is_some());
        let firsts: Vec<u32> = if is_told { Vec::new() } else { self.counted_micro_steps() };
        for (at, child) in self.nodes[ROOT_INDEX].children.clone().into_iter().enumerate() {
            let mut open = vec![(child, firsts.get(at).copied().unwrap_or(0))];
            while let Some((node, inherited)) = open.pop() {
                let of_children = || self.nodes[node].children.iter().find_map(|&below| told(&self.nodes[below].name));
                let own = told(&self.nodes[node].name).or_else(|| of_children().filter(|_| is_told));
                let micro_step = own.unwrap_or(inherited);
                self.nodes[node].micro_step = micro_step;
                open.extend(self.nodes[node].children.iter().map(|&below| (below, micro_step)));
            }
        }
    }

    /// The micro-batch of each child of the root.
    fn counted_micro_steps(&self) -> Vec<u32> {
        let (mut step, mut was_backward) = (0, false);
        let children = self.nodes[ROOT_INDEX].children.iter().map(|&child| &self.nodes[child]);
        let counted = children.map(|node| {
            if node.kind == NodeKind::Module {
                if goes(&node.name, "backward") {
                    was_backward = true;
                } else if goes(&node.name, "forward") && was_backward {
                    step += 1;
                    was_backward = false;
                }
            }
            step
        });
        counted.collect()
    }
}
