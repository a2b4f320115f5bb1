"""Pairs without a fault."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting
from faults.plants.ranks import kernel as kernel_of

from .planted import CKPT, EP, LLAMA, VP, halves, in_single_once, more_threads, none, tf

CASES: tuple[Case, ...] = (
    Case("same_gru", Setting("gru", steps=2, optimizer="rmsprop"), none("the same run twice")),
    Case("same_llama", LLAMA, none("the same run twice, in bf16")),
    Case("same_recomputed", Setting("ckpt", dropout=0.2), none("the same run twice, recomputed, with dropout")),
    Case("same_vocabulary", VP, none("the same run of two ranks twice")),
    Case("same_experts_md5", Setting("ep", ranks=2, task="md5"), none("the same run of two ranks twice")),
    Case(
        "rounded_attention",
        LLAMA,
        none("one attention is computed in float32 and rounded once", bits_differ=True),
        kernel=tf(F, "scaled_dot_product_attention", 0, in_single_once),
    ),
    Case(
        "rounded_llama_linear",
        LLAMA,
        none("one bf16 linear sums its features in two halves", bits_differ=True),
        kernel=tf(F, "linear", 2, halves),
    ),
    Case(
        "rounded_gru_linear",
        Setting("gru", steps=2, optimizer="rmsprop"),
        none("one of the gates' linears sums its features in two halves", bits_differ=True),
        kernel=tf(F, "linear", 4, halves),
    ),
    Case(
        "rounded_recomputed",
        CKPT,
        none("the head sums its features in two halves", bits_differ=True),
        kernel=tf(F, "linear", 10, halves),
    ),
    Case(
        "rounded_experts",
        EP,
        none("one expert's linear sums its features in two halves", bits_differ=True),
        kernel=kernel_of(1, F, "linear", 1, halves),
    ),
    Case(
        "rounded_threads_resnet",
        Setting("resnet", steps=2, optimizer="nesterov"),
        none("2 threads instead of 1", bits_differ=True),
        kernel=more_threads,
    ),
)
