"""Reads elements of every dtype of records from an address: as float32 if that represents them exactly, else as
float64."""

import triton
import triton.language as tl

#: Codes of dtypes, equal to those in `src/code.rs`. Dtypes before `FIRST_WIDE` are exact in float32.
F32: tl.constexpr = tl.constexpr(0)
BF16: tl.constexpr = tl.constexpr(1)
F16: tl.constexpr = tl.constexpr(2)
I16: tl.constexpr = tl.constexpr(3)
U16: tl.constexpr = tl.constexpr(4)
E4M3FN: tl.constexpr = tl.constexpr(5)
E4M3FNUZ: tl.constexpr = tl.constexpr(6)
E5M2: tl.constexpr = tl.constexpr(7)
E5M2FNUZ: tl.constexpr = tl.constexpr(8)
I8: tl.constexpr = tl.constexpr(9)
U8: tl.constexpr = tl.constexpr(10)
BOOL: tl.constexpr = tl.constexpr(11)
FIRST_WIDE: tl.constexpr = tl.constexpr(12)
F64: tl.constexpr = tl.constexpr(12)
I32: tl.constexpr = tl.constexpr(13)
U32: tl.constexpr = tl.constexpr(14)
I64: tl.constexpr = tl.constexpr(15)
U64: tl.constexpr = tl.constexpr(16)
C64: tl.constexpr = tl.constexpr(17)
C128: tl.constexpr = tl.constexpr(18)

#: The alignment that vector loads require, in bytes.
ALIGNMENT: tl.constexpr = tl.constexpr(16)

_INFINITY: tl.constexpr = tl.constexpr(float("inf"))
_NAN: tl.constexpr = tl.constexpr(float("nan"))


@triton.jit
def raw(address, offsets, mask, TYPE: tl.constexpr, MASKED: tl.constexpr, ALIGNED: tl.constexpr):
    """Loads elements of the type."""
    start = address.to(tl.pointer_type(TYPE), bitcast=False)
    if ALIGNED:
        start = tl.multiple_of(start, ALIGNMENT)
    if MASKED:
        return tl.load(start + offsets, mask=mask, other=0)
    return tl.load(start + offsets)


