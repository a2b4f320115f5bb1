//! The input of a comparison: one rank's capture of one step.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trainmon_capture_files::{
    CaptureError, Construct, Document, Leaf, Operator, Parent, Plain, RankFiles, Section, Stacks, Task, Value,
    parse_document,
};
use trainmon_tensor_files::{FileBytes, TensorFileError};

use super::item::{Address, Item};
use super::joined::Joined;
use super::meter::{Meter, json_bytes};
use super::write_only::mark_unwritten;

/// A rank's capture in memory, without its tensors.
#[derive(Debug)]
pub struct Capture {
    /// The file that it was read from.
    pub path: PathBuf,
    /// Its operators.
    pub document: Document,
    /// The stacks of the calls; empty if not captured.
    pub stacks: Stacks,
    /// The modules of the calls; empty if not captured.
    pub construct: Construct,
    /// Whether a file of stacks exists, even an empty one.
    pub has_stacks: bool,
    /// The directory of the tensors.
    pub tensors: Option<PathBuf>,
    /// Counts the bytes read.
    pub meter: Arc<Meter>,
    /// Operators that were joined because the other side has them fused.
    pub joined: Joined,
}

impl Capture {
    /// Reads a rank's JSON files.
    ///
    /// # Errors
    /// See [`CaptureError`].
    pub fn read(files: &RankFiles) -> Result<Self, CaptureError> {
        Self::read_metered(files, &Arc::default())
    }

    /// Reads a rank's JSON files and counts the bytes.
    ///
    /// # Errors
    /// See [`CaptureError`].
    pub fn read_metered(files: &RankFiles, meter: &Arc<Meter>) -> Result<Self, CaptureError> {
        let mut document = parse_document(&bytes(&files.document)?, &files.document)?;
        let stacks = files.stack.as_deref().map(|path| Stacks::parse(&bytes(path)?, path)).transpose()?;
        let construct = files.construct.as_deref().map(|path| Construct::parse(&bytes(path)?, path)).transpose()?;
        let construct = construct.unwrap_or_default();
        if document.task == Task::Structure && document.operators.is_empty() {
            document.operators = nodes(&construct);
        }
        meter.add(json_bytes(files));
        let mut capture = Self {
            path: files.document.clone(),
            document,
            has_stacks: stacks.is_some(),
            stacks: stacks.unwrap_or_default(),
            construct,
            tensors: files.tensors.clone(),
            meter: meter.clone(),
            joined: Joined::default(),
        };
        mark_unwritten(&mut capture.document, &capture.stacks);
        Ok(capture)
    }

    /// Drops everything but the call tree, if there is one.
    pub(super) fn keep_structure(&mut self) {
        let nodes = nodes(&self.construct);
        if !nodes.is_empty() {
            self.document.operators = nodes;
        }
    }

    /// The call tree alone, each node with one value.
    pub(super) fn tree(&self) -> Self {
        let Document { task, framework, .. } = self.document;
        Self {
            path: self.path.clone(),
            document: Document { task, level: None, framework, operators: nodes(&self.construct) },
            stacks: Stacks::default(),
            construct: self.construct.clone(),
            has_stacks: false,
            tensors: None,
            meter: self.meter.clone(),
            joined: Joined::default(),
        }
    }

    /// The module in which an operator ran; for a joined operator, the other side's module.
    pub fn parent(&self, operator: &str) -> Option<&Parent> {
        match self.joined.operator(operator) {
            Some(joined) => joined.parent.as_ref(),
            None => self.construct.parent(operator),
        }
    }

    /// A value by its address.
    pub fn at(&self, address: Address) -> Item<'_> {
        let operator = &self.document.operators[address.operator as usize];
        Item { operator, value: &operator.values[address.value as usize] }
    }

    /// The value at a place of an operator.
    pub(crate) fn counterpart(&self, operator: u32, place: &str) -> Option<Address> {
        let values = &self.document.operators[operator as usize].values;
        let value = values.iter().position(|value| &*value.place == place)? as u32;
        Some(Address { operator, value })
    }

    /// The addresses of all values, in the order of the file.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.document.operators.iter().enumerate().flat_map(|(operator, Operator { values, .. })| {
            (0..values.len()).map(move |value| Address { operator: operator as u32, value: value as u32 })
        })
    }
}

/// Reads a file; a large one is mapped, so it needs no memory of its own.
pub(crate) fn bytes(path: &Path) -> Result<FileBytes, CaptureError> {
    FileBytes::open(path).map_err(|error| match error {
        TensorFileError::Read { path, source } => CaptureError::Read { path, source },
        _ => CaptureError::NotAFile { path: path.to_path_buf() },
    })
}

/// The operators of a capture with structure only, from its call tree. Their modules are all that can be compared.
fn nodes(construct: &Construct) -> Vec<Operator> {
    let node = |name: &str| {
        let parent = construct.parent(name).and_then(|parent| parent.name.clone());
        let value = parent.map_or(Plain::Null, |name| Plain::Text((&*name).into()));
        let leaf = Leaf::Plain { kind: "module".into(), value };
        Operator { name: name.into(), values: vec![Value { section: Section::Input, place: ".parent".into(), leaf }] }
    };
    construct.nodes().iter().map(|name| node(name)).collect()
}
