"""What the held-out faults and clean pairs plant, and how their truths are written."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from faults.case import Setting, Truth
from faults.kernels import aten
from faults.plants.forward_kernels import kernel

from .trainer import HeldOut

GRU, LSTM, LLAMA, CKPT = Setting("gru"), Setting("lstm"), Setting("llama"), Setting("ckpt")
RESNET, VAE = Setting("resnet"), Setting("vae")
VP, EP = Setting("vp", ranks=2), Setting("ep", ranks=2)
BUCKET = Setting("bucket", ranks=2, optimizer="sgd")


def truth(phase: str, verdict: str, operators: str, modules: str, what: str, **other: Any) -> Truth:
    """Names apart by spaces; a verdict's others behind it."""
    first, *also = verdict.split()
    return Truth(phase, first, tuple(operators.split()), tuple(modules.split()), what, tuple(also), **other)


def setting_of(path: str, name: str, value: Any) -> Any:
    """Sets an attribute of a part of the net."""

    def plant(run: Any) -> None:
        owner = run.net
        for part in filter(None, path.split(".")):
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        setattr(owner, name, value)

    return plant


def swapped_gates(run: Any) -> None:
    run.net.split = lambda gates: gates.chunk(2, 1)[::-1]


def forgotten_state(run: Any) -> None:
    run.net.carried = lambda state, time: aten.zeros_like(state) if time == 2 else state


def moved(*path: str, row: int = 1, by: float = 0.5) -> Any:
    """One element of a parameter is another."""

    def plant(run: Any) -> None:
        owner = run.net
        for part in path:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        owner.data.view(-1)[row] += by

    return plant


def without_bias(run: Any) -> None:
    layer = run.net.candidate
    layer.forward = lambda inputs: F.linear(inputs, layer.weight)


def coarse_weight(run: Any) -> None:
    weight = run.net.layers[0].down.weight.data
    scale = aten.div.Scalar(weight.float(), 1 / 64)
    aten.copy_(weight, aten.mul.Tensor(aten.round(scale), torch.tensor(1 / 64)))


def flipped_kernel(run: Any) -> None:
    weight = run.net.depth.weight.data
    aten.copy_(weight, aten.flip(weight, [2, 3]))


def wide_kernel(run: Any) -> None:
    run.net.depth.dilation = run.net.depth.padding = (2, 2)


def evaluated(run: Any) -> None:
    run.net.norm.eval()


def first_state(run: Any) -> None:
    run.net.last = lambda out: out[:, -2]


def gate_and_up_swapped(run: Any) -> None:
    layer = run.net.layers[1]
    layer.mlp = lambda hidden: layer.down(F.silu(layer.up(hidden)) * layer.gate(hidden))


def half_branch(run: Any) -> None:
    run.net.layers[0].merge = lambda hidden, branch: hidden + 0.5 * branch


def other_deviation(run: Any) -> None:
    run.net.deviation = torch.exp


def quiet_noise(run: Any) -> None:
    run.net.noise = lambda like: aten.mul.Tensor(torch.randn(like.shape, dtype=like.dtype), torch.tensor(0.9).double())


def sign_flipped(run: Any) -> None:
    run.net.middle.weight.register_hook(aten.neg)


def late_scaled(run: Any) -> None:
    run.net.layers[1].gate.weight.register_hook(lambda gradient: aten.mul.Tensor(gradient, torch.tensor(1.25)))


def loss_option(name: str, value: Any) -> Any:
    def plant(run: Any) -> None:
        run.options[name] = value

    return plant


def backwards(run: Any) -> None:
    original = run.net.away
    run.net.away = lambda hidden: original(aten.flip(hidden, [0]))


def own_greatest(run: Any) -> None:
    def greatest(own: Any) -> Any:
        dist.all_reduce(aten.clone(own), op=dist.ReduceOp.MAX)
        return own

    run.net.greatest = greatest


class Colours(HeldOut):
    """The channels come in the other order."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return inputs.flip(1), labels


class OtherTokens(HeldOut):
    """One token of step 1 is another."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        tokens, labels = super().batch(step, micro)
        if step == 1:
            tokens[1, 2] = (tokens[1, 2] + 3) % 11
        return tokens, labels


class HardSum(HeldOut):
    """No mean."""

    def mean(self, flat: Any) -> None:
        del flat


class SumOnRank1(HeldOut):
    """Rank 1 does not divide."""

    def mean(self, flat: Any) -> None:
        if self.rank != 1:
            super().mean(flat)