@triton.jit
def _of_byte(raw, code):
    """A byte's value. The bits of a float8 without the sign are those of a float32 with another bias. Multiplying by a
    power of two corrects the bias exactly, for subnormal numbers too."""
    bits = raw.to(tl.int32) & 0xFF
    sign = (bits & 0x80) << 24
    rest = bits & 0x7F
    if code == E4M3FN:
        size = (rest << 20).to(tl.float32, bitcast=True) * 2.0**120
        size = tl.where(rest == 0x7F, float("nan"), size)
        x = (size.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    elif code == E5M2:
        x = (bits << 8).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    elif code == E4M3FNUZ:
        size = (rest << 20).to(tl.float32, bitcast=True) * 2.0**119
        x = (size.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
        x = tl.where(bits == 0x80, float("nan"), x)
    elif code == E5M2FNUZ:
        size = (rest << 21).to(tl.float32, bitcast=True) * 2.0**111
        x = (size.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
        x = tl.where(bits == 0x80, float("nan"), x)
    elif code == I8:
        x = raw.to(tl.float32)
    elif code == U8:
        x = bits.to(tl.float32)
    else:
        x = tl.where(bits != 0, 1.0, 0.0)
    return x


@triton.jit
def _of_half(raw, code):
    bits = raw.to(tl.int32)
    if code == BF16:
        x = (bits << 16).to(tl.float32, bitcast=True)
    elif code == F16:
        x = raw.to(tl.float16, bitcast=True).to(tl.float32)
    elif code == I16:
        x = bits.to(tl.float32)
    else:
        x = (bits & 0xFFFF).to(tl.float32)
    return x


@triton.jit
def single(address, code, offsets, mask, MASKED: tl.constexpr, ALIGNED: tl.constexpr):
    """Elements of a dtype before `FIRST_WIDE`, in float32; 0 where the mask is false."""
    if code == F32:
        x = raw(address, offsets, mask, tl.float32, MASKED, ALIGNED)
    elif code <= U16:
        x = _of_half(raw(address, offsets, mask, tl.int16, MASKED, ALIGNED), code)
    else:
        x = _of_byte(raw(address, offsets, mask, tl.int8, MASKED, ALIGNED), code)
    return x


@triton.jit
def _two(address, offsets, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    return raw(address, offsets, None, TYPE, False, True), raw(address, offsets + BLOCK, None, TYPE, False, True)


@triton.jit
def _four(address, offsets, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    a, b = _two(address, offsets, TYPE, BLOCK)
    c, d = _two(address, offsets + 2 * BLOCK, TYPE, BLOCK)
    return a, b, c, d


@triton.jit
def singles(address, code, offsets, BLOCK: tl.constexpr):
    """Like `single`, for a whole tile of four blocks at an aligned address. All four loads are issued before any value
    is converted: a conversion between two loads waits for the first, and a thread then has one load in flight, not
    four. On an H100, bfloat16 then took 2.2 times as long as a plain read."""
    if code == F32:
        a, b, c, d = _four(address, offsets, tl.float32, BLOCK)
    elif code == BF16:
        e, f, g, h = _four(address, offsets, tl.int16, BLOCK)
        a, b, c, d = _of_half(e, BF16), _of_half(f, BF16), _of_half(g, BF16), _of_half(h, BF16)
    elif code <= U16:
        e, f, g, h = _four(address, offsets, tl.int16, BLOCK)
        a, b, c, d = _of_half(e, code), _of_half(f, code), _of_half(g, code), _of_half(h, code)
    else:
        i, j, k, m = _four(address, offsets, tl.int8, BLOCK)
        a, b, c, d = _of_byte(i, code), _of_byte(j, code), _of_byte(k, code), _of_byte(m, code)
    return a, b, c, d


@triton.jit
def singles_of_two(address, code, other, other_code, offsets, BLOCK: tl.constexpr):
    """Like `singles`, for two blocks of each of two tensors: those of the first, then those of the other."""
    if (code == F32) & (other_code == F32):
        a, b = _two(address, offsets, tl.float32, BLOCK)
        c, d = _two(other, offsets, tl.float32, BLOCK)
    elif (code == BF16) & (other_code == BF16):
        e, f = _two(address, offsets, tl.int16, BLOCK)
        g, h = _two(other, offsets, tl.int16, BLOCK)
        a, b, c, d = _of_half(e, BF16), _of_half(f, BF16), _of_half(g, BF16), _of_half(h, BF16)
    else:
        a = single(address, code, offsets, None, False, True)
        b = single(address, code, offsets + BLOCK, None, False, True)
        c = single(other, other_code, offsets, None, False, True)
        d = single(other, other_code, offsets + BLOCK, None, False, True)
    return a, b, c, d


@triton.jit
def _magnitude(re, im):
    """The magnitude of a complex number, without overflow or underflow in between; NaN if either part is NaN."""
    re, im = tl.abs(re), tl.abs(im)
    large, small = tl.maximum(re, im), tl.minimum(re, im)
    ratio = tl.where(large > 0.0, small / large, 0.0)
    size = tl.where(large == _INFINITY, _INFINITY, large * tl.sqrt(1.0 + ratio * ratio))
    return tl.where((re != re) | (im != im), _NAN, size)


@triton.jit
def wide(address, code, offsets, mask):
    """Elements of any dtype in float64; 0 where the mask is false."""
    if code < FIRST_WIDE:
        x = single(address, code, offsets, mask, True, False).to(tl.float64)
    elif code == F64:
        x = raw(address, offsets, mask, tl.float64, True, False)
    elif code == I32:
        x = raw(address, offsets, mask, tl.int32, True, False).to(tl.float64)
    elif code == U32:
        x = raw(address, offsets, mask, tl.uint32, True, False).to(tl.float64)
    elif code == I64:
        x = raw(address, offsets, mask, tl.int64, True, False).to(tl.float64)
    elif code == U64:
        x = raw(address, offsets, mask, tl.uint64, True, False).to(tl.float64)
    elif code == C64:
        re = raw(address, 2 * offsets, mask, tl.float32, True, False).to(tl.float64)
        im = raw(address, 2 * offsets + 1, mask, tl.float32, True, False).to(tl.float64)
        # The magnitude of float32 parts is a float32, and their squares stay within float64's range.
        x = tl.sqrt(re * re + im * im).to(tl.float32).to(tl.float64)
    else:
        re = raw(address, 2 * offsets, mask, tl.float64, True, False)
        im = raw(address, 2 * offsets + 1, mask, tl.float64, True, False)
        x = _magnitude(re, im)
    return x
