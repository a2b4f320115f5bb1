"""Faults of one rank of two, and of what ranks exchange."""

from __future__ import annotations

import torch
import torch.distributed as dist

from faults.case import Case, Setting
from faults.kernels import wrong_gradient
from faults.plants.ranks import kernel as kernel_of
from faults.plants.ranks import only

from .planted import (
    B1,
    BUCKET,
    EITHER,
    EP,
    F1,
    VP,
    Displaced,
    DriftOnRank1,
    HardSum,
    LeftOutOnRank1,
    SumOnRank1,
    backwards,
    exchanged_corrupted,
    greatest_for_sum,
    moved,
    own_greatest,
    setting_of,
    tanh_squared,
    tf,
    truth,
)

CASES: tuple[Case, ...] = (
    Case(
        "vp_greatest_of_own",
        VP,
        truth(
            F1, EITHER, "Tensor.__sub__.0.forward", "", "rank 1 takes its own greatest logit, not both ranks'", rank=1
        ),
        only(1, own_greatest),
    ),
    Case(
        "vp_maximum_for_sum",
        VP,
        truth(
            F1,
            "operator",
            "Distributed.all_reduce.1.forward",
            "",
            "the greatest part instead of their sum on both ranks",
            rank=None,
        ),
        kernel=tf(dist, "all_reduce", 1, greatest_for_sum),
    ),
    Case(
        "vp_words_displaced_on_rank1",
        VP,
        truth(F1, "operator", "Tensor.__ge__.0.forward", "", "rank 1's words begin one later", rank=1),
        only(1, setting_of("", "first", 7)),
    ),
    Case(
        "vp_shard_element_on_rank1",
        VP,
        truth(
            F1,
            "parameter",
            "Functional.linear.1.forward",
            "Module.head.Linear.forward.0",
            "one element of rank 1's words is another",
            rank=1,
        ),
        only(1, moved("head", "weight", row=12)),
    ),
    Case(
        "ep_rows_backwards_on_rank0",
        EP,
        truth(F1, EITHER, "Distributed.all_to_all_single.0.forward", "", "rank 0 sends its rows in the other order"),
        only(0, backwards),
    ),
    Case(
        "ep_exchange_corrupted_on_rank0",
        EP,
        truth(
            F1,
            "operator",
            "Distributed.all_to_all_single.1.forward",
            "",
            "one element of what rank 0 gets back is another",
        ),
        kernel=kernel_of(0, dist, "all_to_all_single", 1, exchanged_corrupted),
    ),
    Case(
        "ep_expert_element_on_rank1",
        EP,
        truth(
            F1,
            "parameter",
            "Functional.linear.1.forward",
            "Module.expert.Linear.forward.0",
            "one element of rank 1's expert is another",
            rank=1,
        ),
        only(1, moved("expert", "weight", row=33)),
    ),
    Case(
        "ep_tanh_backward_on_rank1",
        EP,
        truth(
            B1,
            "operator",
            "Torch.tanh.0.backward",
            "",
            "the derivative has the fourth power on rank 1; rank 0 gets what came of it",
            rank=1,
        ),
        kernel=kernel_of(1, torch, "tanh", 0, wrong_gradient(tanh_squared)),
    ),
    Case(
        "bucket_not_divided",
        BUCKET,
        truth(
            "parameter_gradient",
            "operator",
            "Tensor.div_.0.forward",
            "",
            "no rank divides the bucket: div_ is missing in target",
            rank=None,
        ),
        trainer=HardSum,
    ),
    Case(
        "bucket_not_divided_on_rank1",
        BUCKET,
        truth(
            "parameter_gradient", "operator", "Tensor.div_.0.forward", "", "rank 1 does not divide the bucket", rank=1
        ),
        trainer=SumOnRank1,
    ),
    Case(
        "bucket_part_of_zeros_on_rank1",
        BUCKET,
        truth(
            "parameter_gradient",
            EITHER,
            "Distributed.all_reduce.0.forward",
            "",
            "rank 1 puts zeros into the bucket for one weight's gradient",
            rank=1,
        ),
        trainer=LeftOutOnRank1,
    ),
    Case(
        "bucket_displaced",
        BUCKET,
        truth(
            "parameter_gradient",
            EITHER,
            "Tensor.add_.8.forward",
            "",
            "the head's bias gets a neighbour's part of the bucket",
            rank=None,
        ),
        trainer=Displaced,
    ),
    Case(
        "bucket_drift_on_rank1",
        Setting("bucket", ranks=2, optimizer="sgd", steps=2),
        truth(
            F1,
            "parameter",
            "Functional.batch_norm.0.forward",
            "Module.norm.BatchNorm1d.forward.0",
            "rank 1's norm weight is one per cent greater after step 0",
            rank=1,
            step=1,
        ),
        trainer=DriftOnRank1,
    ),
)
