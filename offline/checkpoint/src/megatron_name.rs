//! Names in Megatron's checkpoints: renumbers layers and experts for the whole model and translates old names.

use std::collections::BTreeMap;

const LAYERS: &str = "layers.";
const EXPERTS: &str = "local_experts.";
/// Grouped experts have their number at the end: `experts.linear_fc1.weight3`.
const GROUPED: [&str; 4] =
    ["experts.linear_fc1.weight", "experts.linear_fc2.weight", "experts.linear_fc1.bias", "experts.linear_fc2.bias"];

/// Megatron-LM's names before Megatron-Core.
const OLD_NAMES: [(&str, &str); 9] = [
    ("language_model.", ""),
    ("query_key_value", "linear_qkv"),
    ("self_attention.dense", "self_attention.linear_proj"),
    ("attention.dense", "attention.linear_proj"),
    ("dense_h_to_4h", "linear_fc1"),
    ("dense_4h_to_h", "linear_fc2"),
    ("final_norm", "final_layernorm"),
    ("input_norm", "input_layernorm"),
    ("post_attention_norm", "pre_mlp_layernorm"),
];

/// The Megatron-Core name of an older name.
pub(super) fn core_name(name: &str) -> String {
    let is_old = name.starts_with("language_model.");
    let mut name = name.to_owned();
    for (old, new) in OLD_NAMES {
        if name.contains(old) && !name.contains("linear_proj") {
            name = name.replacen(old, new, 1);
        }
    }
    if is_old {
        for old in ["encoder.", "transformer."] {
            if let Some(rest) = name.strip_prefix(old) {
                name = format!("decoder.{rest}");
            }
        }
    }
    name
}

/// The number of preceding layers in each stack (`decoder.layers.`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbering {
    layers: BTreeMap<String, u64>,
}

impl Numbering {
    /// The number of layers in these names, by stack.
    pub(super) fn of(names: impl Iterator<Item = String>) -> Self {
        let mut layers = BTreeMap::new();
        for name in names {
            if let Some((stack, number, _)) = layer(&name) {
                let count = layers.entry(stack.to_owned()).or_insert(0);
                *count = number.saturating_add(1).max(*count);
            }
        }
        Self { layers }
    }

    /// The number of experts in these names on one rank.
    pub(super) fn experts(names: impl Iterator<Item = String>) -> u64 {
        names.filter_map(|name| Some(expert(&name)?.1.saturating_add(1))).max().unwrap_or(0)
    }

    /// Adds the layers of a stage.
    pub(super) fn add(&mut self, stage: &Self) {
        for (stack, count) in &stage.layers {
            let sum = self.layers.entry(stack.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
}

/// The name with its layer numbered in the whole model.
pub(super) fn with_layer(name: &str, before: &Numbering) -> String {
    match layer(name) {
        Some((stack, number, rest)) => {
            let before = before.layers.get(stack).copied().unwrap_or(0);
            format!("{stack}{}{rest}", number.saturating_add(before))
        }
        None => name.to_owned(),
    }
}

/// The name with its expert numbered in the whole model; `None` if it belongs to no expert.
pub(super) fn with_expert(name: &str, before: u64) -> Option<String> {
    let (front, number, rest) = expert(name)?;
    Some(format!("{front}{}{rest}", number.saturating_add(before)))
}

/// Splits a name into the part before its layer number, the number, and the rest.
fn layer(name: &str) -> Option<(&str, u64, &str)> {
    let at = if name.starts_with(LAYERS) { 0 } else { name.find(&format!(".{LAYERS}"))? + 1 };
    split_number(name, at + LAYERS.len())
}

fn expert(name: &str) -> Option<(&str, u64, &str)> {
    let places = name.find(EXPERTS).map(|at| at + EXPERTS.len());
    let grouped = || GROUPED.iter().find_map(|part| name.find(part).map(|at| at + part.len()));
    split_number(name, places.or_else(grouped)?)
}

fn split_number(name: &str, at: usize) -> Option<(&str, u64, &str)> {
    let (front, rest) = name.split_at(at);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((front, rest[..digits].parse().ok()?, &rest[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(names: &[&str]) -> Numbering {
        Numbering::of(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn layers_are_numbered_on_from_the_stages_before_each_stack_for_itself() {
        let mut before = numbering(&["decoder.layers.0.a", "decoder.layers.1.a", "encoder.layers.0.a", "embedding.w"]);
        before.add(&numbering(&["decoder.layers.2.a"]));
        assert_eq!(with_layer("decoder.layers.1.mlp.x", &before), "decoder.layers.6.mlp.x");
        assert_eq!(with_layer("encoder.layers.0.x", &before), "encoder.layers.1.x");
        assert_eq!(with_layer("layers.3.x", &before), "layers.3.x");
        assert_eq!(with_layer("output_layer.weight", &before), "output_layer.weight");
    }

    #[test]
    fn experts_are_numbered_on_from_the_ranks_before() {
        assert_eq!(
            with_expert("mlp.experts.local_experts.3.linear_fc1.weight", 8).unwrap(),
            "mlp.experts.local_experts.11.linear_fc1.weight"
        );
        assert_eq!(with_expert("mlp.experts.linear_fc2.weight1", 4).unwrap(), "mlp.experts.linear_fc2.weight5");
        assert_eq!(with_expert("mlp.router.weight", 4), None);
        assert_eq!(with_expert("mlp.experts.linear_fc2.weight", 4), None);
    }

    #[test]
    fn old_names_become_those_of_megatron_core_and_new_ones_stay() {
        for (old, new) in [
            (
                "language_model.encoder.layers.0.self_attention.query_key_value.weight",
                "decoder.layers.0.self_attention.linear_qkv.weight",
            ),
            (
                "language_model.encoder.layers.0.self_attention.dense.bias",
                "decoder.layers.0.self_attention.linear_proj.bias",
            ),
            ("language_model.encoder.layers.0.mlp.dense_4h_to_h.weight", "decoder.layers.0.mlp.linear_fc2.weight"),
            ("language_model.encoder.final_norm.weight", "decoder.final_layernorm.weight"),
            ("language_model.embedding.word_embeddings.weight", "embedding.word_embeddings.weight"),
            (
                "encoder.layers.0.self_attention.linear_proj.weight",
                "encoder.layers.0.self_attention.linear_proj.weight",
            ),
            ("decoder.final_layernorm.weight", "decoder.final_layernorm.weight"),
        ] {
            assert_eq!(core_name(old), new);
        }
    }
}
