"""Faults of the size of what half precision or another machine may do: little is as large as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting
from faults.kernels import Altered, aten
from faults.plants.forward import attribute
from faults.plants.forward_kernels import kernel
from faults.plants.optimizer import option

from .plants import (
    ADAM,
    DEEP,
    HIDDEN,
    OPT,
    PARAMETER,
    PLAIN,
    SDPA,
    Faults,
    T,
    gradient_hook,
    laid_over,
    lost_update,
    twice,
)
from .variants import attention_scaled_up, rewritten, split

BRAIN = Setting("brain", optimizer="adamw", steps=2)
FUSED_BRAIN = Setting("fused_brain")
GROUPED = Setting("deep", optimizer="grouped", steps=2)
GATED = Setting("gated", optimizer="unseen_adam", steps=3)


def scaled(factor: float) -> Altered:
    """The operator, its result times a number."""

    def altered(original: Any, *arguments: Any, **named: Any) -> Any:
        return aten.mul.Scalar(original(*arguments, **named), factor)

    return altered


def all_decay(run: Any) -> None:
    """The group that does not decay is forgotten."""
    run.optimizer.param_groups[1]["weight_decay"] = 0.01


def measured_besides(run: Any) -> None:
    """One element of a weight is a little off, and later on something is computed that nothing uses."""
    run.net.fc2.weight.data.view(-1)[7] += 2e-4
    head = run.net.head.forward

    def forward(hidden: Any) -> Any:
        torch.log_softmax(hidden, -1)
        return head(hidden)

    run.net.head.forward = forward


class SplitAndFaster(rewritten(split)):  # type: ignore[misc]
    """Three projections, and twice the learning rate."""

    def optimize(self) -> Any:
        optimizer = super().optimize()
        optimizer.param_groups[0]["lr"] *= 2
        return optimizer


FAULTS: Faults = (
    (
        Case(
            "decay_on_vectors",
            GROUPED,
            T(("Tensor.mul_.6.forward", "Tensor.addcdiv_.3.forward"), (), "vectors decay, too", **OPT),
            all_decay,
        ),
        ("old",),
    ),
    (
        Case(
            "weight_off_and_extra_call",
            replace(PLAIN, optimizer="none", steps=1),
            T("Functional.linear.1.forward", "Module.fc2.Linear.forward.0", "a weight is a little off", **PARAMETER),
            measured_besides,
        ),
        (),
    ),
    (
        Case(
            "brain_attention_scale",
            FUSED_BRAIN,
            T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "the scale is 0.248, not 0.25"),
            attribute("blocks.0.attn", "scale", 0.248),
        ),
        ("old",),
    ),
    (
        Case(
            "brain_attention_scaled_up",
            FUSED_BRAIN,
            T(
                (
                    f"{SDPA}.0.forward",
                    "Torch.matmul.0.forward",
                    "Tensor.__mul__.1.forward",
                    "Functional.linear.1.forward",
                ),
                ("Module.blocks.0.attn.WrittenOut.forward.0", "Module.blocks.0.attn.out.Linear.forward.0"),
                "attention is written out, its result 2 % too large",
            ),
            trainer=rewritten(attention_scaled_up),
        ),
        (),
    ),
    (
        Case(
            "brain_head_scaled",
            BRAIN,
            T(
                "Functional.linear.2.forward",
                "Module.head.Linear.forward.0",
                "the head's result is 1.2 times it",
            ),
            kernel=kernel(F, "linear", 2, scaled(1.2)),
        ),
        ("old",),
    ),
    (
        Case(
            "brain_norm_gradient",
            BRAIN,
            T(
                "Module.norm2.LayerNorm.parameters_grad.0",
                (),
                "the gradient of a norm's weight is halved",
                phase="parameter_gradient",
            ),
            gradient_hook("norm2.weight", 0.5),
        ),
        ("old",),
    ),
    (
        Case(
            "adam_second_moment",
            replace(BRAIN, optimizer="adam"),
            T(("Tensor.mul_.0.forward", "Tensor.addcmul_.0.forward"), (), "beta2 is 0.995, not 0.999", **OPT),
            option("betas", (0.9, 0.995)),
        ),
        ("old",),
    ),
    (
        Case(
            "adam_learning_rate_a_step_late",
            DEEP,
            T("Tensor.addcdiv_.0.forward", (), "lr is 2e-4 of itself too large", **OPT),
            option("lr", 0.003 * 1.0002),
        ),
        ("old",),
    ),
    (
        Case(
            "split_learning_rate",
            ADAM,
            T("Tensor.mul_.0.forward", (), "projections are split, and lr is 0.02", **OPT),
            trainer=SplitAndFaster,
            # Other code differs before it, as it may.
            is_confirmed_apart=True,
        ),
        (),
    ),
    (
        lost_update(
            "qkv_bias_stale",
            HIDDEN,
            "blocks.0.attn.qkv.bias",
            "Functional.linear.0.forward",
            "Module.blocks.0.attn.qkv.Linear.forward.0",
            1,
        ),
        ("old",),
    ),
    (
        lost_update(
            "attention_out_bias_stale",
            HIDDEN,
            "blocks.0.attn.out.bias",
            "Functional.linear.1.forward",
            "Module.blocks.0.attn.out.Linear.forward.0",
            2,
        ),
        ("old", "threads2"),
    ),
    (
        Case(
            "attention_out_bias_twice",
            HIDDEN,
            T(
                "Functional.linear.1.forward",
                "Module.blocks.0.attn.out.Linear.forward.0",
                "a bias is updated twice, unseen",
                step=2,
                **PARAMETER,
            ),
            trainer=twice("blocks.0.attn.out.bias", 1),
        ),
        ("old",),
    ),
    (
        lost_update(
            "gate_stale",
            GATED,
            "gate.weight",
            "Tensor.__mul__.0.forward",
            "Module.gate.Gate.forward.0",
            1,
        ),
        ("old",),
    ),
)

CASES: tuple[Case, ...] = laid_over(FAULTS)
