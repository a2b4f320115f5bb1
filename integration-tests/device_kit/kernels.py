"""A kernel that reads memory and does next to nothing else: how fast a card can be read at all.

It is imported on a CUDA device only, for it needs Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from device_kit.rates import Way

#: What is tried: elements that a program reads at a time, its warps, and programs per multiprocessor. A thread has four
#: or eight loads of 16 bytes under way.
WAYS = (Way(2048, 4, 8), Way(4096, 8, 4), Way(4096, 4, 8), Way(8192, 8, 4))


@triton.jit
def _read(source: tl.tensor, sums: tl.tensor, rounds: tl.tensor, BLOCK: tl.constexpr) -> None:  # noqa: N803  Triton's spelling
    program = tl.program_id(0)
    step = tl.num_programs(0) * BLOCK
    place = program * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for _ in range(rounds):
        total += tl.load(source + place)
        place += step
    # Without it nothing would have to be read.
    tl.store(sums + program, tl.sum(total, axis=0))


class Reader:
    """Reads the front of a buffer of int32 that holds at most 2^31 - 1 of them, once per call."""

    def __init__(self, buffer: torch.Tensor, way: Way) -> None:
        """`buffer` is contiguous, and larger than one round of all programs."""
        processors = torch.cuda.get_device_properties(buffer.device).multi_processor_count
        self._programs, self._way = processors * way.per_processor, way
        self._rounds = buffer.numel() // (self._programs * way.block)
        self._buffer = buffer[: self._rounds * self._programs * way.block]
        self._sums = torch.zeros(self._programs, dtype=torch.int32, device=buffer.device)

    @property
    def nbytes(self) -> int:
        """What one call reads."""
        return self._buffer.nbytes

    def __call__(self) -> None:
        """Queues one pass on the current stream."""
        grid = (self._programs,)
        _read[grid](self._buffer, self._sums, self._rounds, BLOCK=self._way.block, num_warps=self._way.warps)

    def has_read_all(self) -> bool:
        """Whether the last pass added up what torch does. Waits for the device."""
        modulus = 1 << 32
        return int(self._sums.sum(dtype=torch.int64)) % modulus == int(self._buffer.sum(dtype=torch.int64)) % modulus
