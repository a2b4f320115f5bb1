"""Ways that the elements of a tensor lie in memory."""

from __future__ import annotations

import math

import torch

#: Of a tensor of 6 x 8: what the kernels for devices can walk through.
READABLE = {
    "transposed": lambda x: x.t(),
    "rows": lambda x: x[2:],
    "permuted": lambda x: x.view(2, 3, 8).permute(2, 0, 1),
    "every second": lambda x: x[:, ::2][:, :1],
    "gaps": lambda x: x[:, 1:],
    "chunk": lambda x: x.chunk(2, dim=-1)[1],
    "expanded": lambda x: x[:1].expand(6, 8),
    "expanded gaps": lambda x: x[:, 3:5].unsqueeze(0).expand(5, 6, 2),
    "one expanded": lambda x: x[0, 0].expand(70),
    "many expanded with NaN and zeros": lambda x: torch.tensor([0.0, math.nan]).expand(3, 2),
}
