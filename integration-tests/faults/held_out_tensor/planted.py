"""What is planted here: much of it only moves values about, which leaves their statistics as they were."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from faults.case import Setting
from faults.kernels import aten
from faults.plants.clean import SplitSum

from .trainer import Whole

MIXER, WAVE = Setting("mixer", task="tensor"), Setting("wave", task="tensor")
STORY, ELMAN = Setting("story", task="tensor"), Setting("elman", task="tensor")
FLAT = Setting("flat", task="tensor")
SYNC, COLUMNS = Setting("sync", task="tensor", ranks=2), Setting("columns", task="tensor", ranks=2)
FLAT_ADAM = Setting("flat", task="tensor", optimizer="adam", steps=2)
WAVE_ADAGRAD = Setting("wave", task="tensor", optimizer="adagrad")
ELMAN_SGD = Setting("elman", task="tensor", optimizer="sgd", clip=0.1)
SYNC_SGD = Setting("sync", task="tensor", ranks=2, optimizer="sgd", steps=2)


def exchanged(tensor: Any, dim: int, first: int, second: int) -> Any:
    """Two of its slices in each other's place. The rest, and all statistics, stay."""
    order = list(range(tensor.shape[dim]))
    order[first], order[second] = order[second], order[first]
    return aten.index_select(tensor, dim, torch.tensor(order))


def weight(path: str, change: Any) -> Any:
    """Changes a parameter before the first step."""

    def plant(run: Any) -> None:
        parameter = run.net.get_parameter(path).data
        aten.copy_(parameter, change(aten.clone(parameter)))

    return plant


def method(name: str, change: Any) -> Any:
    """What a method of the net returns is changed, unseen."""

    def plant(run: Any) -> None:
        original = getattr(run.net, name)
        setattr(run.net, name, lambda *arguments: change(original(*arguments)))

    return plant


def gradient_of(path: str, change: Any) -> Any:
    """A hook on one parameter's gradient."""

    def plant(run: Any) -> None:
        run.net.get_parameter(path).register_hook(change)

    return plant


def result(change: Any) -> Any:
    """A kernel whose result is changed; its gradient is torch's own for what it should have been."""

    def altered(original: Any, *arguments: Any, **named: Any) -> Any:
        out = original(*arguments, **named)
        out.data = change(out.detach())
        return out

    return altered


def bit_flipped(tensor: Any) -> Any:
    """The lowest bit but nine of one element's mantissa."""
    out = aten.clone(tensor)
    bits = out.view(-1).view(torch.int32)
    bits[3] = bits[3] ^ (1 << 9)
    return out


def row_dropped(tensor: Any) -> Any:
    return aten.index_fill.int_Scalar(tensor, 0, torch.tensor([1]), 0.0)


def second_head_looks_ahead(mask: Any) -> Any:
    out = aten.clone(mask)
    aten.fill_.Scalar(aten.select(out, 0, 1), False)
    return out


def earlier_state(run: Any) -> None:
    run.net.carried = lambda state, states, time: states[0] if time == 2 else state


def states_exchanged(run: Any) -> None:
    run.net.carried = lambda state, _, time: exchanged(state, 0, 0, 1) if time == 1 else state


class LabelsExchanged(Whole):
    """Two samples have each other's labels."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return inputs, labels.flip(0)


class SamplesExchanged(Whole):
    """The inputs of two samples are exchanged, their labels are not."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return exchanged(inputs, 0, 0, 2), labels


class LabelsOnRank0(Whole):
    """Rank 0 has its labels in the other order."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return inputs, labels.flip(0) if self.rank == 0 else labels


class MomentsExchanged(Whole):
    """Two parameters of one shape have each other's first moment in step 1."""

    def update(self) -> None:
        if self.step == 1:
            one, other = (self.optimizer.state[part] for part in (self.net.norm.weight, self.net.norm.bias))
            one["exp_avg"], other["exp_avg"] = other["exp_avg"], one["exp_avg"]
        super().update()


class RowsExchangedAfterUpdate(Whole):
    """After step 0 two rows of the head are in each other's place."""

    def update(self) -> None:
        super().update()
        if self.step == 0:
            head = self.net.head.weight.data
            aten.copy_(head, exchanged(head, 0, 0, 1))


class RateOfStep1(Whole):
    """The learning rate is another from step 1 on."""

    def update(self) -> None:
        if self.step == 1:
            self.optimizer.param_groups[0]["lr"] = 0.012
        super().update()


class StaleOnRank1(Whole):
    """Rank 1 loses one update."""

    def update(self) -> None:
        kept = self.net.middle.weight.data
        before = aten.clone(kept)
        super().update()
        if self.step == 0 and self.rank == 1:
            aten.copy_(kept, before)


class GradientTurnedOnRank1(Whole):
    """Rank 1 gives the transposed gradient of a square weight."""

    def reduce(self, name: str, gradient: Any) -> None:
        if self.rank == 1 and name == "middle.weight":
            aten.copy_(gradient, aten.clone(aten.t(gradient)))
        super().reduce(name, gradient)