class LeftOutOnRank1(HeldOut):
    """The gradient of the norm's weight goes into the bucket as zeros."""

    def gradient(self, name: str, gradient: Any) -> Any:
        return aten.zeros_like(gradient) if self.rank == 1 and name == "norm.weight" else gradient


class Displaced(HeldOut):
    """What comes back from the bucket is one element aside for the head's bias."""

    def spread(self, flat: Any) -> None:
        super().spread(flat)
        bias = self.net.head.bias
        aten.copy_(bias.grad, aten.slice(flat, 0, flat.numel() - bias.numel() - 1, flat.numel() - 1))


class UpdatedTwice(HeldOut):
    """After step 0."""

    def update(self) -> None:
        super().update()
        if self.step == 0:
            super().update()


class StateForgotten(HeldOut):
    """The momentum is lost after step 0."""

    def update(self) -> None:
        if self.step == 1:
            self.optimizer.state.clear()
        super().update()


class MovesBeforeBackward(HeldOut):
    """A weight that the layer has read already is another when it is read again."""

    def backward(self, loss: Any) -> None:
        aten.add_.Tensor(aten.slice(aten.view(self.net.layers[0].down.weight.data, [-1]), 0, 5, 6), torch.tensor(0.5))
        super().backward(loss)


class DriftOnRank1(HeldOut):
    """Rank 1's norm weight is a bit another after the update of step 0."""

    def update(self) -> None:
        super().update()
        if self.step == 0 and self.rank == 1:
            aten.mul_.Scalar(self.net.norm.weight.data, 1.01)


def hard_sigmoid(original: Any, inputs: Any) -> Any:
    del original
    return aten.hardsigmoid(inputs)


def last_key_lost(original: Any, query: Any, key: Any, value: Any, **named: Any) -> Any:
    value = aten.clone(value)
    value[:, :, 0] = 0.0
    return original(query, key, value, **named)


def in_single(original: Any, *arguments: Any) -> Any:
    return original(*(one.float() for one in arguments)).double()


def elu_through(incoming: Any, inputs: Any, out: Any) -> Any:
    del inputs, out
    return aten.clone(incoming)


def tanh_squared(incoming: Any, inputs: Any, out: Any) -> Any:
    del inputs
    return aten.mul.Tensor(incoming, aten.rsub.Scalar(aten.pow.Tensor_Scalar(out, 4), 1.0))


def silu_flat(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.mul.Tensor(incoming, aten.sigmoid(inputs))


def relu_soft(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.where.self(aten.gt.Scalar(inputs, -0.2), incoming, aten.zeros_like(incoming))


def exchanged_corrupted(original: Any, out: Any, rows: Any, **named: Any) -> Any:
    handle = original(out, rows, **named)
    out.view(-1)[7] += 0.75
    return handle


def greatest_for_sum(original: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    del arguments, named
    return original(tensor, op=dist.ReduceOp.MAX)


def mean_of_part(original: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
    inputs = aten.clone(inputs)
    inputs[..., -1, :] = 0.0
    return original(inputs, *arguments, **named)


def in_single_once(original: Any, query: Any, key: Any, value: Any, **named: Any) -> Any:
    """Computed in float32, rounded once, at the end; its gradient is torch's own."""
    out = original(query, key, value, **named)
    out.data = original(*(one.detach().float() for one in (query, key, value)), **named).to(out.dtype)
    return out


def halves(original: Any, inputs: Any, weight: Any, bias: Any = None) -> Any:
    """A linear whose features are summed in two halves, rounded as its operands are; its gradient is torch's own."""
    out = original(inputs, weight, bias)
    half = inputs.shape[-1] // 2
    parts = (
        aten.matmul(inputs[..., half:], aten.t(weight[:, half:])),
        aten.matmul(inputs[..., :half], aten.t(weight[:, :half])),
    )
    total = aten.add.Tensor(*(part.detach() for part in parts))
    out.data = (aten.add.Tensor(total, bias.detach()) if bias is not None else total).to(out.dtype)
    return out


def more_threads(rank: int) -> None:
    del rank
    torch.set_num_threads(2)


def tf(owner: Any, name: str, call: int, altered: Any) -> Any:
    return kernel(owner, name, call, altered)


def none(what: str, *, bits_differ: bool = False) -> Truth:
    return Truth("none", "none", (), (), what, rank=None, step=None, bits_differ=bits_differ)


F1 = "forward"
B1 = "backward"
EITHER = "input operator"
SDPA = "Functional.scaled_dot_product_attention"
