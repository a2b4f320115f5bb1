"""Faults on top of rounding: target sums in another order as well, so the first bit that differs is not the fault's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Kernel, Setting, Truth
from faults.kernels import in_type, wrong_gradient
from faults.plants.backward import relu_leaks
from faults.plants.clean import in_double, split_sum, threads
from faults.plants.forward import attribute
from faults.plants.forward_kernels import kernel
from faults.plants.optimizer import option
from faults.plants.ranks import only
from faults.trainer import Trainer

WIDE = Setting("wideconv", optimizer="sgd", steps=2)


def both(first: Kernel, second: Kernel) -> Kernel:
    """Two kernels in one run."""

    def plant(rank: int) -> None:
        first(rank)
        second(rank)

    return plant


def head_element(run: Trainer) -> None:
    run.net.head.weight.data[2, 3] += 0.3


def _truth(operator: str, module: tuple[str, ...], what: str, **other: Any) -> Truth:
    known: dict[str, Any] = {"phase": "forward", "verdict": "operator", "operators": (operator,), "modules": module}
    return Truth(**known | {"what": what, "noise": 1e-5} | other)


CASES = (
    Case(
        "noisy_threads_silu_step_1",
        WIDE,
        _truth(
            "Functional.silu.0.forward",
            ("Module.act.SiLU.forward.0",),
            "silu is computed in bf16 in step 1; sums are made by 2 threads instead of 1 from step 0 on",
            step=1,
        ),
        kernel=both(threads(2), kernel(F, "silu", 1, in_type(torch.bfloat16))),
    ),
    Case(
        "noisy_threads_eps",
        WIDE,
        _truth(
            "Functional.group_norm.0.forward",
            ("Module.norm2.GroupNorm.forward.0",),
            "eps is 1e-2, not 1e-5; sums are made by 2 threads instead of 1",
        ),
        attribute("norm2", "eps", 1e-2),
        kernel=threads(2),
    ),
    Case(
        "noisy_norm_gelu_in_bf16",
        Setting("gpt"),
        _truth(
            "Functional.gelu.1.forward",
            ("Module.blocks.1.act.GELU.forward.0",),
            "one gelu is computed in bf16; the first LayerNorm is rounded otherwise, from double",
        ),
        kernel=both(kernel(F, "layer_norm", 0, in_double), kernel(F, "gelu", 1, in_type(torch.bfloat16))),
    ),
    Case(
        "noisy_split_sum_backward",
        Setting("mlp"),
        _truth(
            "Functional.leaky_relu.0.backward",
            (),
            "the leaky relu lets every gradient through; fc2 sums its features in two halves",
            phase="backward",
        ),
        kernel=both(kernel(F, "linear", 1, split_sum), kernel(F, "leaky_relu", 0, wrong_gradient(relu_leaks))),
    ),
    Case(
        "noisy_split_sum_beta1",
        Setting("mlp", optimizer="adamw"),
        _truth(
            "Tensor.lerp_.0.forward",
            (),
            "beta1 is 0.8, not 0.9: the weight of lerp_; fc2 sums its features in two halves",
            phase="optimizer",
        ),
        option("betas", (0.8, 0.999)),
        kernel=kernel(F, "linear", 1, split_sum),
    ),
    Case(
        "noisy_rank1_weight_element",
        Setting("dp", ranks=2),
        _truth(
            "Functional.linear.2.forward",
            ("Module.head.Linear.forward.0",),
            "one element of rank 1's head.weight is another; on both ranks fc2 sums its features in two halves",
            verdict="parameter",
            rank=1,
        ),
        only(1, head_element),
        kernel=kernel(F, "linear", 1, split_sum),
    ),
)
