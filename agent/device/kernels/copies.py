"""Copies of many tensors with one launch, to keep the values that an optimizer step is about to change."""

import triton
import triton.language as tl

from elements import ALIGNMENT, BOOL, E4M3FN, F32, I32, U16, U32
from reductions import CHUNK, ROW, place_of

#: The number of elements that a block of threads loads at once, and the number loaded before the first is stored.
BLOCK: tl.constexpr = tl.constexpr(1024)
TILE: tl.constexpr = tl.constexpr(4096)


@triton.jit
def _copy_tile(source, target, offsets, TYPE: tl.constexpr):
    start = tl.multiple_of(source.to(tl.pointer_type(TYPE), bitcast=False), ALIGNMENT) + offsets
    end = tl.multiple_of(target.to(tl.pointer_type(TYPE), bitcast=False), ALIGNMENT) + offsets
    # Issue all loads before the first store: the compiler must assume that the tensors overlap and cannot reorder them.
    a = tl.load(start)
    b = tl.load(start + BLOCK)
    c = tl.load(start + 2 * BLOCK)
    d = tl.load(start + 3 * BLOCK)
    tl.store(end, a)
    tl.store(end + BLOCK, b)
    tl.store(end + 2 * BLOCK, c)
    tl.store(end + 3 * BLOCK, d)


@triton.jit
def _copy_some(source, target, offsets, mask, TYPE: tl.constexpr):
    values = tl.load(source.to(tl.pointer_type(TYPE), bitcast=False) + offsets, mask=mask)
    tl.store(target.to(tl.pointer_type(TYPE), bitcast=False) + offsets, values, mask=mask)


@triton.jit
def _copy_chunk(source, target, begin, end, inner, step, TYPE: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    is_aligned = (source % ALIGNMENT == 0) & (target % ALIGNMENT == 0) & (step == 0)
    for start in range(begin, end, TILE):
        if is_aligned & (start + TILE <= end):
            _copy_tile(source, target, start + lanes, TYPE)
        else:
            for part in range(start, tl.minimum(start + TILE, end), BLOCK):
                some = part + lanes
                _copy_some(source, target, place_of(some, inner, step), some < end, TYPE)


@triton.jit
def copies(table, chunks):
    """Copies a chunk of a row's first tensor into its second, which has the same layout: the bits of elements of up to
    8 bytes each."""
    place = tl.load(chunks + tl.program_id(0).to(tl.int64))
    row = table + (place >> 32) * ROW
    source = tl.load(row)
    target = tl.load(row + 1)
    begin = (place & 0xFFFFFFFF) * CHUNK
    end = tl.minimum(begin + CHUNK, tl.load(row + 2))
    code = tl.load(row + 3).to(tl.int32) & 0xFF
    inner = tl.load(row + 6)
    step = tl.load(row + 7)
    if (code == F32) | (code == I32) | (code == U32):
        _copy_chunk(source, target, begin, end, inner, step, tl.int32)
    elif code <= U16:
        _copy_chunk(source, target, begin, end, inner, step, tl.int16)
    elif (code >= E4M3FN) & (code <= BOOL):
        _copy_chunk(source, target, begin, end, inner, step, tl.int8)
    else:
        _copy_chunk(source, target, begin, end, inner, step, tl.int64)
