"""Faults of the transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case
from faults.kernels import in_type, rounded_inputs, wrong_gradient
from faults.plants.backward import gelu_doubled
from faults.plants.forward import attribute
from faults.plants.forward_kernels import kernel
from faults.plants.optimizer import option

from .plants import (
    ADAM,
    BACK,
    FUSED,
    HIDDEN,
    OPT,
    PARAMETER,
    SDPA,
    Faults,
    OtherBatch,
    T,
    element,
    flipped,
    gradient_hook,
    laid_over,
    late,
    lost_update,
    merge_doubled,
    residual_lost,
)

FAULTS: Faults = (
    (
        Case(
            "sdpa_not_causal",
            ADAM,
            T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "attention sees what comes later"),
            attribute("blocks.0.attn", "is_causal", False),
        ),
        ("old", "threads2"),
    ),
    (
        Case(
            "sdpa_scale",
            FUSED,
            T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "scores are scaled by 1/8"),
            attribute("blocks.0.attn", "scale", 0.125),
        ),
        ("old",),
    ),
    (
        Case(
            "sdpa_in_bf16",
            FUSED,
            T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "attention is computed in bf16"),
            kernel=kernel(F, "scaled_dot_product_attention", 0, in_type(torch.bfloat16)),
        ),
        ("old",),
    ),
    (
        Case(
            "ln_eps_late",
            HIDDEN,
            T(
                "Functional.layer_norm.1.forward",
                "Module.blocks.0.ln2.LayerNorm.forward.0",
                "eps is 1e-2 from step 2 on",
                step=2,
            ),
            late("blocks.0.ln2", "eps", 1e-2, 2),
        ),
        ("old", "avx2"),
    ),
    (
        Case(
            "ln_eps_adam",
            ADAM,
            T(
                "Functional.layer_norm.1.forward",
                "Module.blocks.0.ln2.LayerNorm.forward.0",
                "eps is 1e-2 in step 1",
                step=1,
            ),
            late("blocks.0.ln2", "eps", 1e-2, 1),
        ),
        ("old",),
    ),
    (
        Case(
            "gelu_tanh_late",
            HIDDEN,
            T(
                "Functional.gelu.0.forward",
                "Module.blocks.0.act.GELU.forward.0",
                "the tanh approximation from step 3 on",
                step=3,
            ),
            late("blocks.0.act", "approximate", "tanh", 3),
        ),
        ("old",),
    ),
    (
        Case(
            "gelu_doubled",
            ADAM,
            T(
                "Functional.gelu.0.backward",
                "Module.blocks.0.act.GELU.backward.0",
                "twice the gradient of gelu",
                **BACK,
            ),
            kernel=kernel(F, "gelu", 0, wrong_gradient(gelu_doubled)),
        ),
        ("old", "threads2"),
    ),
    (
        Case(
            "gelu_doubled_late",
            HIDDEN,
            T(
                "Functional.gelu.0.backward",
                "Module.blocks.0.act.GELU.backward.0",
                "twice the gradient of gelu in step 3",
                step=3,
                **BACK,
            ),
            kernel=kernel(F, "gelu", 3, wrong_gradient(gelu_doubled)),
        ),
        ("old",),
    ),
    (
        Case(
            "linear_in_bf16_late",
            HIDDEN,
            T(
                "Functional.linear.2.forward",
                "Module.blocks.0.up.Linear.forward.0",
                "a linear of step 2 is computed in bf16",
                step=2,
            ),
            kernel=kernel(F, "linear", 12, in_type(torch.bfloat16)),
        ),
        ("old",),
    ),
    (
        Case(
            "linear_rounded_inputs",
            ADAM,
            T(
                "Functional.linear.3.forward",
                "Module.blocks.0.down.Linear.forward.0",
                "a linear of step 1 rounds its operands to eight bits",
                step=1,
            ),
            kernel=kernel(F, "linear", 8, rounded_inputs),
        ),
        ("old",),
    ),
    (
        Case(
            "qkv_weight_element",
            FUSED,
            T(
                "Functional.linear.0.forward",
                "Module.blocks.0.attn.qkv.Linear.forward.0",
                "one element of the projection is another",
                **PARAMETER,
            ),
            element("blocks.0.attn.qkv.weight", 0.4),
        ),
        ("old",),
    ),
    (
        Case(
            "qkv_bias_element",
            FUSED,
            T(
                "Functional.linear.0.forward",
                "Module.blocks.0.attn.qkv.Linear.forward.0",
                "one element of the projection's bias is another",
                **PARAMETER,
            ),
            element("blocks.0.attn.qkv.bias", 0.4),
        ),
        ("old",),
    ),
    (
        lost_update(
            "up_weight_stale",
            HIDDEN,
            "blocks.0.up.weight",
            "Functional.linear.2.forward",
            "Module.blocks.0.up.Linear.forward.0",
            2,
        ),
        ("old",),
    ),
    (
        lost_update(
            "down_bias_stale",
            HIDDEN,
            "blocks.0.down.bias",
            "Functional.linear.3.forward",
            "Module.blocks.0.down.Linear.forward.0",
            1,
        ),
        ("old",),
    ),
    (
        lost_update(
            "tokens_stale_adam",
            ADAM,
            "tokens.weight",
            "Functional.embedding.0.forward",
            "Module.tokens.Embedding.forward.0",
            1,
        ),
        ("old",),
    ),
    (
        Case(
            "residual_lost",
            ADAM,
            T(
                ("Tensor.__add__.2.forward", "Functional.layer_norm.2.forward"),
                ("Module.blocks.0.Block.forward.0", "Module.ln.LayerNorm.forward.0"),
                "the second residual sum is left out",
            ),
            residual_lost,
        ),
        ("old",),
    ),
    (
        Case(
            "flip_in_branch",
            FUSED,
            T(
                ("Tensor.flip.0.forward", "Tensor.__add__.2.forward"),
                "Module.blocks.0.Block.forward.0",
                "a flip too many: the sum gets the samples in another order",
            ),
            flipped,
        ),
        ("old",),
    ),
    (
        Case(
            "merge_gradient_doubled",
            FUSED,
            T("Tensor.__add__.2.backward", (), "the gradient is doubled between two operators", **BACK),
            merge_doubled,
        ),
        ("old",),
    ),
    (
        Case(
            "other_batch",
            HIDDEN,
            T(
                "Functional.embedding.0.forward",
                "Module.tokens.Embedding.forward.0",
                "step 1's data are another's",
                step=1,
                phase="input",
                verdict="input",
                also=("operator",),
            ),
            trainer=OtherBatch,
        ),
        ("old",),
    ),
    (
        Case(
            "fused_learning_rate",
            ADAM,
            T("Tensor.mul_.0.forward", (), "lr is 0.02, not 0.01", **OPT),
            option("lr", 0.02),
        ),
        ("old",),
    ),
    (
        Case(
            "fused_beta1",
            ADAM,
            T("Tensor.lerp_.0.forward", (), "beta1 is 0.8, not 0.9", **OPT),
            option("betas", (0.8, 0.999)),
        ),
        ("old",),
    ),
    (
        Case("fused_eps", ADAM, T("Tensor.add_.0.forward", (), "eps is 1e-5, not 1e-8", **OPT), option("eps", 1e-5)),
        ("old",),
    ),
    (
        Case(
            "gradient_hook",
            ADAM,
            T(
                "Module.blocks.0.up.Linear.parameters_grad.0",
                (),
                "the gradient of a weight is halved",
                phase="parameter_gradient",
            ),
            gradient_hook("blocks.0.up.weight", 0.5),
        ),
        ("old",),
    ),
)

CASES: tuple[Case, ...] = laid_over(FAULTS)
