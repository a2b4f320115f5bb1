//! Layer and group of a tensor, derived from its name.
//!
//! Metrics are kept per layer and group, not per parameter, so that their number is limited by the model's depth.

/// The separator between the name of a module's input or output and the number of the call.
pub const CALL_MARK: char = '@';

/// The longest layer label, in bytes. Real prefixes (`module.module.decoder.layers.47`) stay below 40.
pub const MAX_LAYER_BYTES: usize = 64;

/// Wrappers that prefix every name without meaning: `module` of DDP and Megatron, torch.compile, FSDP.
const WRAPPERS: [&str; 3] = ["module", "_orig_mod", "_fsdp_wrapped_module"];

/// The suffixes of activation names after the module.
const MODULE_ENDS: [&str; 4] = ["input", "output", "grad_input", "grad_output"];

/// The layer of a tensor: the name up to its first number (`model.layers.7`, `transformer.h.4`), without wrappers;
/// without a number, the first component (`lm_head`).
///
/// At most [`MAX_LAYER_BYTES`] long: a longer prefix is cut at the front, because the number is at its end. Empty only
/// for an empty name. The index of an activation (`fc1.input.0`) is not a layer number.
pub fn layer_of(name: &str) -> &str {
    let name = without_wrappers(without_module_end(name));
    let mut start = 0;
    for component in name.split('.') {
        let end = start + component.len();
        if is_number(component) {
            return bounded(&name[..end]);
        }
        start = end + 1;
    }
    bounded(name.split('.').find(|component| !component.is_empty()).unwrap_or(name))
}

crate::named_enum! {
    /// The part of a transformer a tensor belongs to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Group: name {
        /// Attention: query, key, value and output projections.
        Attn = "attn",
        /// The dense feed-forward network.
        Mlp = "mlp",
        /// Normalisation, anywhere in the model.
        Norm = "norm",
        /// Token and position embeddings.
        Embed = "embed",
        /// The projection from the last hidden state to the output.
        Head = "head",
        /// Experts and their router.
        Moe = "moe",
        /// Everything else.
        Other = "other",
    }
}

impl Group {
    /// The group of a name, following the conventions of GPT-2, Llama, Megatron, Mixtral, BERT, T5 and similar models.
    ///
    /// The narrowest part wins: a norm inside attention is a norm, a projection inside an expert belongs to the expert.
    pub fn of(name: &str) -> Self {
        let name = without_module_end(name).to_ascii_lowercase();
        let has = |test: fn(&str) -> bool| name.split('.').any(test);
        if has(is_norm) {
            Self::Norm
        } else if has(is_moe) {
            Self::Moe
        } else if has(is_attention) {
            Self::Attn
        } else if has(is_mlp) {
            Self::Mlp
        } else if has(is_named_head) || (!name.split('.').any(is_number) && has(is_head_outside_layers)) {
            Self::Head
        } else if has(is_embedding) {
            Self::Embed
        } else {
            Self::Other
        }
    }
}

