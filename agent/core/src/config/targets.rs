//! Matching of names with targets, and shortening of names.

use super::effective::{TargetRule, Targets};
use super::signals::Activations;

impl Targets {
    /// Whether a parameter is measured.
    ///
    /// V1: one of its names starts with a target: the raw one or the squashed one ([`squash_name`]; pass the raw one twice if
    /// names are not squashed). A target may include its chunk, `<vpp_stage>:<name>`; without it, the target matches every chunk.
    /// `layers.1` also matches `layers.10.weight`. V2: always.
    pub fn matches_parameter(&self, raw: &str, squashed: &str, vpp_stage: u32) -> bool {
        match self.rule {
            TargetRule::Substring => true,
            TargetRule::Prefix if self.names.is_empty() => true,
            TargetRule::Prefix => self.names.iter().any(|target| {
                let starts = |beginning: &str| raw.starts_with(beginning) || squashed.starts_with(beginning);
                starts(target) || without_chunk(target, vpp_stage).is_some_and(starts)
            }),
        }
    }

    /// Whether the targets include a module; see also [`Activations::matches_module`].
    ///
    /// V1: a target is the module's full name, with or without its chunk (`<vpp_stage>:<name>`); the root module's name is empty.
    /// V2: the name contains a target. Without targets: every module.
    pub fn matches_module(&self, name: &str, vpp_stage: u32) -> bool {
        if self.names.is_empty() {
            return true;
        }
        self.names.iter().any(|target| match self.rule {
            TargetRule::Prefix => target == name || without_chunk(target, vpp_stage) == Some(name),
            TargetRule::Substring => name.contains(target.as_str()),
        })
    }
}

impl Activations {
    /// Whether a module's inputs and outputs are measured: by the targets, or because all are.
    pub fn matches_module(&self, targets: &Targets, name: &str, vpp_stage: u32) -> bool {
        self.all || targets.matches_module(name, vpp_stage)
    }
}

/// Returns `layers.0` for the target `1:layers.0` if the chunk matches.
fn without_chunk(target: &str, vpp_stage: u32) -> Option<&str> {
    let (chunk, name) = target.split_once(':')?;
    (chunk.parse() == Ok(vpp_stage)).then_some(name)
}

/// The families of names that a squashed name may start with; the first one found wins. The names of `Whole` modules end with a
/// dot; the others may continue (`final_layernorm`, `norm1`).
const FAMILIES: [&[&str]; 5] =
    [&["layer.", "layers."], &["embedding.", "embeddings."], &["final"], &["output"], &["norm"]];

/// The tail of a parameter's name that says where in the model it is: from the last `layer.` or `layers.` on, failing
/// that from the last `embedding.` or `embeddings.`, `final…`, `output…`, `norm…`.
///
/// The tail begins after a dot; a name without such a place stays whole. Two parameters may share a squashed name:
/// then the caller keeps the full names.
///
/// ```
/// use trainmon_core::config::squash_name;
/// assert_eq!(squash_name("module.decoder.layers.3.mlp.weight"), "layers.3.mlp.weight");
/// assert_eq!(squash_name("head.weight"), "head.weight");
/// ```
pub fn squash_name(name: &str) -> &str {
    FAMILIES.iter().find_map(|family| last_tail(name, family)).unwrap_or(name)
}

fn last_tail<'a>(name: &'a str, family: &[&str]) -> Option<&'a str> {
    let starts = name.rmatch_indices('.').map(|(dot, _)| dot + 1);
    starts.map(|start| &name[start..]).find(|tail| family.iter().any(|beginning| tail.starts_with(beginning)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(names: &[&str], rule: TargetRule) -> Targets {
        Targets { names: names.iter().map(ToString::to_string).collect(), rule }
    }

    #[test]
    fn squashed_names_are_those_of_the_incumbent() {
        for (name, squashed) in [
            ("Module.embeddings.weight", "embeddings.weight"),
            ("embeddings.", "embeddings."),
            ("module.embeddings.", "embeddings."),
            ("layers.0.x", "layers.0.x"),
            ("module.layers.3.attn.output.weight", "layers.3.attn.output.weight"),
            ("a.layers.1.b.layers.2.c", "layers.2.c"),
            ("embedding.word_embeddings.weight", "embedding.word_embeddings.weight"),
            ("module.embedding.word_embeddings.weight", "embedding.word_embeddings.weight"),
            ("a.output_layer.weight", "output_layer.weight"),
            ("a.final_layernorm.weight", "final_layernorm.weight"),
            ("a.layernorm.weight", "a.layernorm.weight"),
            ("a.layer.0.norm1.weight", "layer.0.norm1.weight"),
            ("a.norm1.layer.2.w", "layer.2.w"),
            ("x.final.y.output.z", "final.y.output.z"),
            ("x.output.y.final.z", "final.z"),
            ("a.embedding.x.layers.1", "layers.1"),
            ("a.mylayers.0.x", "a.mylayers.0.x"),
            ("a.layernorm.norm.w", "norm.w"),
            ("a.output.b.output.c", "output.c"),
            ("a.norm", "norm"),
            ("norm", "norm"),
            ("", ""),
        ] {
            assert_eq!(squash_name(name), squashed, "{name}");
        }
    }

    #[test]
    fn a_parameter_matches_by_the_beginning_of_any_of_its_names() {
        let asked = targets(&["layers.1", "1:head"], TargetRule::Prefix);
        for (raw, vpp_stage, is_measured) in [
            ("layers.1.weight", 0, true),
            ("layers.10.weight", 0, true),
            ("layers.2.weight", 0, false),
            ("module.layers.1.weight", 0, true),
            ("head.weight", 1, true),
            ("head.weight", 0, false),
        ] {
            assert_eq!(asked.matches_parameter(raw, squash_name(raw), vpp_stage), is_measured, "{raw}");
        }
    }

    #[test]
    fn the_empty_target_is_every_parameter_and_the_root_module() {
        let asked = targets(&[""], TargetRule::Prefix);
        assert!(asked.matches_parameter("a.weight", "a.weight", 0));
        assert!(asked.matches_module("", 0));
        assert!(!asked.matches_module("a", 0));
    }

    #[test]
    fn no_targets_are_everything() {
        for rule in [TargetRule::Prefix, TargetRule::Substring] {
            let asked = targets(&[], rule);
            assert!(asked.matches_parameter("a.weight", "a.weight", 0));
            assert!(asked.matches_module("a", 0));
        }
    }

    #[test]
    fn a_module_matches_by_its_whole_name_in_the_flat_dialect() {
        let asked = targets(&["blocks.0", "1:ln"], TargetRule::Prefix);
        assert!(asked.matches_module("blocks.0", 0));
        assert!(!asked.matches_module("blocks.0.attn", 0));
        assert!(asked.matches_module("ln", 1));
        assert!(!asked.matches_module("ln", 0));
    }

    #[test]
    fn a_module_matches_by_a_part_of_its_name_in_the_other_dialect() {
        let asked = targets(&["ln", "fc1"], TargetRule::Substring);
        assert!(asked.matches_module("blocks.0.ln1", 0));
        assert!(asked.matches_module("blocks.0.fc1", 0));
        assert!(!asked.matches_module("head", 0));
        assert!(asked.matches_parameter("head.weight", "head.weight", 0));
    }
}
