"""Faults of what ranks exchange, or fail to."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from faults.case import Case, Setting, Truth
from faults.kernels import aten
from faults.trainer import Trainer

from .ranks import DP, STAGES, TP, kernel

DP_SGD = Setting("dp", ranks=2, optimizer="sgd")


class NotDivided(Trainer):
    """Leaves the sum of the ranks."""

    def reduce(self, name: str, gradient: Any) -> None:
        del name
        dist.all_reduce(gradient)


class NotDividedOnRank1(Trainer):
    def reduce(self, name: str, gradient: Any) -> None:
        dist.all_reduce(gradient)
        if self.rank != 1 or name != "norm.weight":
            gradient.div_(self.setting.ranks)


class DividedWrongly(Trainer):
    def reduce(self, name: str, gradient: Any) -> None:
        dist.all_reduce(gradient)
        gradient.div_(4 if name == "fc2.weight" else self.setting.ranks)


class Greatest(Trainer):
    """MAX instead of SUM."""

    def reduce(self, name: str, gradient: Any) -> None:
        del name
        dist.all_reduce(gradient, op=dist.ReduceOp.MAX)
        gradient.div_(self.setting.ranks)


class LastNotReduced(Trainer):
    """One parameter is left out by both ranks."""

    def reduce(self, name: str, gradient: Any) -> None:
        if name != "head.bias":
            super().reduce(name, gradient)


class OtherRoot(Trainer):
    def prepare(self) -> None:
        dist.broadcast(self.weights, 1)


class WrongBuffer(Trainer):
    """The second stage computes on a buffer that nobody received into."""

    def received(self, hidden: Any) -> Any:
        return torch.full_like(hidden, 0.125)


class WrongGradientSent(Trainer):
    def returned(self, hidden: Any) -> Any:
        return hidden.detach()


def unwritten(original: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    """Takes part, and does not write what comes of it."""
    return original(aten.clone(tensor), *arguments, **named)


def corrupted(original: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    """One element is another after the transfer."""
    result = original(tensor, *arguments, **named)
    aten.add_.Scalar(tensor.data.view(-1)[1:2], 0.5)
    return result


def parts_swapped(original: Any, parts: Any, own: Any, **named: Any) -> Any:
    """Fills the list from the last rank to the first."""
    return original(parts[::-1], own, **named)


def not_summed(run: Trainer) -> None:
    run.net.total = lambda part: part


def _truth(operators: tuple[str, ...], what: str, rank: int | None = 1, **other: Any) -> Truth:
    known: dict[str, Any] = {
        "phase": "forward",
        "verdict": "operator",
        "operators": operators,
        "modules": (),
        "what": what,
    }
    return Truth(**known | {"rank": rank} | other)


GRADIENT: dict[str, Any] = {"phase": "parameter_gradient"}

CASES = (
    Case(
        "gradients_not_averaged",
        DP_SGD,
        _truth(
            ("Tensor.div_.0.forward", "Tensor.add_.0.forward"),
            "no rank divides the summed gradients: all div_ are missing in target, add_ gets twice the gradient",
            rank=None,
            **GRADIENT,
        ),
        trainer=NotDivided,
    ),
    Case(
        "gradient_not_averaged_on_rank1",
        DP_SGD,
        _truth(
            ("Tensor.div_.2.forward", "Tensor.add_.2.forward"),
            "rank 1 does not divide the gradient of norm.weight: its later div_ count one less",
            **GRADIENT,
        ),
        trainer=NotDividedOnRank1,
    ),
    Case(
        "gradient_averaged_wrongly",
        DP_SGD,
        _truth(("Tensor.div_.4.forward",), "the gradient of fc2.weight is divided by 4, not 2", rank=None, **GRADIENT),
        trainer=DividedWrongly,
    ),
    Case(
        "all_reduce_lost_on_rank1",
        DP,
        _truth(
            ("Distributed.all_reduce.4.forward", "Tensor.div_.4.forward"),
            "rank 1 takes part in the all_reduce of fc2.weight's gradient but keeps its own",
            **GRADIENT,
        ),
        kernel=kernel(1, dist, "all_reduce", 4, unwritten),
    ),
    Case(
        "all_reduce_max",
        DP,
        _truth(("Distributed.all_reduce.0.forward",), "MAX instead of SUM on both ranks", rank=None, **GRADIENT),
        trainer=Greatest,
    ),
    Case(
        "all_reduce_left_out",
        DP_SGD,
        _truth(
            ("Distributed.all_reduce.7.forward", "Tensor.div_.7.forward", "Tensor.add_.7.forward"),
            "no rank reduces the gradient of head.bias: the last all_reduce is missing in target",
            rank=None,
            **GRADIENT,
        ),
        trainer=LastNotReduced,
    ),
    Case(
        "all_reduce_corrupted_on_rank1",
        DP,
        _truth(
            ("Distributed.all_reduce.6.forward",),
            "one element of rank 1's sum of head.weight's gradient is another than rank 0's",
            **GRADIENT,
        ),
        kernel=kernel(1, dist, "all_reduce", 6, corrupted),
    ),
    Case(
        "broadcast_root",
        DP,
        _truth(("Distributed.broadcast.0.forward",), "the weights of the samples come from rank 1, not 0", rank=None),
        trainer=OtherRoot,
    ),
    Case(
        "broadcast_corrupted_on_rank1",
        DP,
        _truth(("Distributed.broadcast.0.forward",), "one element of what rank 1 gets is another"),
        kernel=kernel(1, dist, "broadcast", 0, corrupted),
    ),
    Case(
        "forward_all_reduce_corrupted_on_rank1",
        TP,
        _truth(("Distributed.all_reduce.0.forward",), "one element of the sum is another on rank 1"),
        kernel=kernel(1, dist, "all_reduce", 0, corrupted),
    ),
    Case(
        "forward_all_reduce_corrupted_tensor",
        Setting("tp", ranks=2, task="tensor"),
        _truth(("Distributed.all_reduce.0.forward",), "one element of the sum is another on rank 0", rank=0),
        kernel=kernel(0, dist, "all_reduce", 0, corrupted),
        kept=False,
    ),
    Case(
        "forward_all_reduce_missing",
        TP,
        _truth(
            ("Distributed.all_reduce.0.forward", "Tensor.__add__.0.forward"),
            "each rank goes on with its own part: the call is missing in target, whose backward one is numbered 0",
            rank=None,
        ),
        not_summed,
    ),
    Case(
        "forward_all_reduce_missing_on_rank1",
        TP,
        _truth(
            ("Distributed.all_reduce.0.forward",),
            "rank 1 takes part in the sum but goes on with its own part",
        ),
        kernel=kernel(1, dist, "all_reduce", 0, unwritten),
    ),
    Case(
        "all_gather_order_on_rank1",
        TP,
        _truth(("Distributed.all_gather.0.forward",), "rank 1 has the parts in the other order"),
        kernel=kernel(1, dist, "all_gather", 0, parts_swapped),
    ),
    Case(
        "all_gather_order_l1",
        Setting("tp", ranks=2, level="L1"),
        _truth(("Distributed.all_gather.0.forward",), "rank 0 has the parts in the other order; level L1", rank=0),
        kernel=kernel(0, dist, "all_gather", 0, parts_swapped),
    ),
    Case(
        "receive_corrupted",
        STAGES,
        _truth(("Distributed.recv.0.forward",), "rank 1 receives other than rank 0 sent, which is in order"),
        kernel=kernel(1, dist, "recv", 0, corrupted),
    ),
    Case(
        "receive_wrong_buffer",
        STAGES,
        _truth(
            ("Functional.linear.0.forward",),
            "rank 1 computes on another buffer than the one it received into",
            verdict="input",
            also=("operator",),
            modules=("Module.fc.Linear.forward.0",),
        ),
        trainer=WrongBuffer,
    ),
    Case(
        "send_wrong_buffer",
        STAGES,
        _truth(
            ("Distributed.send.0.forward",),
            "rank 1 sends its input back instead of its gradient",
            phase="backward",
            verdict="input",
            also=("operator",),
        ),
        trainer=WrongGradientSent,
    ),
)
