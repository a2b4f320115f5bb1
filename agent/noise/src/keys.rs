//! Biases of attention keys: a softmax ignores a number that is added to all scores of a query, so the effect of a key's bias
//! cancels and its gradient is only rounding. If queries, keys and values come from one projection, this applies to a part of
//! its bias, and the statistics of the whole do not show it.

/// Names of projections that compute attention keys together with something else: in torch, GPT-2, GPT-NeoX, Falcon, BLOOM,
/// MPT, Megatron, Baichuan and others.
const FUSED: [&str; 8] = ["qkv", "wkv", "in_proj", "query_key_value", "c_attn", "w_pack", "key_value", "to_kv"];

/// Whether the bias of a module contains the biases of attention keys among others: by its name, or because its weight has
/// three times as many rows as columns. `bias` is the number of elements of the bias, `weight` that of the weight, if known.
pub fn may_hold_keys(name: &str, bias: f64, weight: Option<f64>) -> bool {
    let Some(module) = name.strip_suffix("bias") else { return false };
    let last = module.trim_end_matches(['.', '_']).rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_in_three_parts = weight.is_some_and(|weight| bias > 0.0 && weight * 3.0 == bias * bias);
    is_in_three_parts || is_fused(&last)
}

/// Whether a module of this name computes attention keys together with something else.
fn is_fused(module: &str) -> bool {
    module.starts_with("kv") || FUSED.iter().any(|fused| module.contains(fused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_projections_are_known_by_name_or_shape() {
        for name in [
            "h.0.attn.c_attn.bias",
            "b.0.attn.Wqkv.bias",
            "l.3.self_attn.in_proj_bias",
            "layers.0.self_attention.linear_qkv.bias",
            "layers.1.self_attention.query_key_value.bias",
            "blocks.2.cross.kv_proj.bias",
        ] {
            assert!(may_hold_keys(name, 96.0, None), "{name}");
        }
        assert!(may_hold_keys("b.0.w1.bias", 96.0, Some(96.0 * 32.0)), "three parts of 32");
        assert!(!may_hold_keys("b.0.fc.bias", 128.0, Some(128.0 * 32.0)), "an MLP's four parts");
        assert!(!may_hold_keys("b.0.attn.qkv.weight", 96.0, None));
        assert!(!may_hold_keys("b.0.attn.out_proj.bias", 32.0, Some(32.0 * 32.0)));
    }
}
