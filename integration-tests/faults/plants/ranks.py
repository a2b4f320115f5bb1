"""Faults of one rank of two, in what it computes or is fed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Kernel, Plant, Setting, Truth
from faults.kernels import Altered, alter, aten, in_type, wrong_gradient
from faults.trainer import Trainer

from .backward import gelu_doubled, tanh_of_wrong_side
from .forward import reseeded
from .forward_kernels import nan_in_one_head

DP = Setting("dp", ranks=2)
TP = Setting("tp", ranks=2)
STAGES = Setting("stages", ranks=2)


def only(rank: int, plant: Plant) -> Plant:
    """Plants on one rank."""

    def planted(run: Trainer) -> None:
        if run.rank == rank:
            plant(run)

    return planted


def kernel(rank: int, owner: Any, name: str, call: int, altered: Altered) -> Kernel:
    """Alters an operator of one rank."""

    def planted(own: int) -> None:
        if own == rank:
            alter(owner, name, call, altered)

    return planted


class OthersData(Trainer):
    """Rank 1 reads rank 0's shard."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        mine, self.rank = self.rank, 0
        try:
            return super().batch(step, micro)
        finally:
            self.rank = mine


class StaleOnRank1(Trainer):
    """Rank 1's update of one parameter is lost."""

    def update(self) -> None:
        weight = self.net.fc2.weight.data
        before = aten.clone(weight)
        super().update()
        if self.step == 0 and self.rank == 1:
            aten.copy_(weight, before)


def element(run: Trainer) -> None:
    run.net.fc2.weight.data[5, 2] -= 0.4


def first_stage_element(run: Trainer) -> None:
    run.net.fc.weight.data[5, 2] -= 0.4


def others_shard(run: Trainer) -> None:
    torch.manual_seed(20)
    torch.nn.Linear(12, 16)
    run.net.row.weight.data.copy_(torch.nn.Linear(16, 16, bias=False).weight.data[:, :8])


def eps(run: Trainer) -> None:
    run.net.norm.eps = 1e-2


def _truth(operators: tuple[str, ...], modules: tuple[str, ...], what: str, rank: int = 1, **other: Any) -> Truth:
    known = {"phase": "forward", "verdict": "operator", "operators": operators, "modules": modules, "what": what}
    return Truth(**known | {"rank": rank} | other)


CASES = (
    Case(
        "rank1_dropout_seed",
        Setting("dp", ranks=2, dropout=0.25),
        _truth(
            ("Functional.dropout.0.forward",),
            ("Module.drop.Dropout.forward.0",),
            "rank 1's generator is seeded otherwise",
        ),
        only(1, reseeded),
    ),
    Case(
        "rank1_input",
        DP,
        _truth(
            ("Functional.linear.0.forward",),
            ("Module.fc1.Linear.forward.0",),
            "rank 1 reads rank 0's batch",
            phase="input",
            verdict="input",
        ),
        trainer=OthersData,
    ),
    Case(
        "rank1_weight_element",
        DP,
        _truth(
            ("Functional.linear.1.forward",),
            ("Module.fc2.Linear.forward.0",),
            "one element of rank 1's fc2.weight is another",
            verdict="parameter",
        ),
        only(1, element),
    ),
    Case(
        "rank1_parameter_stale",
        Setting("dp", ranks=2, steps=2, optimizer="sgd"),
        _truth(
            ("Functional.linear.1.forward",),
            ("Module.fc2.Linear.forward.0",),
            "rank 1 loses step 0's update of fc2.weight: it begins step 1 with the old one",
            verdict="parameter",
            step=1,
        ),
        trainer=StaleOnRank1,
    ),
    Case(
        "rank0_norm_eps",
        DP,
        _truth(
            ("Functional.layer_norm.0.forward",), ("Module.norm.LayerNorm.forward.0",), "rank 0's eps is 1e-2", rank=0
        ),
        only(0, eps),
    ),
    Case(
        "rank1_tanh_backward",
        DP,
        _truth(
            ("Torch.tanh.0.backward",),
            ("Module.act.Tanh.backward.0",),
            "rank 1's tanh gradient is wrong",
            phase="backward",
        ),
        kernel=kernel(1, torch, "tanh", 0, wrong_gradient(tanh_of_wrong_side)),
    ),
    Case(
        "rank1_nan_in_one_head",
        Setting("dpgpt", ranks=2),
        _truth(
            ("Torch.softmax.0.forward",),
            ("Module.blocks.0.attn.Attention.forward.0",),
            "head 1 of rank 1's first softmax is NaN; rank 0 has it from the gradients' all_reduce on",
        ),
        kernel=kernel(1, torch, "softmax", 0, nan_in_one_head),
    ),
    Case(
        "rank1_wrong_shard",
        TP,
        _truth(
            ("Functional.linear.1.forward",),
            ("Module.row.Linear.forward.0",),
            "rank 1 has rank 0's columns of the second weight",
            verdict="parameter",
        ),
        only(1, others_shard),
    ),
    Case(
        "rank0_column_in_bf16",
        TP,
        _truth(
            ("Functional.linear.0.forward",),
            ("Module.column.Linear.forward.0",),
            "rank 0's columns are computed in bf16",
            rank=0,
        ),
        kernel=kernel(0, F, "linear", 0, in_type(torch.bfloat16)),
    ),
    Case(
        "rank1_gelu_backward",
        TP,
        _truth(
            ("Functional.gelu.0.backward",),
            (),
            "rank 1's gelu gradient is twice what it is; rank 0 has it from the next all_reduce on",
            phase="backward",
        ),
        kernel=kernel(1, F, "gelu", 0, wrong_gradient(gelu_doubled)),
    ),
    Case(
        "stage0_linear_in_bf16",
        STAGES,
        _truth(
            ("Functional.linear.0.forward",),
            ("Module.fc.Linear.forward.0",),
            "the first stage's linear is in bf16",
            rank=0,
        ),
        kernel=kernel(0, F, "linear", 0, in_type(torch.bfloat16)),
    ),
    Case(
        "stage0_weight_element_md5",
        Setting("stages", ranks=2, task="md5"),
        _truth(
            ("Functional.linear.0.forward",),
            ("Module.fc.Linear.forward.0",),
            "one element of the first stage's weight is another",
            rank=0,
            verdict="parameter",
        ),
        only(0, first_stage_element),
    ),
    Case(
        "stage1_gelu_backward",
        STAGES,
        _truth(
            ("Functional.gelu.0.backward",),
            (),
            "the second stage's gelu gradient is doubled; the first stage receives what came of it",
            phase="backward",
        ),
        kernel=kernel(1, F, "gelu", 0, wrong_gradient(gelu_doubled)),
    ),
)
