"""Faults inside one operator: its arguments agree, its result does not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Kernel, Setting, Truth
from faults.kernels import Altered, alter, in_type, rounded_inputs, rounded_result

GPT = Setting("gpt")


def kernel(owner: Any, name: str, call: int, altered: Altered) -> Kernel:
    """The same on every rank."""

    def plant(rank: int) -> None:
        del rank
        alter(owner, name, call, altered)

    return plant


def nan_in_one_head(original: Any, *arguments: Any, **named: Any) -> Any:
    poison = torch.zeros(1, 2, 1, 1)
    poison[0, 1] = float("nan")
    return torch.ops.aten.add.Tensor(original(*arguments, **named), poison)


def one_sample_lost(original: Any, *arguments: Any, **named: Any) -> Any:
    keep = torch.ones(4, 1, 1, 1)
    keep[2] = 0.0
    return torch.ops.aten.mul.Tensor(original(*arguments, **named), keep)


def _truth(operator: str, module: str | tuple[str, ...], what: str, step: int = 0) -> Truth:
    modules = (module,) if isinstance(module, str) else module
    return Truth("forward", "operator", (operator,), modules, what, step=step)


CASES = (
    Case(
        "gelu_in_bf16",
        GPT,
        _truth("Functional.gelu.1.forward", "Module.blocks.1.act.GELU.forward.0", "one gelu is computed in bf16"),
        kernel=kernel(F, "gelu", 1, in_type(torch.bfloat16)),
    ),
    Case(
        "gelu_in_bf16_l1",
        Setting("gpt", level="L1"),
        _truth("Functional.gelu.1.forward", (), "one gelu is computed in bf16; level L1 has no modules"),
        kernel=kernel(F, "gelu", 1, in_type(torch.bfloat16)),
    ),
    Case(
        "linear_in_bf16_l0",
        Setting("conv", level="L0"),
        _truth("Module.fc.Linear.forward.0", "Module.fc.Linear.forward.0", "fc is computed in bf16; level L0"),
        kernel=kernel(F, "linear", 0, in_type(torch.bfloat16)),
    ),
    Case(
        "layer_norm_in_fp16_tensor",
        Setting("mlp", task="tensor"),
        _truth("Functional.layer_norm.0.forward", "Module.norm.LayerNorm.forward.0", "the norm is computed in fp16"),
        kernel=kernel(F, "layer_norm", 0, rounded_result(torch.float16)),
    ),
    Case(
        "matmul_operands_rounded",
        GPT,
        _truth(
            "Functional.linear.4.forward",
            "Module.blocks.0.up.Linear.forward.0",
            "a linear rounds its operands to eight bits, as tensor cores do",
        ),
        kernel=kernel(F, "linear", 4, rounded_inputs),
    ),
    Case(
        "nan_in_one_head",
        GPT,
        _truth("Torch.softmax.1.forward", "Module.blocks.1.attn.Attention.forward.0", "head 1 of one softmax is NaN"),
        kernel=kernel(torch, "softmax", 1, nan_in_one_head),
    ),
    Case(
        "overflow_fp16",
        Setting("conv", gain=1e5),
        _truth(
            "Functional.conv2d.0.forward", "Module.stem.Conv2d.forward.0", "the result is stored in fp16 and overflows"
        ),
        kernel=kernel(F, "conv2d", 0, rounded_result(torch.float16)),
    ),
    Case(
        "overflow_fp16_healed",
        Setting("mlp", gain=2e5),
        _truth(
            "Functional.linear.0.forward",
            "Module.fc1.Linear.forward.0",
            "the result overflows in fp16; tanh makes 1 of infinity as of what it should be",
        ),
        kernel=kernel(F, "linear", 0, rounded_result(torch.float16)),
    ),
    Case(
        "sample_lost",
        Setting("conv", steps=2, optimizer="sgd"),
        _truth(
            "Functional.adaptive_avg_pool2d.0.forward",
            "Module.gap.AdaptiveAvgPool2d.forward.0",
            "one sample's features are zero, in step 1 only",
            step=1,
        ),
        kernel=kernel(F, "adaptive_avg_pool2d", 1, one_sample_lost),
    ),
)
