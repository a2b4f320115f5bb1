//! The names of nodes: kinds, directions, and the names of related nodes.

/// The root of every graph.
pub(crate) const ROOT: &str = "DefaultModel";
/// The prefix of collections of operators between modules.
pub(crate) const BETWEEN: &str = "Apis_Between_Modules";

/// The families of operators.
const OPERATORS: [&str; 12] = [
    "Tensor",
    "Torch",
    "Functional",
    "NPU",
    "VF",
    "Distributed",
    "Aten",
    "Mint",
    "Primitive",
    "Jit",
    "MintFunctional",
    "MindSpeed",
];

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A module, an optimizer, or the root.
    Module,
    /// An operator.
    Operator,
    /// Consecutive operators between modules.
    Collection,
}

impl NodeKind {
    /// The kind by the name's family; other names are modules.
    pub(crate) fn of(name: &str) -> Self {
        let family = name.split('.').next().unwrap_or(name);
        if OPERATORS.contains(&family) { Self::Operator } else { Self::Module }
    }

    /// The text in the database.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Module => "0",
            Self::Operator => "1",
            Self::Collection => "9",
        }
    }
}

/// Whether ranks communicate in it.
pub(crate) fn is_distributed(name: &str) -> bool {
    name.starts_with("Distributed.")
}

/// Whether it is a call of this direction: `forward` or `backward`.
pub(crate) fn goes(name: &str, direction: &str) -> bool {
    name.rsplit('.').take(2).any(|part| part == direction)
}

/// The name of the same call in the other direction; `None` if it has no direction `from`.
pub(crate) fn turned(name: &str, from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = name.split('.').collect();
    let length = parts.len();
    let at = (length.saturating_sub(2)..length).rev().find(|&at| parts[at] == from)?;
    parts[at] = to;
    Some(parts.join("."))
}

/// The forward call whose stack a backward call has: for modules, the first one.
pub(crate) fn forward_of(backward: &str) -> Option<String> {
    let forward = turned(backward, "backward", "forward")?;
    match forward.rsplit_once('.') {
        Some((start, last)) if last != "forward" => Some(format!("{start}.0")),
        _ => Some(forward),
    }
}

/// The operator without the number of its call: `Torch.add.forward` of `Torch.add.3.forward`.
pub(crate) fn uncounted(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').filter(|part| part.parse::<u64>().is_err()).collect();
    parts.join(".")
}

/// The module whose gradients these are: `Module.a.Linear` of `Module.a.Linear.parameters_grad.0`.
pub(crate) fn module_of_gradients(name: &str) -> Option<&str> {
    name.split_once(".parameters_grad").map(|(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn related_names_are_found() {
        assert_eq!(turned("Tensor.add.3.backward", "backward", "forward").as_deref(), Some("Tensor.add.3.forward"));
        assert_eq!(turned("Module.backward.A.forward.0", "backward", "forward"), None);
        assert_eq!(forward_of("Module.a.A.backward.2").as_deref(), Some("Module.a.A.forward.0"));
        assert_eq!(forward_of("Tensor.add.3.backward").as_deref(), Some("Tensor.add.3.forward"));
        assert_eq!(uncounted("Torch.add.3.forward"), "Torch.add.forward");
        assert_eq!(module_of_gradients("Module.a.Linear.parameters_grad.0"), Some("Module.a.Linear"));
    }

    #[test]
    fn unknown_families_are_modules() {
        let kinds = ["Torch.add.0.forward", "Cell.a.A.forward.0", "optimizer", ROOT].map(NodeKind::of);
        assert_eq!(kinds, [NodeKind::Operator, NodeKind::Module, NodeKind::Module, NodeKind::Module]);
    }
}
