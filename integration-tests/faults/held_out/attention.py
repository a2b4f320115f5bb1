"""Faults of attention in bf16, and of layers that are computed again."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting
from faults.kernels import wrong_gradient
from faults.plants.noisy import both

from .planted import (
    B1,
    CKPT,
    EITHER,
    F1,
    LLAMA,
    SDPA,
    MovesBeforeBackward,
    coarse_weight,
    gate_and_up_swapped,
    half_branch,
    last_key_lost,
    late_scaled,
    loss_option,
    setting_of,
    silu_flat,
    tf,
    truth,
)

CASES: tuple[Case, ...] = (
    Case(
        "llama_rms_eps",
        LLAMA,
        truth(
            F1,
            "operator",
            "Tensor.__add__.0.forward",
            "Module.layers.0.norm1.RmsNorm.forward.0",
            "eps is 1e-2, not 1e-6",
        ),
        setting_of("layers.0.norm1", "eps", 1e-2),
    ),
    Case(
        "llama_rms_dim",
        LLAMA,
        truth(
            F1,
            "operator",
            "Tensor.mean.1.forward",
            "Module.layers.0.norm2.RmsNorm.forward.0",
            "the mean is over time, not features",
        ),
        setting_of("layers.0.norm2", "dim", 1),
    ),
    Case(
        "llama_not_causal",
        LLAMA,
        truth(F1, "operator", f"{SDPA}.1.forward", "Module.layers.1.Layer.forward.0", "the second layer looks ahead"),
        setting_of("layers.1", "options", {"is_causal": False}),
    ),
    Case(
        "llama_attention_scale",
        LLAMA,
        truth(
            F1, "operator", f"{SDPA}.0.forward", "Module.layers.0.Layer.forward.0", "scores are scaled by 1, not 1/2"
        ),
        setting_of("layers.0", "options", {"is_causal": True, "scale": 1.0}),
    ),
    Case(
        "llama_key_lost",
        LLAMA,
        truth(
            F1,
            "operator",
            f"{SDPA}.1.forward",
            "Module.layers.1.Layer.forward.0",
            "the attention forgets what stands first",
        ),
        kernel=tf(F, "scaled_dot_product_attention", 1, last_key_lost),
    ),
    Case(
        "llama_gate_and_up",
        LLAMA,
        truth(
            F1,
            "parameter input operator",
            "Functional.linear.7.forward",
            "",
            "gate and up are exchanged: calls of each other's modules in the second layer",
        ),
        gate_and_up_swapped,
    ),
    Case(
        "llama_rotary_base",
        LLAMA,
        truth(
            F1,
            EITHER,
            "Tensor.__mul__.2.forward",
            "Module.layers.0.Layer.forward.0",
            "the positions turn with base 1000, not 100; what makes them is not recorded",
        ),
        setting_of("", "base", 1000.0),
    ),
    Case(
        "llama_silu_backward",
        LLAMA,
        truth(B1, "operator", "Functional.silu.0.backward", "", "the derivative lacks a term, in bf16"),
        kernel=tf(F, "silu", 0, wrong_gradient(silu_flat)),
    ),
    Case(
        "llama_coarse_weight",
        LLAMA,
        truth(
            F1,
            "parameter",
            "Functional.linear.4.forward",
            "Module.layers.0.down.Linear.forward.0",
            "a weight is rounded to 64ths",
        ),
        coarse_weight,
    ),
    Case(
        "llama_branch_halved",
        LLAMA,
        truth(
            F1,
            "operator",
            "Tensor.__rmul__.0.forward Tensor.__mul__.4.forward",
            "Module.layers.0.Layer.forward.0",
            "the first layer's branches count half: a multiplication too many",
        ),
        half_branch,
    ),
    Case(
        "llama_ignored_label",
        LLAMA,
        truth(F1, "operator", "Functional.cross_entropy.0.forward", "", "one label is ignored: an argument"),
        loss_option("ignore_index", 3),
    ),
    Case(
        "llama_gradient_scaled",
        LLAMA,
        truth(
            "parameter_gradient",
            "operator",
            "Module.layers.1.gate.Linear.parameters_grad.0",
            "",
            "a hook scales one weight's gradient by 1.25",
        ),
        late_scaled,
    ),
    Case(
        "recomputed_random",
        Setting("ckpt", dropout=0.2),
        truth(
            B1,
            "operator",
            "Functional.dropout.1.backward",
            "",
            "the forward computed again, which is not recorded, has another dropout than the first one",
        ),
        setting_of("", "keep_random", False),
    ),
    Case(
        "recomputed_weight_moves",
        CKPT,
        truth(
            B1,
            "parameter",
            "Module.layers.0.down.Linear.forward.1",
            "Module.layers.0.down.Linear.forward.1",
            "a weight is another when the layer is computed again; of that, only modules are recorded",
        ),
        trainer=MovesBeforeBackward,
    ),
    Case(
        "recomputed_silu_backward",
        CKPT,
        truth(
            B1,
            "operator",
            "Functional.silu.1.backward",
            "",
            "the second layer's silu is differentiated wrongly, there and where it is computed again",
        ),
        kernel=both(tf(F, "silu", 1, wrong_gradient(silu_flat)), tf(F, "silu", 2, wrong_gradient(silu_flat))),
    ),
)
