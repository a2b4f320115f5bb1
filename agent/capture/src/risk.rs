//! The risk level of a function by its name: msprobe's three classes.

use trainmon_core::config::RiskLevel;

/// Prefixes whose functions all belong to the class `CORE`.
const CORE_PREFIXES: [&str; 4] = ["MindSpeed", "NPU", "Distributed", "MintDistributed"];

/// Functions that compute with many elements. (In msprobe's list, a missing comma drops `linear` and `chain_matmul`.)
const CORE: &[&str] = &[
    "_fused_adamw_",
    "_fused_adam_",
    "matmul",
    "__matmul__",
    "bmm",
    "addmm",
    "addmm_",
    "addbmm",
    "addbmm_",
    "baddbmm",
    "baddbmm_",
    "mm",
    "mv",
    "addmv",
    "addmv_",
    "addr",
    "addr_",
    "chain_matmul",
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_tbc",
    "convolution",
    "_convolution",
    "bilinear",
    "multi_dot",
    "vecdot",
    "batch_norm",
    "instance_norm",
    "layer_norm",
    "group_norm",
    "local_response_norm",
    "_batch_norm_impl_index",
    "embedding",
    "embedding_bag",
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
];

/// Functions that move, create or cast elements.
const LOW: &[&str] = &[
    "squeeze",
    "unsqueeze",
    "reshape",
    "reshape_as",
    "view",
    "view_as",
    "flatten",
    "unflatten",
    "expand",
    "expand_as",
    "repeat",
    "repeat_interleave",
    "tile",
    "transpose",
    "permute",
    "moveaxis",
    "movedim",
    "swapaxes",
    "swapdims",
    "chunk",
    "unsafe_chunk",
    "tensor_split",
    "hsplit",
    "vsplit",
    "dsplit",
    "unbind",
    "stack",
    "cat",
    "concat",
    "concatenate",
    "hstack",
    "vstack",
    "dstack",
    "column_stack",
    "row_stack",
    "align_as",
    "align_to",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "ravel",
    "clamp",
    "unfold",
    "type_as",
    "to",
    "float",
    "double",
    "int",
    "long",
    "half",
    "bfloat16",
    "byte",
    "char",
    "bool",
    "cfloat",
    "numpy",
    "empty",
    "empty_like",
    "zeros",
    "zeros_like",
    "ones",
    "ones_like",
    "full",
    "full_like",
    "arange",
    "linspace",
    "logspace",
    "eye",
    "identity",
    "diag",
    "diagflat",
    "diag_embed",
    "triu",
    "tril",
    "triu_indices",
    "tril_indices",
    "clone",
    "__bool__",
    "stride",
];

/// Beginnings of further names of the same class, such as `split_with_sizes` and `batch_norm_stats`.
const LOW_BEGINNINGS: [&str; 2] = ["split", "unsafe_split"];
const CORE_BEGINNINGS: [&str; 1] = ["batch_norm_"];

/// Whether a function is captured at this level.
pub(crate) fn passes(level: RiskLevel, prefix: &str, api: &str) -> bool {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| api.starts_with(beginning));
    match level {
        RiskLevel::All => true,
        RiskLevel::Focus => !(LOW.contains(&api) || begins(&LOW_BEGINNINGS)),
        RiskLevel::Core => CORE_PREFIXES.contains(&prefix) || CORE.contains(&api) || begins(&CORE_BEGINNINGS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_by_the_name_after_the_prefix() {
        let classes =
            |prefix, api| [RiskLevel::Core, RiskLevel::Focus, RiskLevel::All].map(|level| passes(level, prefix, api));
        assert_eq!(classes("Functional", "linear"), [true, true, true], "msprobe's missing comma is not ours");
        assert_eq!(classes("Functional", "relu"), [false, true, true]);
        assert_eq!(classes("Tensor", "reshape"), [false, false, true]);
        assert_eq!(classes("Torch", "split_with_sizes"), [false, false, true]);
        assert_eq!(classes("Torch", "batch_norm_stats"), [true, true, true]);
        assert_eq!(classes("Distributed", "all_reduce"), [true, true, true]);
        assert_eq!(classes("Tensor", "t"), [false, true, true]);
    }
}