fn is_number(component: &str) -> bool {
    !component.is_empty() && component.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_norm(component: &str) -> bool {
    component.contains("norm")
        || component.starts_with("ln_")
        || component.ends_with("_ln")
        || component.strip_prefix("ln").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_moe(component: &str) -> bool {
    component.contains("expert")
        || component.contains("router")
        || component == "moe"
        || component.starts_with("moe_")
        || component.ends_with("_moe")
}

fn is_attention(component: &str) -> bool {
    const PROJECTIONS: [&str; 13] = [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "wq",
        "wk",
        "wv",
        "wo",
        "wqkv",
        "query",
        "key",
        "value",
        "query_key_value",
    ];
    component.contains("attn")
        || component.contains("attention")
        || component.contains("qkv")
        || PROJECTIONS.contains(&component)
}

fn is_mlp(component: &str) -> bool {
    const LAYERS: [&str; 15] = [
        "fc1",
        "fc2",
        "linear_fc1",
        "linear_fc2",
        "c_fc",
        "gate_proj",
        "up_proj",
        "down_proj",
        "gate_up_proj",
        "w1",
        "w2",
        "w3",
        "dense_h_to_4h",
        "dense_4h_to_h",
        "densereludense",
    ];
    component.contains("mlp")
        || component.contains("ffn")
        || component.contains("feed_forward")
        || component.contains("feedforward")
        || component.contains("gate_up")
        || component == "intermediate"
        || LAYERS.contains(&component)
}

/// Whether this component names a head even inside a numbered module.
fn is_named_head(component: &str) -> bool {
    matches!(component, "lm_head" | "embed_out" | "output_layer" | "unembed" | "unembedding")
}

/// Whether this component names a head outside the layers only: BERT calls a layer's second feed-forward matrix
/// `output`.
fn is_head_outside_layers(component: &str) -> bool {
    matches!(component, "head" | "heads" | "output" | "classifier" | "score")
}

fn is_embedding(component: &str) -> bool {
    component.contains("embed")
        || component.ends_with("_emb")
        || matches!(component, "emb" | "wte" | "wpe" | "shared" | "cls_token")
}

/// The name without the number of the call.
fn without_call(name: &str) -> &str {
    match name.rsplit_once(CALL_MARK) {
        Some((name, call)) if !call.is_empty() && call.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    }
}

fn without_wrappers(name: &str) -> &str {
    let mut rest = name;
    while let Some((first, tail)) = rest.split_once('.') {
        if !WRAPPERS.contains(&first) {
            break;
        }
        rest = tail;
    }
    rest
}

/// The module of an activation's name (`fc1.input`, `fc1.output_1`, `fc1.grad_input.0`, `fc1.input@2`). Other names are
/// unchanged.
fn without_module_end(name: &str) -> &str {
    let without_call = without_call(name);
    let without_index = match without_call.rsplit_once('.') {
        Some((rest, index)) if is_number(index) => rest,
        _ => without_call,
    };
    let Some((module, end)) = without_index.rsplit_once('.') else { return name };
    let end = match end.rsplit_once('_') {
        Some((end, index)) if is_number(index) => end,
        _ => end,
    };
    match (MODULE_ENDS.contains(&end), module.is_empty()) {
        (true, false) => module,
        (true, true) => without_call,
        (false, _) => name,
    }
}

fn bounded(layer: &str) -> &str {
    let mut start = layer.len().saturating_sub(MAX_LAYER_BYTES);
    while !layer.is_char_boundary(start) {
        start += 1;
    }
    &layer[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cases: &[(&str, &str, Group)]) {
        for &(name, layer, group) in cases {
            assert_eq!((layer_of(name), Group::of(name)), (layer, group), "{name}");
        }
    }

    #[test]
    fn gpt2_names_fall_into_layers_and_groups() {
        check(&[
            ("transformer.wte.weight", "transformer", Group::Embed),
            ("transformer.wpe.weight", "transformer", Group::Embed),
            ("transformer.h.4.ln_1.weight", "transformer.h.4", Group::Norm),
            ("transformer.h.4.attn.c_attn.weight", "transformer.h.4", Group::Attn),
            ("transformer.h.4.attn.c_proj.bias", "transformer.h.4", Group::Attn),
            ("transformer.h.11.mlp.c_fc.weight", "transformer.h.11", Group::Mlp),
            ("transformer.h.11.mlp.c_proj.weight", "transformer.h.11", Group::Mlp),
            ("transformer.ln_f.weight", "transformer", Group::Norm),
            ("lm_head.weight", "lm_head", Group::Head),
        ]);
    }

    #[test]
    fn llama_names_fall_into_layers_and_groups() {
        check(&[
            ("model.embed_tokens.weight", "model", Group::Embed),
            ("model.layers.7.self_attn.q_proj.weight", "model.layers.7", Group::Attn),
            ("model.layers.7.self_attn.q_norm.weight", "model.layers.7", Group::Norm),
            ("model.layers.7.mlp.gate_up_proj.weight", "model.layers.7", Group::Mlp),
            ("model.layers.7.mlp.down_proj.weight", "model.layers.7", Group::Mlp),
            ("model.layers.7.post_attention_layernorm.weight", "model.layers.7", Group::Norm),
            ("model.norm.weight", "model", Group::Norm),
            ("tok_embeddings.weight", "tok_embeddings", Group::Embed),
            ("layers.12.attention.wq.weight", "layers.12", Group::Attn),
            ("layers.12.feed_forward.w2.weight", "layers.12", Group::Mlp),
            ("output.weight", "output", Group::Head),
        ]);
    }

    #[test]
    fn megatron_names_lose_their_wrappers() {
        check(&[
            ("module.module.embedding.word_embeddings.weight", "embedding", Group::Embed),
            ("module.decoder.layers.3.self_attention.linear_qkv.weight", "decoder.layers.3", Group::Attn),
            ("module.decoder.layers.3.self_attention.linear_qkv.layer_norm_weight", "decoder.layers.3", Group::Norm),
            ("decoder.layers.3.mlp.linear_fc1.weight", "decoder.layers.3", Group::Mlp),
            ("decoder.layers.3.mlp.router.weight", "decoder.layers.3", Group::Moe),
            ("decoder.layers.3.mlp.experts.local_experts.5.linear_fc1.weight", "decoder.layers.3", Group::Moe),
            ("decoder.final_layernorm.weight", "decoder", Group::Norm),
            ("output_layer.weight", "output_layer", Group::Head),
            ("_orig_mod.blocks.3.attn.qkv.weight", "blocks.3", Group::Attn),
        ]);
    }

    #[test]
    fn mixtral_experts_and_their_gate_are_one_group() {
        check(&[
            ("model.layers.0.block_sparse_moe.gate.weight", "model.layers.0", Group::Moe),
            ("model.layers.0.block_sparse_moe.experts.3.w1.weight", "model.layers.0", Group::Moe),
            ("model.layers.0.self_attn.o_proj.weight", "model.layers.0", Group::Attn),
            ("model.layers.0.input_layernorm.weight", "model.layers.0", Group::Norm),
        ]);
    }

    #[test]
    fn other_families_are_recognised_by_their_own_words() {
        check(&[
            ("bert.encoder.layer.2.attention.output.dense.weight", "bert.encoder.layer.2", Group::Attn),
            ("bert.encoder.layer.2.output.dense.weight", "bert.encoder.layer.2", Group::Other),
            ("gpt_neox.embed_in.weight", "gpt_neox", Group::Embed),
            ("embed_out.weight", "embed_out", Group::Head),
            ("encoder.block.1.layer.0.SelfAttention.q.weight", "encoder.block.1", Group::Attn),
            ("0.weight", "0", Group::Other),
            ("conv1.weight", "conv1", Group::Other),
            ("", "", Group::Other),
        ]);
    }

    #[test]
    fn an_activations_index_is_not_a_layer_and_its_end_is_not_a_head() {
        check(&[
            ("fc1.input.0", "fc1", Group::Mlp),
            ("blocks.3.attn.output_1", "blocks.3", Group::Attn),
            ("blocks.3.grad_output.0", "blocks.3", Group::Other),
            ("conv.output", "conv", Group::Other),
            ("output.output", "output", Group::Head),
            (".input", "input", Group::Other),
            ("blocks.3.output_1@2", "blocks.3", Group::Other),
            (".input@3", "input", Group::Other),
        ]);
    }

    #[test]
    fn a_long_layer_keeps_its_number_and_whole_characters() {
        let name = format!("{}.layers.31.weight", "ü".repeat(80));
        let layer = layer_of(&name);
        assert!(layer.len() <= MAX_LAYER_BYTES && layer.ends_with(".layers.31"), "{layer}");
    }
}
