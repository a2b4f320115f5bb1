"""Faults of one rank of two, and of what ranks exchange."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from faults.case import Case
from faults.held_out.planted import B1, EITHER, F1, truth
from faults.kernels import in_type, wrong_gradient
from faults.plants.ranks import kernel as kernel_of
from faults.plants.ranks import only

from .planted import (
    COLUMNS,
    SYNC,
    SYNC_SGD,
    GradientTurnedOnRank1,
    LabelsOnRank0,
    MeanByThree,
    StaleOnRank1,
    bit_flipped_after,
    elu_like_relu,
    exchanged,
    gathered_backwards,
    rows_exchanged_after,
    weight,
)

GRADIENT = "parameter_gradient"

CASES: tuple[Case, ...] = (
    Case(
        "sync_stale_on_rank1",
        SYNC_SGD,
        truth(
            F1,
            "parameter",
            "Functional.linear.1.forward",
            "Module.middle.Linear.forward.0",
            "rank 1 loses step 0's update of one weight",
            rank=1,
            step=1,
        ),
        trainer=StaleOnRank1,
    ),
    Case(
        "sync_mean_exchanged_on_rank0",
        SYNC,
        truth(
            F1,
            "operator",
            "Distributed.all_reduce.0.forward",
            "",
            "two elements of rank 0's sum are exchanged: the same statistics",
        ),
        kernel=kernel_of(0, dist, "all_reduce", 0, rows_exchanged_after),
    ),
    Case(
        "sync_bit_flipped_on_rank1",
        SYNC,
        truth(
            GRADIENT,
            "operator",
            "Distributed.all_reduce.5.forward",
            "",
            "one bit of one element of rank 1's sum of a weight's gradient is another",
            rank=1,
        ),
        kernel=kernel_of(1, dist, "all_reduce", 5, bit_flipped_after),
    ),
    Case(
        "sync_gradient_turned_on_rank1",
        SYNC,
        truth(
            GRADIENT,
            EITHER,
            "Distributed.all_reduce.5.forward",
            "",
            "rank 1 puts a transposed gradient into the sum: the same statistics",
            rank=1,
        ),
        trainer=GradientTurnedOnRank1,
    ),
    Case(
        "sync_mean_by_three_on_rank0",
        SYNC,
        truth(GRADIENT, "operator", "Tensor.div_.6.forward", "", "rank 0 divides the last gradient by 3, not 2"),
        trainer=MeanByThree,
    ),
    Case(
        "sync_labels_on_rank0",
        SYNC,
        truth("input", EITHER, "Functional.cross_entropy.0.forward", "", "rank 0 has its labels in the other order"),
        trainer=LabelsOnRank0,
    ),
    Case(
        "sync_broadcast_exchanged_on_rank1",
        SYNC,
        truth(
            F1,
            "operator",
            "Distributed.broadcast.0.forward",
            "",
            "two elements of what rank 1 gets are exchanged: the same statistics",
            rank=1,
        ),
        kernel=kernel_of(1, dist, "broadcast", 0, rows_exchanged_after),
    ),
    Case(
        "sync_elu_backward_on_rank1",
        SYNC,
        truth(
            B1,
            "operator",
            "Functional.elu.0.backward",
            "",
            "rank 1's derivative is half where the input is negative; rank 0 gets what came of it",
            rank=1,
        ),
        kernel=kernel_of(1, F, "elu", 0, wrong_gradient(elu_like_relu)),
    ),
    Case(
        "sync_tanh_in_bf16_on_rank0",
        SYNC,
        truth(F1, "operator", "Torch.tanh.0.forward", "", "rank 0's tanh is in bf16; rank 1 gets it by the sum"),
        kernel=kernel_of(0, torch, "tanh", 0, in_type(torch.bfloat16)),
    ),
    Case(
        "columns_gathered_backwards_on_rank1",
        COLUMNS,
        truth(
            F1,
            "operator",
            "Distributed.all_gather.0.forward",
            "",
            "rank 1 has the parts in the other order",
            rank=1,
        ),
        kernel=kernel_of(1, dist, "all_gather", 0, gathered_backwards),
    ),
    Case(
        "columns_weight_exchanged_on_rank0",
        COLUMNS,
        truth(
            F1,
            "parameter",
            "Functional.linear.0.forward",
            "Module.part.Linear.forward.0",
            "two columns of rank 0's part of the weight are exchanged: the same statistics",
        ),
        only(0, weight("part.weight", lambda value: exchanged(value, 1, 0, 4))),
    ),
)
