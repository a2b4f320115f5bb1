"""Other machines and other code for the same mathematics."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from faults.case import Kernel

from .nets import Deep, Plain, Split, WrittenOut
from .trainer import Machines

ISA = {
    "portable": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "mkl_sse": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "mkl_avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "onednn_sse": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "onednn_avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "old": {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}
"""Instruction sets, by the variables that torch, MKL and oneDNN read once, before they compute anything."""


def machine(name: str) -> Kernel:
    """Another instruction set. `threads2` and `threads4`: so many threads. `no_onednn`: without that library."""

    def plant(rank: int) -> None:
        del rank
        if name.startswith("threads"):
            torch.set_num_threads(int(name.removeprefix("threads")))
        elif name == "no_onednn":
            torch.backends.mkldnn.enabled = False
        else:
            os.environ.update(ISA[name])

    return plant


def both(first: Kernel, second: Kernel | None) -> Kernel:
    """Two kernels in one run."""

    def plant(rank: int) -> None:
        first(rank)
        if second is not None:
            second(rank)

    return plant


class ChannelsLast(Machines):
    """Inputs and weights with their channels innermost."""

    def build(self) -> Any:
        return super().build().to(memory_format=torch.channels_last)

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return inputs.to(memory_format=torch.channels_last), labels


def backend(name: str) -> type[Machines]:
    """Attention by this backend of torch's."""

    class Chosen(Machines):
        def train(self) -> None:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            with sdpa_kernel(getattr(SDPBackend, name)):
                super().train()

    return Chosen


class Rewritten(Machines):
    """A net whose code is another and whose mathematics is not. `rewrite` changes it before the optimizer sees it."""

    @staticmethod
    def rewrite(net: Any) -> None:
        raise NotImplementedError

    def build(self) -> Any:
        net = super().build()
        self.rewrite(net)
        return net


def rewritten(change: Any) -> type[Machines]:
    """A trainer whose net is changed so."""

    class Changed(Rewritten):
        @staticmethod
        def rewrite(net: Any) -> None:
            change(net)

    return Changed


def split(net: Any) -> None:
    """Three projections instead of a fused one."""
    for block in net.blocks:
        fused = block.attn
        block.attn = Split()
        parts = (block.attn.query, block.attn.key, block.attn.value)
        for part, weight, bias in zip(parts, fused.qkv.weight.chunk(3), fused.qkv.bias.chunk(3), strict=True):
            part.weight.data, part.bias.data = weight.data.clone(), bias.data.clone()
        block.attn.out = fused.out


def written_out(net: Any) -> None:
    """Attention in single operators."""
    for block in net.blocks:
        block.attn.__class__ = WrittenOut


def merged(net: Any) -> None:
    """The adapter is in the weight."""
    net.adapted = net.adapted.merged()


class Handmade(nn.Module):
    """A LayerNorm in single operators, its parameters torch's."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, hidden: Any) -> Any:
        centred = hidden - hidden.mean(-1, keepdim=True)
        spread = centred.pow(2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(spread + self.eps) * self.weight + self.bias


def norm_written_out(net: Any) -> None:
    """One LayerNorm in single operators."""
    if hasattr(net, "blocks"):
        net.blocks[0].ln2 = Handmade(net.blocks[0].ln2)
    else:
        net.norm2 = Handmade(net.norm2)


def attention_scaled_up(net: Any) -> None:
    """Attention in single operators, and its result 2 % too large."""
    written_out(net)
    for block in net.blocks:
        mix = block.attn.mix
        block.attn.mix = lambda query, key, value, mix=mix: mix(query, key, value) * 1.02


class Gelu(nn.Module):
    """GELU in single operators."""

    def forward(self, hidden: Any) -> Any:
        return hidden * 0.5 * (1.0 + torch.erf(hidden * 0.5**0.5))


def gelu_written_out(net: Any) -> None:
    """GELU in single operators."""
    for block in net.blocks:
        block.act = Gelu()


class ProductForLinear(nn.Module):
    """A linear layer as a product and a sum."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, inputs: Any) -> Any:
        return torch.matmul(inputs, self.weight.t()) + self.bias


def linear_as_product(net: Any) -> None:
    """A linear layer as a product and a sum."""
    net.fc2 = ProductForLinear(net.fc2)


class LossOfLogarithms(Machines):
    """The loss as log_softmax and nll_loss."""

    def loss(self, out: Any, labels: Any) -> Any:
        logarithms = F.log_softmax(out.reshape(-1, out.shape[-1]).float(), -1)
        return F.nll_loss(logarithms, labels.reshape(-1))


class ReversedAccumulation(Machines):
    """The micro-batches' gradients are added from the last to the first."""

    def train(self) -> None:
        parameters = list(self.net.parameters())
        parts = []
        for inputs, labels in self.batches:
            for parameter in parameters:
                parameter.grad = None
            self.accumulate(inputs, labels)
            parts.append([parameter.grad for parameter in parameters])
        with torch.no_grad():
            for parameter, *gradients in zip(parameters, *reversed(parts), strict=True):
                parameter.grad = torch.ops.aten.clone(gradients[0])
                for gradient in gradients[1:]:
                    torch.ops.aten.add_.Tensor(parameter.grad, gradient)
        self.finish()


class Buckets(Machines):
    """DDP with the smallest buckets."""

    def build(self) -> Any:
        return torch.nn.parallel.DistributedDataParallel(Deep().train(), bucket_cap_mb=0.001)


class Sharded(Machines):
    """FSDP: each rank has a part of each parameter."""

    def build(self) -> Any:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        net = Deep().train()
        fully_shard(net, mesh=init_device_mesh("cpu", (self.setting.ranks,)))
        return net


class Cut(Plain):
    """The first layer by columns, the second by rows."""

    def cut(self, rank: int, ranks: int) -> None:
        """Keeps this rank's part."""
        size = self.fc1.out_features // ranks
        mine = slice(rank * size, (rank + 1) * size)
        self.fc1.weight.data, self.fc1.bias.data = self.fc1.weight.data[mine].clone(), self.fc1.bias.data[mine].clone()
        self.fc2.weight.data = self.fc2.weight.data[:, mine].clone()

    def forward(self, inputs: Any) -> Any:
        from faults.parallel import Reduce

        part = F.linear(torch.tanh(self.fc1(inputs)), self.fc2.weight)
        return self.head(F.gelu(Reduce.apply(part) + self.fc2.bias))


class TensorParallel(Machines):
    """Two ranks with half of the hidden layer each, where golden has the whole on both."""

    def build(self) -> Any:
        net = Cut().train()
        net.cut(self.rank, self.setting.ranks)
        return net
