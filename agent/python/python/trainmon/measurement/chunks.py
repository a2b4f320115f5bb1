"""Tensors cut into pieces of bounded size, without a copy of any tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

#: Elements of a piece: its float64 copy takes 32 MiB, the largest temporary.
PIECE = 4 << 20


def pieces(tensors: Sequence[torch.Tensor], largest: int = PIECE) -> Iterator[Sequence[torch.Tensor]]:
    """Views that together hold every element once; several tensors of one shape are cut alike, element by element.

    A tensor without gaps is read in the order of memory, whatever its strides: no statistic depends on the order.
    """
    first = tensors[0]
    layout = first.stride()
    if first.numel() <= largest:
        yield tensors
    elif all(one.stride() == layout and _is_plain(one) for one in tensors):
        count = first.numel()
        flat = [torch.as_strided(one, (count,), (1,)) for one in tensors]
        for start in range(0, count, largest):
            size = min(largest, count - start)
            yield [one.narrow(0, start, size) for one in flat]
    else:
        yield from _split(tensors, largest)


def _split(tensors: Sequence[torch.Tensor], largest: int) -> Iterator[Sequence[torch.Tensor]]:
    shape = tensors[0].shape
    widest = max(range(len(shape)), key=lambda dim: shape[dim])
    share = -(-tensors[0].numel() // largest)
    size = max(1, shape[widest] // share)
    for start in range(0, shape[widest], size):
        length = min(size, shape[widest] - start)
        yield from pieces([one.narrow(widest, start, length) for one in tensors], largest)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, and without lazy conjugation."""
    if tensor.is_conj() or tensor.is_neg():
        return False
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def exact(piece: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The values in float64, and whether that is a writable copy. For complex numbers the magnitudes, NaN if either
    part is."""
    if piece.dtype == torch.float64:
        return piece, False
    if piece.is_complex():
        wide = piece.to(torch.complex128)
        size = wide.abs()
        return size.masked_fill_(wide.isnan(), float("nan")), True
    return piece.to(torch.float64), True


#: The dtypes that records support, by torch's names; a torch without one has no tensors of it.
MEASURABLE = frozenset(
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
        *("float8_e5m2fnuz", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
        *("complex64", "complex128"),
    )
    if hasattr(torch, name)
)


def refusal(tensor: torch.Tensor) -> str | None:
    """The reason why a tensor cannot be measured; None if it can. A storage that was freed or cut short (by FSDP
    between uses, for example) must not be read: on a device that ends the process."""
    if tensor.layout != torch.strided:
        return f"only strided tensors can be measured; this one is `{tensor.layout}`"
    if tensor.dtype not in MEASURABLE:
        return f"elements of type `{tensor.dtype}` cannot be measured"
    if tensor.device.type == "meta":
        return "a tensor on `meta` has no memory"
    if tensor.numel() == 0:
        return None
    # The usual case first: a hook calls this for each tensor.
    if tensor.is_contiguous():
        reach = tensor.numel() - 1
    else:
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + reach + 1) * tensor.element_size()
    held = tensor.untyped_storage().nbytes()
    if needed > held:
        return f"the tensor's storage has {held} of the required {needed} bytes: it was freed or resized"
    return None
