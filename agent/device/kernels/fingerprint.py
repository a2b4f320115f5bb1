"""A fingerprint of 64 bits per tensor, equal for equal bytes: the sum modulo 2^64 of its words (the elements' bits)
times odd factors that depend on the word's index. `trainmon/device/fingerprints.py` has the same factors and explains
them."""

import triton
import triton.language as tl

from elements import ALIGNMENT, raw
from reductions import CHUNK, JOINED

#: The number of words in a piece; the index restarts at 0 in each.
PIECE: tl.constexpr = tl.constexpr(1 << 20)
BLOCK: tl.constexpr = tl.constexpr(1024)
#: The number of words in a row of the table.
ROW: tl.constexpr = tl.constexpr(4)


@triton.jit
def _words(address, width, offsets, mask, MASKED: tl.constexpr):
    if width == 1:
        words = _load(address, offsets, mask, tl.uint8, MASKED)
    elif width == 2:
        words = _load(address, offsets, mask, tl.int16, MASKED)
    elif width == 4:
        words = _load(address, offsets, mask, tl.int32, MASKED)
    else:
        words = _load(address, offsets, mask, tl.int64, MASKED)
    return words


@triton.jit
def _load(address, offsets, mask, TYPE: tl.constexpr, MASKED: tl.constexpr):
    return raw(address, offsets, mask, TYPE, MASKED, not MASKED).to(tl.int64)


@triton.jit
def _factors(offsets):
    """Weyl sequence, mixed twice and made odd."""
    mixed = (offsets % PIECE + 1) * -0x61C8864680B583EB
    mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
    mixed = (mixed ^ (mixed >> 27)) * -0x6B2FB644ECCEEE15
    return mixed | 1


@triton.jit
def words(table, chunks, sums):
    """A chunk's sum times the factor of its piece."""
    chunk = tl.program_id(0).to(tl.int64)
    place = tl.load(chunks + 2 * chunk)
    weight = tl.load(chunks + 2 * chunk + 1)
    row = table + (place >> 32) * ROW
    address = tl.load(row)
    count = tl.load(row + 1)
    width = tl.load(row + 2)
    begin = (place & 0xFFFFFFFF) * CHUNK
    end = tl.minimum(begin + CHUNK, count)
    is_aligned = address % ALIGNMENT == 0
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int64)
    for start in range(begin, end, BLOCK):
        offsets = (start + lanes).to(tl.int64)
        if is_aligned & (start + BLOCK <= end):
            total += _words(address, width, offsets, None, False) * _factors(offsets)
        else:
            total += _words(address, width, offsets, offsets < end, True) * _factors(offsets)
    tl.store(sums + chunk, tl.sum(total, 0) * weight)


@triton.jit
def join_words(table, sums, out):
    """A tensor's fingerprint: the total of its chunks' sums."""
    number = tl.program_id(0).to(tl.int64)
    row = table + number * ROW
    chunks = (tl.load(row + 1) + CHUNK - 1) // CHUNK
    at = sums + tl.load(row + 3)
    lanes = tl.arange(0, JOINED)
    total = tl.zeros((JOINED,), tl.int64)
    for start in range(0, chunks, JOINED):
        total += tl.load(at + start + lanes, mask=start + lanes < chunks, other=0)
    tl.store(out + number, tl.sum(total, 0))
