//! Names of module inputs and outputs, in each dialect's spelling.

use std::collections::HashMap;
use std::hash::Hash;

use crate::CALL_MARK;
use crate::config::Dialect;

trainmon_record::named_enum! {
    /// An end of a module: its inputs or its outputs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ModuleEnd: name, from_name {
        /// The module's inputs.
        Input = "input",
        /// The module's outputs.
        Output = "output",
    }
}

/// The name of the `index`-th of `of` tensors at one end of `module`.
///
/// V1: `fc1.input`, or `attn.input_1` if there are several; gradients have the same names. V2: `fc1.input.0`, and
/// `fc1.grad_input.0` for gradients. The root module's name is empty, so its input is `.input`. The number of `earlier` calls of
/// the module in the same micro-batch makes the name unique: `fc1.input@2`.
pub fn activation_name(
    dialect: Dialect,
    module: &str,
    end: ModuleEnd,
    is_gradient: bool,
    index: usize,
    of: usize,
    earlier: usize,
) -> String {
    let mut name = match dialect {
        Dialect::V1 if of == 1 => format!("{module}.{end}"),
        Dialect::V1 => format!("{module}.{end}_{index}"),
        Dialect::V2 if is_gradient => format!("{module}.grad_{end}.{index}"),
        Dialect::V2 => format!("{module}.{end}.{index}"),
    };
    if earlier > 0 {
        name.push(CALL_MARK);
        name.push_str(&(earlier + 1).to_string());
    }
    name
}

/// The parts of an activation's name, in either dialect's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationName<'n> {
    /// The module; empty for the root.
    pub module: &'n str,
    /// The end of the module.
    pub end: ModuleEnd,
    /// The number of the call, as in the name; empty for the first.
    pub call: &'n str,
}

impl<'n> ActivationName<'n> {
    /// Parses a name. `None` for names that [`activation_name`] does not produce, and for V2's gradients.
    pub fn parse(name: &'n str) -> Option<Self> {
        let (bare, call) = name.split_once(CALL_MARK).unwrap_or((name, ""));
        let (rest, last) = bare.rsplit_once('.')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (module, end) = if is_number(last) { rest.rsplit_once('.')? } else { (rest, last) };
        let end = end.split_once('_').filter(|(_, index)| is_number(index)).map_or(end, |(end, _)| end);
        Some(Self { module, end: ModuleEnd::from_name(end)?, call })
    }
}

/// Calls of modules, and whether all outputs of each are finite. Inputs of a call may be infinite: attention turns the infinities
/// of a mask into zeros. `K` distinguishes calls of the same name: model chunks, micro-batches.
#[derive(Debug)]
pub struct FiniteCalls<'n, K>(HashMap<(&'n str, &'n str, K), bool>);

impl<'n, K: Eq + Hash> FiniteCalls<'n, K> {
    /// Collects activations: the name of each, its key, whether it is finite.
    pub fn of(activations: impl Iterator<Item = (&'n str, K, bool)>) -> Self {
        let mut calls = HashMap::new();
        for (name, key, is_finite) in activations {
            if let Some(ActivationName { module, end: ModuleEnd::Output, call }) = ActivationName::parse(name) {
                *calls.entry((module, call, key)).or_insert(true) &= is_finite;
            }
        }
        Self(calls)
    }

    /// Whether this is an input of a call whose outputs are all finite. False if none of them was measured.
    pub fn are_given(&self, name: &'n str, key: K) -> bool {
        ActivationName::parse(name).is_some_and(|ActivationName { module, end, call }| {
            end == ModuleEnd::Input && self.0.get(&(module, call, key)) == Some(&true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart_as_it_was_put_together() {
        for dialect in [Dialect::V1, Dialect::V2] {
            for (module, index, of, earlier) in [("fc1", 0, 1, 0), ("layers.0.attn", 1, 2, 1), ("", 2, 3, 0)] {
                for end in [ModuleEnd::Input, ModuleEnd::Output] {
                    let name = activation_name(dialect, module, end, false, index, of, earlier);
                    let call = if earlier > 0 { "2" } else { "" };
                    assert_eq!(ActivationName::parse(&name), Some(ActivationName { module, end, call }), "{name}");
                }
            }
        }
        for name in ["fc1.grad_input.0", "fc1.weight", "fc1.input_proj", "input", "fc1.input.x", "layers.0"] {
            assert_eq!(ActivationName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn each_dialect_spells_its_own_names() {
        let name =
            |dialect, gradient, index, of| activation_name(dialect, "fc1", ModuleEnd::Input, gradient, index, of, 0);
        assert_eq!(name(Dialect::V1, false, 0, 1), "fc1.input");
        assert_eq!(name(Dialect::V1, true, 1, 2), "fc1.input_1");
        assert_eq!(name(Dialect::V2, false, 0, 1), "fc1.input.0");
        assert_eq!(name(Dialect::V2, true, 0, 1), "fc1.grad_input.0");
        assert_eq!(activation_name(Dialect::V1, "fc1", ModuleEnd::Output, false, 1, 2, 1), "fc1.output_1@2");
        assert_eq!(activation_name(Dialect::V1, "", ModuleEnd::Output, false, 0, 1, 0), ".output");
    }
}
