//! `construct.json`: maps operators to the modules they ran in.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use jiter::JsonValue;

use super::error::CaptureError;
use super::keys::MICRO_STEPS;
use super::shared::{Hashes, Shared};
use super::stack::whole;

/// The parent of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parent {
    /// The module in which it ran; `None` at the top.
    pub name: Option<Arc<str>>,
    /// The micro-batch, if the framework provides it (Megatron).
    pub micro_step: Option<u32>,
}

/// The tree of modules and operators, as a map from child to parent.
#[derive(Clone, Debug, Default)]
pub struct Construct {
    parents: HashMap<Arc<str>, Parent, Hashes>,
    /// The children in file order.
    children: Vec<Arc<str>>,
}

impl Construct {
    /// The parent of a node; `None` if the file does not contain it.
    pub fn parent(&self, name: &str) -> Option<&Parent> {
        self.parents.get(name)
    }

    /// Every node, in file order, which is the order of execution.
    pub fn nodes(&self) -> &[Arc<str>] {
        &self.children
    }

    /// Whether the file has no entries (captures of operators alone).
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

    /// Parses a `construct.json`: `{child: parent or null}`, or `{child: [parent, micro step]}` (Megatron).
    ///
    /// # Errors
    /// [`CaptureError::Syntax`], or [`CaptureError::Unexpected`] for other JSON.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, CaptureError> {
        let unexpected = |key: &str| CaptureError::Unexpected {
            path: path.to_path_buf(),
            key: key.to_owned(),
            expected: "the name of a parent, null, or [parent, micro step]",
            found: "another structure".to_owned(),
        };
        let JsonValue::Object(entries) = whole(text, path)? else { return Err(unexpected("(the whole file)")) };
        let mut shared = Shared::default();
        let mut parents = HashMap::with_capacity_and_hasher(entries.len(), Hashes::default());
        let mut children = Vec::with_capacity(entries.len());
        for (child, parent) in entries.iter() {
            let parent = match parent {
                _ if child == MICRO_STEPS => continue,
                JsonValue::Null => Parent::default(),
                JsonValue::Str(name) => Parent { name: Some(shared.text(name)), micro_step: None },
                JsonValue::Array(pair) => match &pair[..] {
                    [JsonValue::Str(name), JsonValue::Int(step)] => {
                        Parent { name: Some(shared.text(name)), micro_step: u32::try_from(*step).ok() }
                    }
                    [JsonValue::Null, JsonValue::Int(step)] => {
                        Parent { name: None, micro_step: u32::try_from(*step).ok() }
                    }
                    _ => return Err(unexpected(child)),
                },
                _ => return Err(unexpected(child)),
            };
            let child = shared.text(child);
            children.push(child.clone());
            parents.insert(child, parent);
        }
        Ok(Self { parents, children })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_may_have_a_micro_step() {
        let text = br#"{"Module.a.A.forward.0": ["Module.m.M.forward.0", 3], "Module.m.M.forward.0": [null, 3],
            "Functional.relu.0.forward": "Module.a.A.forward.0", "Tensor.add.0.forward": null, "megatron_micro_step_number": 4}"#;
        let construct = Construct::parse(text, Path::new("construct.json")).unwrap();
        let parent = |name: &str| construct.parent(name).cloned();
        let of = |name: Option<&str>, micro_step| Some(Parent { name: name.map(Arc::from), micro_step });
        assert_eq!(parent("Module.a.A.forward.0"), of(Some("Module.m.M.forward.0"), Some(3)));
        assert_eq!(parent("Module.m.M.forward.0"), of(None, Some(3)));
        assert_eq!(parent("Tensor.add.0.forward"), of(None, None));
        assert_eq!((parent("megatron_micro_step_number"), construct.nodes().len()), (None, 4));
        assert_eq!(construct.ancestors("Functional.relu.0.forward"), ["Module.a.A.forward.0", "Module.m.M.forward.0"]);
    }

    #[test]
    fn a_cycle_ends_the_chain_and_another_kind_of_parent_is_named() {
        let construct = Construct::parse(br#"{"a": "b", "b": "a"}"#, Path::new("construct.json")).unwrap();
        assert_eq!(construct.ancestors("a"), ["b", "a"]);
        for text in [r#"{"a": 1}"#, r#"{"a": ["b"]}"#, r#"{"a": ["b", "c"]}"#, "[]"] {
            let error = Construct::parse(text.as_bytes(), Path::new("construct.json")).unwrap_err();
            assert!(matches!(error, CaptureError::Unexpected { .. }), "{text}: {error}");
        }
    }
}
