"""Fingerprints of tensors on a device, computed there: 64 bits each, equal for equal bytes.

A tensor's words (its elements' bits) are multiplied by odd numbers that depend on their position and added up modulo
2^64: one flipped bit changes the sum. They differ from the host's fingerprints, and are compared with those of other
devices only.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import torch

from trainmon.device.launcher import Kernels, to_device
from trainmon.device.streams import current_stream, stream_address
from trainmon.measurement.chunks import refusal
from trainmon.measurement.unobserved import quietly

#: Words that are multiplied together: two temporaries of 8 MiB.
_PIECE = 1 << 20
#: Words that a block of threads reads: a part of a piece.
_CHUNK = 1 << 15
#: The factor by which the sums of the pieces are chained.
_CHAIN = 0x5851F42D4C957F2D

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


class DeviceFingerprints:
    """Fingerprints of one watch. Keeps the factors of each device: 8 MiB, from the first use of torch's operators
    on."""

    def __init__(self, kernels: Callable[[torch.device], Kernels | None] = lambda _device: None) -> None:
        """`kernels`: those of a device, None if it has none: torch's operators compute the same numbers."""
        self._factors: dict[torch.device, torch.Tensor] = {}
        self._kernels = kernels

    def launch(self, tensors: Sequence[torch.Tensor]) -> Callable[[], list[int | None] | None]:
        """Starts computing them on the current stream of each device, and their copy to the host. The returned function
        gives them when they have arrived, and None before; it never waits. A tensor that cannot be read has None."""
        readable = [place for place, one in enumerate(tensors) if refusal(one) is None]
        arrivals = []
        for device in {tensors[place].device for place in readable}:
            places = [place for place in readable if tensors[place].device == device]
            with quietly(device.type):
                plain = [words_of(tensors[place]) for place in places]
                sums = self._sums(self._kernels(device), plain)
                arrivals.append((places, *_to_host(sums)))

        def arrived() -> list[int | None] | None:
            if not all(is_there() for _, _, is_there in arrivals):
                return None
            found: list[int | None] = [None] * len(tensors)
            for places, landed, _ in arrivals:
                for place, number in zip(places, landed.tolist(), strict=True):
                    found[place] = number & 0xFFFF_FFFF_FFFF_FFFF
            return found

        return arrived

    def _sums(self, kernels: Kernels | None, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        if kernels is not None:
            try:
                return by_kernels(kernels, tensors)
            except RuntimeError:
                # The driver refuses a launch: the operators compute the same numbers.
                pass
        return self.by_operators(tensors)

    def by_operators(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The fingerprints of tensors of one device, by their words."""
        return torch.stack([self._of(words) for words in tensors])

    def _of(self, words: torch.Tensor) -> torch.Tensor:
        """The fingerprint of one tensor's words, as a tensor without dimensions."""
        factors = self._factors_of(words.device)
        total = torch.zeros((), dtype=torch.int64, device=words.device)
        for start in range(0, words.numel(), _PIECE):
            piece = words[start : start + _PIECE].to(torch.int64)
            total = total * _CHAIN + (piece * factors[: piece.numel()]).sum()
        return total

    def _factors_of(self, device: torch.device) -> torch.Tensor:
        factors = self._factors.get(device)
        if factors is None:
            # Weyl's sequence, mixed twice. Integers wrap around.
            mixed = torch.arange(1, _PIECE + 1, dtype=torch.int64, device=device) * -0x61C8864680B583EB
            mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
            mixed = (mixed ^ (mixed >> 27)) * -0x6B2FB644ECCEEE15
            factors = self._factors[device] = mixed | 1
        return factors


def words_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bits, in order."""
    words = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    if words.is_complex():
        words = torch.view_as_real(words).view(-1)
    return words.view(_WORDS[words.element_size()])


def by_kernels(kernels: Kernels, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Two launches for all of them."""
    device = tensors[0].device
    rows, chunks = array("q"), array("q")
    count = 0
    for place, words in enumerate(tensors):
        length, width = words.numel(), words.element_size()
        rows.extend((words.data_ptr(), length, width, count))
        last = (length - 1) // _PIECE
        for chunk in range(-(-length // _CHUNK)):
            weight = pow(_CHAIN, last - chunk * _CHUNK // _PIECE, 1 << 64)
            chunks.extend((place << 32 | chunk, weight - (weight >> 63 << 64)))
            count += 1
    table = to_device(rows.tobytes() + chunks.tobytes(), device)
    sums = torch.empty(max(count, 1), dtype=torch.int64, device=device)
    found = torch.empty(len(tensors), dtype=torch.int64, device=device)
    at = table.data_ptr()
    kernels.fingerprint(
        (at, len(tensors)), (at + 8 * len(rows), count), sums.data_ptr(), found.data_ptr(), stream_address(device)
    )
    return found


def _to_host(sums: torch.Tensor) -> tuple[torch.Tensor, Callable[[], bool]]:
    """The copy, and a function that returns whether it is complete."""
    if sums.device.type != "cuda":
        landed = sums.cpu()
        return landed, lambda: True
    landed = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
    landed.copy_(sums, non_blocking=True)
    event = torch.cuda.Event()
    event.record(current_stream(sums.device))
    return landed, event.query