class MeanByThree(Whole):
    """Rank 0 divides one gradient by three."""

    def reduce(self, name: str, gradient: Any) -> None:
        if self.rank == 0 and name == "head.bias":
            dist.all_reduce(gradient)
            gradient.div_(3)
            return
        super().reduce(name, gradient)


def rows_exchanged_after(original: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    """A collective whose result has two elements in each other's place."""
    handle = original(tensor, *arguments, **named)
    aten.copy_(tensor.data, exchanged(tensor.data, 0, 0, 1))
    return handle


def bit_flipped_after(original: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    handle = original(tensor, *arguments, **named)
    aten.copy_(tensor.data, bit_flipped(tensor.data))
    return handle


def gathered_backwards(original: Any, parts: Any, own: Any, **named: Any) -> Any:
    return original(parts[::-1], own, **named)


def rolled_pool(original: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
    """Windows that begin one later."""
    return original(aten.roll(inputs, [-1], [2]), *arguments, **named)


def biased_norm(original: Any, *arguments: Any, **named: Any) -> Any:
    """As if the variance were divided by one less."""
    count = arguments[0].numel() / arguments[0].shape[1]
    return aten.mul.Scalar(original(*arguments, **named), ((count - 1) / count) ** 0.5)


def hard_tanh(original: Any, inputs: Any) -> Any:
    del original
    return aten.hardtanh(inputs)


def mish_like_silu(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.silu_backward(incoming, inputs)


def samples_exchanged(incoming: Any, inputs: Any, out: Any) -> Any:
    """The derivative is right, the samples are not."""
    del inputs
    right = aten.mul.Tensor(incoming, aten.rsub.Scalar(aten.mul.Tensor(out, out), 1.0))
    return exchanged(right, 0, 0, 1)


def erf_for_tanh(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.gelu_backward(incoming, inputs)


def hardswish_cut(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    whole = aten.hardswish_backward(incoming, inputs)
    return aten.where.self(aten.gt.Scalar(inputs, 0.0), whole, aten.zeros_like(whole))


def elu_like_relu(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.where.self(aten.gt.Scalar(inputs, 0.0), incoming, aten.mul.Scalar(incoming, 0.5))


def loudest_word_forgotten(gradient: Any) -> Any:
    word = aten.argmax(aten.sum.dim_IntList(aten.abs(gradient), [1]))
    return aten.index_fill.int_Scalar(gradient, 0, word, 0.0)


def backwards_sum(rows: Any) -> Any:
    """One row after the other, from the last to the first."""
    total = aten.clone(rows[-1])
    for row in range(rows.shape[0] - 2, -1, -1):
        total = aten.add.Tensor(total, rows[row])
    return total


class NormSummedBackwards(torch.autograd.Function):
    """A layer norm over the last dimension whose weight's and bias's gradients are summed row by row."""

    @staticmethod
    def forward(context: Any, inputs: Any, scale: Any, shift: Any, eps: float) -> Any:
        out, mean, inverse = aten.native_layer_norm(inputs, list(scale.shape), scale, shift, eps)
        context.save_for_backward(inputs, scale, shift, mean, inverse)
        return out

    @staticmethod
    def backward(context: Any, incoming: Any) -> Any:
        inputs, scale, shift, mean, inverse = context.saved_tensors
        width = list(scale.shape)
        mask = [True, False, False]
        to_inputs = aten.native_layer_norm_backward(incoming, inputs, width, mean, inverse, scale, shift, mask)[0]
        normed = aten.mul.Tensor(aten.sub.Tensor(inputs, mean), inverse)
        parts = (aten.mul.Tensor(incoming, normed), incoming)
        return to_inputs, *(backwards_sum(part.reshape(-1, *width)) for part in parts), None


def norm_summed_backwards(original: Any, inputs: Any, shape: Any, scale: Any, shift: Any, eps: float) -> Any:
    del original, shape
    return NormSummedBackwards.apply(inputs, scale, shift, eps)


def split_linear(original: Any, inputs: Any, scale: Any, bias: Any = None) -> Any:
    del original
    return SplitSum.apply(bias, inputs, aten.t(scale))


def from_double(original: Any, *arguments: Any, **named: Any) -> Any:
    """The exact result, rounded once; its gradient is torch's own."""
    out = original(*arguments, **named)
    cast = [one.detach().double() if isinstance(one, torch.Tensor) else one for one in arguments]
    out.data = original(*cast, **named).float()
    return out


def product_backwards(original: Any, left: Any, right: Any) -> Any:
    """A matmul that sums over its inner dimension from the last to the first; its gradient is torch's own."""
    out = original(left, right)
    terms = aten.mul.Tensor(aten.unsqueeze(left.detach(), -1), aten.unsqueeze(right.detach(), -3))
    out.data = backwards_sum(terms.movedim(-2, 0))
    return out


def linear_backwards(original: Any, inputs: Any, scale: Any, bias: Any = None) -> Any:
    """A linear that sums its features from the last to the first; its gradient is torch's own."""
    out = original(inputs, scale, bias)
    terms = aten.mul.Tensor(aten.unsqueeze(inputs.detach(), -2), scale.detach())
    total = backwards_sum(terms.movedim(-1, 0))
    out.data = aten.add.Tensor(total, bias.detach()) if bias is not None else total
    return out
