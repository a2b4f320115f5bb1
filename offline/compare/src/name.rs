//! Parses operator names.

/// The hasher of maps that are queried for each value or operator: randomly seeded, and fast on short keys.
pub(crate) type Hashes = foldhash::fast::RandomState;

/// Operations that return unwritten memory, in every family that has them.
const ALLOCATIONS: [&str; 11] = [
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_quantized",
    "empty_strided",
    "empty_with_format",
    "new_empty",
    "new_empty_strided",
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    "empty_strided_p2p",
];

/// The direction of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The computation of the loss.
    Forward,
    /// The computation of gradients.
    Backward,
    /// The gradients of a module's parameters.
    ParameterGradient,
}

/// `Functional.linear.3.forward`: callee `Functional.linear`, call 3, forward.
/// `Module.head.Linear.backward.0`: callee `Module.head.Linear`, call 0, backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorName<'n> {
    /// The called function or module.
    pub callee: &'n str,
    /// The number of earlier calls of it in the step.
    pub call: u32,
    /// Which way.
    pub direction: Direction,
    /// Whether the number precedes the direction, as in operator names; in module names it follows.
    pub is_operator: bool,
}

impl<'n> OperatorName<'n> {
    /// Parses a name; `None` for names of another form (`optimizer`, saved values).
    pub fn parse(name: &'n str) -> Option<Self> {
        let (rest, last) = name.rsplit_once('.')?;
        let (callee, before) = rest.rsplit_once('.')?;
        if let Some(direction) = direction(last) {
            return Some(Self { callee, call: before.parse().ok()?, direction, is_operator: true });
        }
        let direction = direction(before)?;
        // `Functional.linear.3.backward.1`: a second pass through an operator's graph.
        let again =
            callee.rsplit_once('.').filter(|_| direction == Direction::Backward && !callee.starts_with("Module."));
        if let Some((callee, Ok(call))) = again.map(|(callee, call)| (callee, call.parse())) {
            return Some(Self { callee, call, direction, is_operator: true });
        }
        Some(Self { callee, call: last.parse().ok()?, direction, is_operator: false })
    }

    /// The part that names the computation: `linear` of `Functional.linear`, the class of a module.
    pub fn function(&self) -> &'n str {
        self.callee.rsplit('.').next().unwrap_or(self.callee)
    }

    /// The first part: `Functional`, `Tensor`, `Module` and so on.
    pub fn family(&self) -> &'n str {
        self.callee.split('.').next().unwrap_or(self.callee)
    }

    /// The operation without its overload: `empty` of `Aten.empty.memory_format`.
    pub fn operation(&self) -> &'n str {
        match self.callee.strip_prefix("Aten.") {
            Some(kernel) => kernel.split('.').next().unwrap_or(kernel),
            None => self.function(),
        }
    }

    /// Whether it returns unwritten memory, of which only dtype and shape are comparable.
    pub fn gives_unwritten_memory(&self) -> bool {
        self.is_operator && self.direction == Direction::Forward && ALLOCATIONS.contains(&self.operation())
    }

    /// Whether ranks communicate in it.
    pub fn is_communication(&self) -> bool {
        matches!(self.family(), "Distributed" | "MintDistributed" | "NPU" if is_collective(self.function()) || self.family() != "NPU")
    }
}

fn is_collective(function: &str) -> bool {
    matches!(function, "isend" | "irecv")
}

fn direction(text: &str) -> Option<Direction> {
    Some(match text {
        "forward" => Direction::Forward,
        "backward" => Direction::Backward,
        "parameters_grad" => Direction::ParameterGradient,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_taken_apart() {
        let operator = OperatorName::parse("Torch.linalg.norm.12.backward").unwrap();
        assert_eq!(
            (operator.callee, operator.call, operator.direction),
            ("Torch.linalg.norm", 12, Direction::Backward)
        );
        let module = OperatorName::parse("Module.0.fc.Linear.parameters_grad.1").unwrap();
        assert_eq!(
            (module.callee, module.call, module.direction),
            ("Module.0.fc.Linear", 1, Direction::ParameterGradient)
        );
        assert_eq!((module.function(), module.family(), module.is_operator), ("Linear", "Module", false));
        let kernel = OperatorName::parse("Aten.native_layer_norm.default.4.forward").unwrap();
        assert_eq!((kernel.operation(), kernel.function()), ("native_layer_norm", "default"));
        for none in ["optimizer", "y.0.debug", "Torch.relu.forward", "Module.a.forward.b"] {
            assert_eq!(OperatorName::parse(none), None, "{none}");
        }
    }
    #[test]
    fn what_gives_unwritten_memory_is_known_in_every_family() {
        let gives = |name: &str| OperatorName::parse(name).unwrap().gives_unwritten_memory();
        for name in [
            "Torch.empty.0.forward",
            "Tensor.new_empty.3.forward",
            "Aten.empty.memory_format.1.forward",
            "Aten.empty_like.default.0.forward",
            "Mint.empty.0.forward",
            "NPU.empty_with_format.0.forward",
        ] {
            assert!(gives(name), "{name}");
        }
        for name in ["Torch.zeros.0.forward", "Aten.zeros.default.0.forward", "Module.pool.empty.forward.0"] {
            assert!(!gives(name), "{name}");
        }
    }
}
