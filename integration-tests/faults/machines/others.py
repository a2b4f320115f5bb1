"""Faults of code that was written otherwise, and of the nets without attention."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting
from faults.kernels import in_type, rounded_result, wrong_gradient
from faults.plants.backward import relu_leaks, tanh_of_wrong_side
from faults.plants.forward import attribute
from faults.plants.forward_kernels import kernel
from faults.plants.optimizer import option

from .plants import (
    ADAM,
    BACK,
    DEEP,
    FUSED,
    NORMS,
    OPT,
    PARAMETER,
    PLAIN,
    SDPA,
    Faults,
    T,
    Unscaled,
    attention_unscaled,
    element,
    laid_over,
    late,
    lost_update,
    merge_doubled,
    merged_wrongly,
    norm_with_other_eps,
    residual_lost,
)
from .variants import rewritten

FAULTS: Faults = (
    (
        Case(
            "norm_other_eps",
            FUSED,
            T(
                ("Functional.layer_norm.1.forward", "Tensor.mean.0.forward", "Tensor.__sub__.0.forward"),
                ("Module.blocks.0.ln2.Handmade.forward.0", "Module.blocks.0.ln2.LayerNorm.forward.0"),
                "a LayerNorm is written out with another eps",
            ),
            trainer=rewritten(norm_with_other_eps),
        ),
        ("old",),
    ),
    (
        Case(
            "attention_unscaled",
            FUSED,
            T(
                (f"{SDPA}.0.forward", "Tensor.__mul__.0.forward"),
                "Module.blocks.0.attn.WrittenOut.forward.0",
                "attention is written out with another scale",
            ),
            trainer=rewritten(attention_unscaled),
        ),
        ("old",),
    ),
    (
        Case(
            "lora_scale_lost",
            Setting("lora", optimizer="sgd", steps=2),
            T(
                ("Functional.linear.1.forward",),
                ("Module.adapted.base.Linear.forward.0", "Module.adapted.Linear.forward.0"),
                "the adapter is merged without its scale",
                also=("parameter",),
            ),
            trainer=rewritten(merged_wrongly),
        ),
        ("old",),
    ),
    (
        Case(
            "lora_scale",
            Setting("lora"),
            T("Tensor.__mul__.0.forward", "Module.adapted.Adapted.forward.0", "the adapter's scale is 1, not 2"),
            attribute("adapted", "scale", 1.0),
        ),
        ("old",),
    ),
    (
        Case(
            "batch_norm_eps",
            NORMS,
            T("Functional.batch_norm.0.forward", "Module.norm1.BatchNorm2d.forward.0", "eps is 1e-2"),
            attribute("norm1", "eps", 1e-2),
        ),
        ("old", "no_onednn"),
    ),
    (
        Case(
            "group_norm_late",
            NORMS,
            T(
                "Functional.group_norm.0.forward",
                "Module.norm2.GroupNorm.forward.0",
                "2 groups instead of 4 in step 1",
                step=1,
            ),
            late("norm2", "num_groups", 2, 1),
        ),
        ("no_onednn",),
    ),
    (
        Case(
            "conv_rounded",
            NORMS,
            T(
                "Functional.conv2d.1.forward",
                "Module.conv2.Conv2d.forward.0",
                "a convolution of step 1 is computed in bf16",
                step=1,
            ),
            kernel=kernel(F, "conv2d", 4, in_type(torch.bfloat16)),
        ),
        ("no_onednn", "old"),
    ),
    (
        Case(
            "leaky_slope",
            NORMS,
            T("Functional.leaky_relu.0.forward", (), "slope 0.2 instead of 0.1"),
            lambda run: setattr(run.net, "slope", 0.2),
        ),
        ("no_onednn",),
    ),
    (
        Case(
            "leaky_backward",
            NORMS,
            T("Functional.leaky_relu.0.backward", (), "the gradient passes a leaky relu as it is", **BACK),
            kernel=kernel(F, "leaky_relu", 0, wrong_gradient(relu_leaks)),
        ),
        ("no_onednn",),
    ),
    (
        lost_update(
            "conv_stale",
            replace(NORMS, optimizer="unseen_adamw", steps=5),
            "conv2.weight",
            "Functional.conv2d.1.forward",
            "Module.conv2.Conv2d.forward.0",
            1,
        ),
        ("no_onednn",),
    ),
    (
        Case(
            "deep_tanh_backward",
            DEEP,
            T("Torch.tanh.0.backward", (), "tanh is differentiated at its input in step 1", step=1, **BACK),
            kernel=kernel(torch, "tanh", 1, wrong_gradient(tanh_of_wrong_side)),
        ),
        ("old",),
    ),
    (
        Case(
            "deep_norm_in_fp16",
            DEEP,
            T(
                "Functional.layer_norm.0.forward",
                "Module.norm2.LayerNorm.forward.0",
                "a norm of step 1 is stored in fp16",
                step=1,
            ),
            kernel=kernel(F, "layer_norm", 1, rounded_result(torch.float16)),
        ),
        ("old",),
    ),
    (
        Case(
            "deep_weight_decay",
            replace(DEEP, optimizer="adamw"),
            T("Tensor.mul_.0.forward", (), "weight_decay is 0.2, not 0.1", **OPT),
            option("weight_decay", 0.2),
        ),
        ("old",),
    ),
    (
        Case(
            "deep_residual_lost",
            DEEP,
            T(
                ("Tensor.__add__.0.forward", "Functional.linear.2.forward"),
                "Module.head.Linear.forward.0",
                "the residual sum is left out",
            ),
            residual_lost,
        ),
        ("old",),
    ),
    (
        lost_update(
            "plain_head_stale",
            PLAIN,
            "head.weight",
            "Functional.linear.2.forward",
            "Module.head.Linear.forward.0",
            3,
        ),
        ("old",),
    ),
    (
        Case(
            "plain_tanh_in_bf16",
            PLAIN,
            T("Torch.tanh.0.forward", (), "a tanh of step 4 is computed in bf16", step=4),
            kernel=kernel(torch, "tanh", 4, in_type(torch.bfloat16)),
        ),
        ("old",),
    ),
    (
        Case(
            "plain_linear_element",
            PLAIN,
            T(
                "Functional.linear.1.forward",
                "Module.fc2.Linear.forward.0",
                "one element of a weight is another",
                **PARAMETER,
            ),
            element("fc2.weight", 0.3),
        ),
        ("mkl_avx2",),
    ),
    (
        Case(
            "half_norm_eps",
            Setting("half", optimizer="adamw", steps=2),
            T("Functional.layer_norm.0.forward", "Module.norm2.LayerNorm.forward.0", "eps is 1e-1 in step 1", step=1),
            late("norm2", "eps", 1e-1, 1),
        ),
        ("old",),
    ),
    (
        Case(
            "half_merge_doubled",
            Setting("half", optimizer="adamw", steps=2),
            T("Tensor.__add__.0.backward", (), "the gradient is doubled between two operators", **BACK),
            merge_doubled,
        ),
        ("old",),
    ),
    (
        Case(
            "brain_residual_lost",
            Setting("brain", optimizer="adamw", steps=2),
            T(
                ("Tensor.__add__.0.forward", "Functional.linear.2.forward"),
                "Module.head.Linear.forward.0",
                "the residual sum is left out",
            ),
            residual_lost,
        ),
        ("old",),
    ),
    (
        Case(
            "sgd_learning_rate",
            replace(ADAM, optimizer="sgd"),
            T("Tensor.add_.0.forward", (), "lr is 0.2", **OPT),
            option("lr", 0.2),
        ),
        ("old",),
    ),
    (
        Case(
            "clip_scaled",
            replace(ADAM, clip=0.5),
            T("Tensor.lerp_.0.forward", (), "gradients are halved unseen before the update", **OPT),
            trainer=Unscaled,
        ),
        ("old",),
    ),
)

CASES: tuple[Case, ...] = laid_over(FAULTS)
