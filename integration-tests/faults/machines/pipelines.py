"""Pipelines of two and of four ranks, and data-parallel pairs, with faults on each rank, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting
from faults.kernels import aten, in_type, wrong_gradient
from faults.plants.backward import gelu_doubled
from faults.plants.ranks import kernel, only

from .plants import T, over
from .trainer import Machines


def activation(function: Any) -> Any:
    def plant(run: Any) -> None:
        run.net.activation = function

    return plant


def without_activation(run: Any) -> None:
    run.net.activation = lambda hidden: hidden


def twice(run: Any) -> None:
    run.net.activation = lambda hidden: torch.tanh(F.gelu(hidden))


def weight_element(run: Any) -> None:
    run.net.fc.weight.data[3, 5] += 0.4


class ReturnsDouble(Machines):
    """Rank 1 sends twice its gradient back."""

    def returned(self, hidden: Any) -> Any:
        return aten.mul.Scalar(hidden.grad, 2.0) if self.rank == 1 else hidden.grad


def _stage(stage: int, ranks: int) -> list[Case]:
    setting = Setting(f"pipe{ranks}", ranks=ranks)
    name = f"pipe{ranks}_stage{stage}"
    forward: dict[str, Any] = {"rank": stage}
    backward: dict[str, Any] = {"rank": stage, "phase": "backward"}
    gelu = "Functional.gelu.0.forward"
    follows = ("Distributed.send.0.forward",) if stage < ranks - 1 else ("Functional.linear.1.forward",)
    return [
        Case(
            f"{name}_silu",
            setting,
            T((gelu, "Functional.silu.0.forward", *follows), (), "another activation: silu", **forward),
            only(stage, activation(F.silu)),
        ),
        Case(
            f"{name}_without",
            setting,
            T((gelu, *follows), (), "no activation", **forward),
            only(stage, without_activation),
        ),
        Case(
            f"{name}_tanh_too_many",
            setting,
            T(("Torch.tanh.0.forward", *follows), (), "a tanh too many", **forward),
            only(stage, twice),
        ),
        Case(
            f"{name}_bf16",
            setting,
            T("Functional.linear.0.forward", "Module.fc.Linear.forward.0", "its linear is in bf16", **forward),
            kernel=kernel(stage, F, "linear", 0, in_type(torch.bfloat16)),
        ),
        Case(
            f"{name}_weight",
            setting,
            T(
                "Functional.linear.0.forward",
                "Module.fc.Linear.forward.0",
                "one element of its weight is another",
                verdict="parameter",
                **forward,
            ),
            only(stage, weight_element),
        ),
        Case(
            f"{name}_backward",
            setting,
            T("Functional.gelu.0.backward", (), "its gelu's gradient is doubled", **backward),
            kernel=kernel(stage, F, "gelu", 0, wrong_gradient(gelu_doubled)),
        ),
    ]


def _pipelines() -> list[Case]:
    two = [case for stage in range(2) for case in _stage(stage, 2)]
    four = [case for stage in range(4) for case in _stage(stage, 4)]
    laid_over = [over(case, "old") for case in (*two, *four) if case.name.endswith(("_silu", "_backward", "_bf16"))]
    return [*two, *four, *laid_over]


AVERAGED = ("Tensor.lerp_.0.forward",)
"""Buckets are averaged where nobody records: the optimizer is the first to get what differs."""

DDP = Setting("ddp", ranks=2, optimizer="adamw", steps=2)
RANKS = (
    Case(
        "ddp_rank1_weight",
        DDP,
        T(
            "Functional.linear.1.forward",
            "Module.module.fc2.Linear.forward.0",
            "one element of rank 1's weight is another",
            verdict="parameter",
            rank=1,
            unseen=AVERAGED,
        ),
        only(1, lambda run: run.net.module.fc2.weight.data.view(-1)[7].add_(0.3)),
    ),
    Case(
        "ddp_rank1_eps",
        DDP,
        T(
            "Functional.layer_norm.0.forward",
            "Module.module.norm2.LayerNorm.forward.0",
            "rank 1's eps is 1e-2",
            rank=1,
            unseen=AVERAGED,
        ),
        only(1, lambda run: setattr(run.net.module.norm2, "eps", 1e-2)),
    ),
    Case(
        "ddp_both_eps",
        DDP,
        T(
            "Functional.layer_norm.0.forward",
            "Module.module.norm2.LayerNorm.forward.0",
            "eps is 1e-2 on both ranks",
            rank=None,
        ),
        lambda run: setattr(run.net.module.norm2, "eps", 1e-2),
    ),
)

CASES: tuple[Case, ...] = (*_pipelines(), *RANKS, *(over(case, "old") for case in RANKS))
