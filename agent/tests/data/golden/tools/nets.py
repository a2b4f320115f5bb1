"""The nets of the recorded cases: small, and between them every sort of input, output and gradient."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]


class Residual(nn.Module):
    """Whole numbers in, so that nothing goes back to the first module; a stream that several modules read."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 5)
        self.norms = nn.ModuleList(nn.LayerNorm(5) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(5, 6) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(6, 5) for _ in range(2))
        self.head = nn.Linear(5, 7)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        stream = self.tokens(numbers)
        for norm, wide, narrow in zip(self.norms, self.wide, self.narrow, strict=True):
            stream = stream + narrow(torch.tanh(wide(norm(stream))))
        return self.head(stream).flatten(0, 1)

    @staticmethod
    def batch(generator: torch.Generator) -> Batch:
        numbers = torch.randint(0, 7, (3, 4), generator=generator)
        return (numbers,), numbers.roll(1, 1).flatten()

    @staticmethod
    def loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.float(), wanted)


class Odd(nn.Module):
    """Parameters of 3, 7, 11 and 21 elements: shares that no short decimal gives."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 7, bias=False)
        self.act = nn.ReLU()
        self.second = nn.Linear(7, 11)
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.act(self.first(x * self.gain)))

    @staticmethod
    def batch(generator: torch.Generator) -> Batch:
        return (torch.randn(4, 3, generator=generator),), torch.randn(4, 11, generator=generator)

    @staticmethod
    def loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(out.float(), wanted)


class Experts(nn.Module):
    """One of two experts has each batch: the other has no gradient in this step."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(4, 5)
        self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts[int(x[0, 0] > 0)](torch.sigmoid(self.lift(x)))

    @staticmethod
    def batch(generator: torch.Generator) -> Batch:
        return (torch.randn(4, 4, generator=generator),), torch.randint(0, 3, (4,), generator=generator)

    @staticmethod
    def loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.float(), wanted)


class Mixer(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 6))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return one * self.weight + other, one - other * self.weight


class Pair(nn.Module):
    """Tuples cross a module's border, and one input of it needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 6, 3, padding=1)
        self.mixer = Mixer()
        self.out = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        hidden = self.conv(x).transpose(1, 2)
        one, other = self.mixer(hidden, shift)
        return self.out(functional.silu(one) + other).mean(1)

    @staticmethod
    def batch(generator: torch.Generator) -> Batch:
        x, shift = torch.randn(2, 2, 5, generator=generator), torch.randn(2, 5, 6, generator=generator)
        return (x, shift), torch.randint(0, 2, (2,), generator=generator)

    @staticmethod
    def loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.float(), wanted)


NETS = {"residual": Residual, "odd": Odd, "experts": Experts, "pair": Pair}
