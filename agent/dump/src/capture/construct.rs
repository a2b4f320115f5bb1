//! `construct.json`: which module an operator ran in.

use std::collections::HashMap;
use std::path::Path;

use jiter::JsonValue;

use super::error::CaptureError;
use super::stack::whole;

/// Where a node hangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parent {
    /// The module it ran in; `None` at the top.
    pub name: Option<Box<str>>,
    /// The micro-batch, where the framework tells (Megatron).
    pub micro_step: Option<u32>,
}

/// The tree of modules and operators, as a map from child to parent.
#[derive(Clone, Debug, Default)]
pub struct Construct {
    parents: HashMap<Box<str>, Parent>,
    /// In the order of the file.
    children: Vec<Box<str>>,
}

impl Construct {
    /// Where a node hangs; `None` if the file does not name it.
    pub fn parent(&self, name: &str) -> Option<&Parent> {
        self.parents.get(name)
    }

    /// Every node, in the order of the file: that of execution.
    pub fn nodes(&self) -> &[Box<str>] {
        &self.children
    }

    /// Whether the file names nobody (dumps of operators alone).
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// The modules around a node, the innermost first. A cycle in the file ends the chain.
    pub fn ancestors<'c>(&'c self, name: &str) -> Vec<&'c str> {
        let mut chain: Vec<&str> = Vec::new();
        let mut next = self.parent(name).and_then(|parent| parent.name.as_deref());
        while let Some(above) = next {
            if chain.contains(&above) {
                break;
            }
            chain.push(above);
            next = self.parent(above).and_then(|parent| parent.name.as_deref());
        }
        chain
    }

    /// Reads the text of a `construct.json`: `{child: parent or null}`, or `{child: [parent, micro step]}` (Megatron).
    ///
    /// # Errors
    /// [`CaptureError::Syntax`], or [`CaptureError::Unexpected`] if it is JSON of something else.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, CaptureError> {
        let unexpected = |key: &str| CaptureError::Unexpected {
            path: path.to_path_buf(),
            key: key.to_owned(),
            expected: "the name of a parent, null, or [parent, micro step]",
            found: "something else".to_owned(),
        };
        let JsonValue::Object(entries) = whole(text, path)? else { return Err(unexpected("(the whole file)")) };
        let mut parents = HashMap::with_capacity(entries.len());
        let mut children = Vec::with_capacity(entries.len());
        for (child, parent) in entries.iter() {
            let parent = match parent {
                _ if child == "megatron_micro_step_number" => continue,
                JsonValue::Null => Parent::default(),
                JsonValue::Str(name) => Parent { name: Some((&**name).into()), micro_step: None },
                JsonValue::Array(pair) => match &pair[..] {
                    [JsonValue::Str(name), JsonValue::Int(step)] => {
                        Parent { name: Some((&**name).into()), micro_step: u32::try_from(*step).ok() }
                    }
                    [JsonValue::Null, JsonValue::Int(step)] => {
                        Parent { name: None, micro_step: u32::try_from(*step).ok() }
                    }
                    _ => return Err(unexpected(child)),
                },
                _ => return Err(unexpected(child)),
            };
            children.push((&**child).into());
            parents.insert((&**child).into(), parent);
        }
        Ok(Self { parents, children })
    }
}
