"""Pairs without a fault: what differs is the order of a sum, or nothing."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Kernel, Setting, Truth
from faults.kernels import aten
from faults.trainer import Trainer

from .forward_kernels import kernel


def threads(count: int) -> Kernel:
    """Lets torch compute on so many threads."""

    def plant(rank: int) -> None:
        del rank
        torch.set_num_threads(count)

    return plant


class SplitSum(torch.autograd.Function):
    """A linear that sums over features in two halves, and its weight gradient over two half batches.

    Its results are those of torch's, in number and shape.
    """

    @staticmethod
    def forward(context: Any, bias: Any, inputs: Any, turned: Any) -> Any:
        context.save_for_backward(inputs, turned)
        half = inputs.shape[1] // 2
        first = aten.mm(inputs[:, :half], turned[:half])
        return aten.add.Tensor(aten.add.Tensor(aten.mm(inputs[:, half:], turned[half:]), first), bias)

    @staticmethod
    def backward(context: Any, incoming: Any) -> Any:
        inputs, turned = context.saved_tensors
        half = inputs.shape[0] // 2
        parts = [aten.mm(aten.t(inputs[rows]), incoming[rows]) for rows in (slice(half, None), slice(0, half))]
        bias = aten.sum.dim_IntList(incoming, [0])
        return bias, aten.mm(incoming, aten.t(turned)), aten.add.Tensor(*parts)


def split_sum(original: Any, inputs: Any, weight: Any, bias: Any = None) -> Any:
    del original
    return SplitSum.apply(bias, inputs, aten.t(weight))


def in_double(original: Any, *arguments: Any, **named: Any) -> Any:
    """The exact result, rounded once."""
    cast = [value.double() if isinstance(value, torch.Tensor) else value for value in arguments]
    return original(*cast, **named).float()


def confidence(run: Trainer) -> None:
    def look(module: Any, inputs: Any, out: Any) -> None:
        del module, inputs
        F.log_softmax(out.detach(), dim=-1)

    run.net.register_forward_hook(look)


def _none(what: str, *, bits_differ: bool = True) -> Truth:
    return Truth("none", "none", (), (), what, rank=None, step=None, bits_differ=bits_differ)


CASES = (
    Case("clean_rerun_mlp", Setting("mlp", optimizer="adamw"), _none("the same run twice", bits_differ=False)),
    Case(
        "clean_rerun_gpt_dropout",
        Setting("gpt", dropout=0.1),
        _none("the same run twice, with dropout", bits_differ=False),
    ),
    Case("clean_rerun_md5", Setting("mlp", task="md5"), _none("the same run twice", bits_differ=False)),
    Case(
        "clean_rerun_ranks",
        Setting("dp", ranks=2, optimizer="sgd"),
        _none("the same run of two ranks twice", bits_differ=False),
    ),
    Case(
        "clean_rerun_stages", Setting("stages", ranks=2), _none("the same run of two stages twice", bits_differ=False)
    ),
    Case(
        "clean_threads_conv",
        Setting("wideconv"),
        _none("2 threads instead of 1: sums are made in another order"),
        kernel=threads(2),
    ),
    Case(
        "clean_threads_mlp",
        Setting("wide", optimizer="sgd", steps=2),
        _none("2 threads instead of 1: sums are made in another order"),
        kernel=threads(2),
    ),
    Case(
        "clean_threads_with_reruns",
        Setting("wideconv", optimizer="sgd", steps=2),
        _none("4 threads instead of 1: sums are made in another order; further golden runs have 2 and 3 threads"),
        kernel=threads(4),
        reruns=(threads(2), threads(3)),
    ),
    Case(
        "clean_split_sum",
        Setting("mlp", optimizer="sgd", steps=2),
        _none("fc2 sums its features in two halves and its weight gradient over two half batches"),
        kernel=kernel(F, "linear", 1, split_sum),
    ),
    Case(
        "clean_norm_in_double",
        Setting("gpt"),
        _none("one LayerNorm is computed in double and rounded once"),
        kernel=kernel(F, "layer_norm", 0, in_double),
    ),
    Case(
        "clean_split_sum_tensor",
        Setting("mlp", task="tensor"),
        _none("fc2 sums its features in two halves and its weight gradient over two half batches"),
        kernel=kernel(F, "linear", 1, split_sum),
    ),
    Case(
        "clean_measured_besides",
        Setting("mlp"),
        _none(
            "target computes a log_softmax besides that nothing uses: one call more, the same training",
            bits_differ=False,
        ),
        confidence,
    ),
)
