"""Every statistic of every tensor of a table in one read: `partial` per chunk of a tensor, `join` per tensor.

The rules are those of the host's kernels (`agent/stats/src/lib.rs`, "What the numbers mean"). Elements that float32
represents exactly are summed in float32, with the rounding errors in a second float32: that is fast even on cards that
are slow in float64. A chunk's lanes are added up in float64. A chunk is read a second time, in float64 and from the
cache, only if it contains NaN or infinities, its squares leave float32's range, or its deviation is small relative to
its mean. The order of additions is fixed, so results are bitwise equal from run to run."""

import triton
import triton.language as tl

from elements import ALIGNMENT, FIRST_WIDE, single, singles, singles_of_two, wide

#: The number of elements in a chunk; `src/table.rs` cuts tensors by it.
CHUNK: tl.constexpr = tl.constexpr(32768)
#: The number of elements that a block of threads holds at once, of one tensor and of pairs; four times as many are
#: loaded together. It is smaller for one tensor, so that eight blocks fit on a multiprocessor. An H100 read 1e9
#: elements of bfloat16 in 0.81 ms; with 1024 elements and four blocks, in 0.92 ms. float32 is limited by memory either
#: way: 0.68 and 0.66 ms for 5e8. Chunks of twice the size take 0.78 ms, but 1.5 times as long for a layer's tensor of
#: 8e6 elements.
BLOCK_OF_ONE: tl.constexpr = tl.constexpr(512)
BLOCK_OF_PAIRS: tl.constexpr = tl.constexpr(1024)
#: The number of elements that a block holds at once in float64.
SLOW_BLOCK: tl.constexpr = tl.constexpr(256)
#: The number of chunks that are joined at once.
JOINED: tl.constexpr = tl.constexpr(256)

#: The number of words in a row of the table and in a row of results; `src/table.rs` has their meaning.
ROW: tl.constexpr = tl.constexpr(9)
COLUMNS: tl.constexpr = tl.constexpr(8)

#: The measured quantity of a row with two addresses.
DIFFERENCE: tl.constexpr = tl.constexpr(1)
AGREEMENT: tl.constexpr = tl.constexpr(2)

_WANTS_ZEROS: tl.constexpr = tl.constexpr(1)
_WANTS_STD: tl.constexpr = tl.constexpr(2)

_INFINITY: tl.constexpr = tl.constexpr(float("inf"))
_NAN: tl.constexpr = tl.constexpr(float("nan"))
#: The share of the sum of squares below which subtraction gives no accurate centred sum: from two float32, and from
#: float64.
_ILL_SINGLE: tl.constexpr = tl.constexpr(1e-4)
_ILL_WIDE: tl.constexpr = tl.constexpr(1e-7)
#: Limits of magnitudes whose squares leave the normal range: smaller ones in float32, smaller and larger ones in
#: float64.
_TINY_SINGLE: tl.constexpr = tl.constexpr(1e-15)
_TINY_WIDE: tl.constexpr = tl.constexpr(1e-140)
_HUGE_WIDE: tl.constexpr = tl.constexpr(1e140)


@triton.jit
def _change_or_agreement(before, after, mode):
    """`after - before`, or for agreement: 1 if the signs agree, -1 if they disagree, 0 if either value is 0 or NaN."""
    if mode == DIFFERENCE:
        x = after - before
    else:
        up = ((before > 0.0) & (after > 0.0)) | ((before < 0.0) & (after < 0.0))
        down = ((before > 0.0) & (after < 0.0)) | ((before < 0.0) & (after > 0.0))
        x = tl.where(up, 1.0, tl.where(down, -1.0, 0.0)).to(before.dtype)
    return x


@triton.jit
def _some(address, other, codes, offsets, mask, PAIRS: tl.constexpr):
    x = single(address, codes & 0xFF, offsets, mask, True, False)
    if PAIRS:
        x = _change_or_agreement(single(other, (codes >> 8) & 0xFF, offsets, mask, True, False), x, codes >> 16 & 0xFF)
    return x


@triton.jit
def _half_tile(address, other, codes, offsets, BLOCK: tl.constexpr):
    a, b, c, d = singles_of_two(address, codes & 0xFF, other, (codes >> 8) & 0xFF, offsets, BLOCK)
    mode = codes >> 16 & 0xFF
    return _change_or_agreement(c, a, mode), _change_or_agreement(d, b, mode)


@triton.jit
def _tile(address, other, codes, offsets, PAIRS: tl.constexpr, BLOCK: tl.constexpr):
    """Four blocks, at aligned addresses."""
    if PAIRS:
        a, b = _half_tile(address, other, codes, offsets, BLOCK)
        c, d = _half_tile(address, other, codes, offsets + 2 * BLOCK, BLOCK)
    else:
        a, b, c, d = singles(address, codes & 0xFF, offsets, BLOCK)
    return a, b, c, d


@triton.jit
def _wides(address, other, codes, offsets, mask, PAIRS: tl.constexpr):
    x = wide(address, codes & 0xFF, offsets, mask)
    if PAIRS:
        before = wide(other, (codes >> 8) & 0xFF, offsets, mask)
        if tl.maximum(codes & 0xFF, (codes >> 8) & 0xFF) < FIRST_WIDE:
            # Computed in float32, as on the host.
            x = _change_or_agreement(before.to(tl.float32), x.to(tl.float32), codes >> 16 & 0xFF).to(tl.float64)
        else:
            x = _change_or_agreement(before, x, codes >> 16 & 0xFF)
    return x


@triton.jit
def _add(x, total, lost):
    """A sum and its exact rounding error (Knuth's two-sum)."""
    t = total + x
    part = t - total
    return t, lost + ((total - (t - part)) + (x - part))


@triton.jit
def _add_square(x, total, lost):
    """Like `_add`, for `x * x`, which is not rounded before it is added. It uses `fma` explicitly: the compiler would
    fuse some products and sums and not others, and count a rounding error twice (as seen on an H100)."""
    t = tl.fma(x, x, total)
    part = t - total
    return t, lost + ((total - (t - part)) + tl.fma(x, x, -part))


@triton.jit
def _include(x, sums, lost, squares, lost_squares):
    """Adds elements to the lanes' sums, and the rounding errors to the sums of errors."""
    sums, lost = _add(x, sums, lost)
    squares, lost_squares = _add_square(x, squares, lost_squares)
    return sums, lost, squares, lost_squares


@triton.jit
def _at_least(bound):
    """The least float32 that is not below a bound: for a float32 x, |x| is below both or neither."""
    near = bound.to(tl.float32)
    next_up = (near.to(tl.int32, bitcast=True) + 1).to(tl.float32, bitcast=True)
    return tl.where((near.to(tl.float64) < bound) & (near >= 0.0), next_up, near)


@triton.jit
def _least(x, y):
    return tl.where(y < x, y, x)


@triton.jit
def _largest(x, y):
    return tl.where(y > x, y, x)


@triton.jit
def _power_below(size):
    """The largest power of two that is not above a positive number, at least float64's smallest normal number."""
    exponent = (size.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    return (tl.maximum(exponent, 1) << 52).to(tl.float64, bitcast=True)


@triton.jit
def place_of(offsets, inner, step):
    """The memory offsets of elements: groups of `inner` adjacent elements, `step` elements from start to start."""
    if step == 0:
        at = offsets
    else:
        at = (offsets // inner) * step + offsets % inner
    return at


@triton.jit
def partial(table, chunks, found, first, total, factor, factor_code, factor_value, PAIRS: tl.constexpr):
    """Writes one chunk's results into column `chunk` of `found`, float64 of shape `(9, total)`: min, max, sum, squares,
    centred squares, NaN, infinities, zeros, and the unit of the squares (a power of two, squared)."""
    block: tl.constexpr = BLOCK_OF_PAIRS if PAIRS else BLOCK_OF_ONE
    tile: tl.constexpr = 4 * block
    chunk = first + tl.program_id(0)
    place = tl.load(chunks + chunk)
    row = table + (place >> 32) * ROW
    begin = (place & 0xFFFFFFFF) * CHUNK
    address = tl.load(row)
    other = tl.load(row + 1)
    elements = tl.load(row + 2)
    codes = tl.load(row + 3).to(tl.int32)
    wants = codes >> 24
    bound = tl.load(row + 5).to(tl.float64, bitcast=True)
    inner = tl.load(row + 6)
    step = tl.load(row + 7)
    if factor_code == 1:
        bound = bound / tl.load(factor.to(tl.pointer_type(tl.float32))).to(tl.float64)
    elif factor_code == 2:
        bound = bound / tl.load(factor.to(tl.pointer_type(tl.float64)))
    elif factor_value != 0.0:
        bound = bound / factor_value
    end = tl.minimum(begin + CHUNK, elements)
    count = (end - begin).to(tl.float64)

    is_wide = (codes & 0xFF) >= FIRST_WIDE
    is_aligned = (address % ALIGNMENT == 0) & (step == 0)
    if PAIRS:
        is_wide = is_wide | (((codes >> 8) & 0xFF) >= FIRST_WIDE)
        is_aligned = is_aligned & (other % ALIGNMENT == 0)

    least = tl.full((), _INFINITY, tl.float64)
    most = tl.full((), -_INFINITY, tl.float64)
    sum_ = tl.full((), 0.0, tl.float64)
    squares = tl.full((), 0.0, tl.float64)
    centred = tl.full((), 0.0, tl.float64)
    nans = tl.full((), 0, tl.int64)
    infs = tl.full((), 0, tl.int64)
    zeros = tl.full((), 0, tl.int64)
    unit = tl.full((), 1.0, tl.float64)
    pivot = tl.full((), 0.0, tl.float64)
    again = is_wide

    if not is_wide:
        limit = _at_least(bound)
        lanes = tl.arange(0, block)
        s = tl.zeros((block,), tl.float32)
        s_lost = tl.zeros((block,), tl.float32)
        q = tl.zeros((block,), tl.float32)
        q_lost = tl.zeros((block,), tl.float32)
        low = tl.full((block,), _INFINITY, tl.float32)
        high = tl.full((block,), -_INFINITY, tl.float32)
        none = tl.zeros((block,), tl.int32)
        for start in range(begin, end, tile):
            offsets = start + lanes
            if is_aligned & (start + tile <= end):
                a, b, c, d = _tile(address, other, codes, offsets, PAIRS, block)
                s, s_lost, q, q_lost = _include(a, s, s_lost, q, q_lost)
                s, s_lost, q, q_lost = _include(b, s, s_lost, q, q_lost)
                s, s_lost, q, q_lost = _include(c, s, s_lost, q, q_lost)
                s, s_lost, q, q_lost = _include(d, s, s_lost, q, q_lost)
                low = tl.minimum(tl.minimum(low, tl.minimum(a, b)), tl.minimum(c, d))
                high = tl.maximum(tl.maximum(high, tl.maximum(a, b)), tl.maximum(c, d))
                if wants & _WANTS_ZEROS:
                    none += (tl.abs(a) < limit).to(tl.int32) + (tl.abs(b) < limit).to(tl.int32)
                    none += (tl.abs(c) < limit).to(tl.int32) + (tl.abs(d) < limit).to(tl.int32)
            else:
                for part in range(start, tl.minimum(start + tile, end), block):
                    some = part + lanes
                    mask = some < end
                    at = place_of(some, inner, step)
                    x = _some(address, other, codes, at, mask, PAIRS)
                    s, s_lost, q, q_lost = _include(x, s, s_lost, q, q_lost)
                    low = tl.minimum(low, tl.where(mask, x, _INFINITY))
                    high = tl.maximum(high, tl.where(mask, x, -_INFINITY))
                    none += (mask & (tl.abs(x) < limit)).to(tl.int32)
        least = tl.min(low, 0).to(tl.float64)
        most = tl.max(high, 0).to(tl.float64)
        sum_ = tl.sum(s.to(tl.float64) + s_lost.to(tl.float64), 0)
        squares = tl.sum(q.to(tl.float64) + q_lost.to(tl.float64), 0)
        zeros = tl.sum(none, 0).to(tl.int64)
        centred = squares - sum_ * (sum_ / count)
        size = _largest(tl.abs(least), tl.abs(most))
        is_finite = squares < _INFINITY
        again = (not is_finite) | ((size < _TINY_SINGLE) & (size > 0.0))
        again = again | (((wants & _WANTS_STD) != 0) & (centred <= squares * _ILL_SINGLE) & (squares > 0.0))
        if is_finite:
            pivot = sum_ / count

    passes = 0
    while again:
        lanes = tl.arange(0, SLOW_BLOCK)
        per_unit = 1.0 / unit
        centre = pivot * per_unit
        s = tl.zeros((SLOW_BLOCK,), tl.float64)
        q = tl.zeros((SLOW_BLOCK,), tl.float64)
        away = tl.zeros((SLOW_BLOCK,), tl.float64)
        away_squares = tl.zeros((SLOW_BLOCK,), tl.float64)
        low = tl.full((SLOW_BLOCK,), _INFINITY, tl.float64)
        high = tl.full((SLOW_BLOCK,), -_INFINITY, tl.float64)
        nan_ = tl.zeros((SLOW_BLOCK,), tl.int32)
        inf_ = tl.zeros((SLOW_BLOCK,), tl.int32)
        none = tl.zeros((SLOW_BLOCK,), tl.int32)
        for start in range(begin, end, SLOW_BLOCK):
            offsets = start + lanes
            mask = offsets < end
            x = _wides(address, other, codes, place_of(offsets, inner, step), mask, PAIRS)
            nan_ += (x != x).to(tl.int32)
            inf_ += (tl.abs(x) == _INFINITY).to(tl.int32)
            none += (mask & (tl.abs(x) < bound)).to(tl.int32)
            low = _least(low, tl.where(mask, x, _INFINITY))
            high = _largest(high, tl.where(mask, x, -_INFINITY))
            s += x
            scaled = x * per_unit
            q += scaled * scaled
            distance = tl.where(mask, scaled - centre, 0.0)
            away += distance
            away_squares += distance * distance
        least = tl.min(low, 0)
        most = tl.max(high, 0)
        sum_ = tl.sum(s, 0)
        squares = tl.sum(q, 0)
        nans = tl.sum(nan_, 0).to(tl.int64)
        infs = tl.sum(inf_, 0).to(tl.int64)
        zeros = tl.sum(none, 0).to(tl.int64)
        apart = tl.sum(away, 0)
        apart_squares = tl.sum(away_squares, 0)
        centred = tl.maximum(apart_squares - apart * (apart / count), 0.0)
        passes += 1
        size = _largest(tl.abs(least), tl.abs(most))
        is_plain = (nans == 0) & (infs == 0)
        is_extreme = (unit == 1.0) & (size > 0.0) & ((size < _TINY_WIDE) | (size > _HUGE_WIDE))
        is_ill = ((wants & _WANTS_STD) != 0) & (centred <= apart_squares * _ILL_WIDE) & (apart_squares > 0.0)
        again = is_plain & (is_extreme | is_ill) & (passes < 3)
        if again:
            unit = tl.where(is_extreme, _power_below(size), unit)
            pivot = tl.where(tl.abs(sum_) < _INFINITY, sum_ / count, 0.0)

    tl.store(found + chunk, least)
    tl.store(found + total + chunk, most)
    tl.store(found + 2 * total + chunk, sum_)
    tl.store(found + 3 * total + chunk, squares)
    tl.store(found + 4 * total + chunk, centred)
    tl.store(found + 5 * total + chunk, nans.to(tl.float64))
    tl.store(found + 6 * total + chunk, infs.to(tl.float64))
    tl.store(found + 7 * total + chunk, zeros.to(tl.float64))
    tl.store(found + 8 * total + chunk, unit)


@triton.jit
def join(table, found, total, out, factor, factor_code, factor_value):
    """Combines the results of a tensor's chunks, in their order, into its row of results."""
    number = tl.program_id(0).to(tl.int64)
    row = table + number * ROW
    elements = tl.load(row + 2)
    codes = tl.load(row + 3).to(tl.int32)
    first = tl.load(row + 4)
    #: How often each element counts.
    times = tl.load(row + 8).to(tl.float64)
    chunks = (elements + CHUNK - 1) // CHUNK
    lanes = tl.arange(0, JOINED)

    low = tl.full((JOINED,), _INFINITY, tl.float64)
    high = tl.full((JOINED,), -_INFINITY, tl.float64)
    s = tl.zeros((JOINED,), tl.float64)
    nan_ = tl.zeros((JOINED,), tl.float64)
    inf_ = tl.zeros((JOINED,), tl.float64)
    none = tl.zeros((JOINED,), tl.float64)
    units = tl.zeros((JOINED,), tl.float64)
    for start in range(0, chunks, JOINED):
        mask = start + lanes < chunks
        at = found + first + start + lanes
        low = _least(low, tl.load(at, mask=mask, other=_INFINITY))
        high = _largest(high, tl.load(at + total, mask=mask, other=-_INFINITY))
        s += tl.load(at + 2 * total, mask=mask, other=0.0)
        nan_ += tl.load(at + 5 * total, mask=mask, other=0.0)
        inf_ += tl.load(at + 6 * total, mask=mask, other=0.0)
        none += tl.load(at + 7 * total, mask=mask, other=0.0)
        units = _largest(units, tl.load(at + 8 * total, mask=mask, other=0.0))
    least = tl.min(low, 0)
    most = tl.max(high, 0)
    nans = tl.sum(nan_, 0)
    infs = tl.sum(inf_, 0)
    zeros = tl.sum(none, 0)
    unit = tl.max(units, 0)
    count = elements.to(tl.float64)
    mean = tl.sum(s, 0) / count

    # The deviation within each chunk around its mean, and of the chunks' means around the mean of all.
    q = tl.zeros((JOINED,), tl.float64)
    spread = tl.zeros((JOINED,), tl.float64)
    for start in range(0, chunks, JOINED):
        part = start + lanes
        mask = part < chunks
        at = found + first + part
        size = tl.minimum(elements - part * CHUNK, CHUNK).to(tl.float64)
        share = tl.load(at + 8 * total, mask=mask, other=0.0) / unit
        q += tl.load(at + 3 * total, mask=mask, other=0.0) * share * share
        away = (tl.load(at + 2 * total, mask=mask, other=0.0) / size - mean) / unit
        within = tl.load(at + 4 * total, mask=mask, other=0.0) * share * share
        spread += tl.where(mask, within + size * away * away, 0.0)
    all_ = count * times
    norm = unit * tl.sqrt(tl.sum(q, 0) * times)
    deviation = unit * tl.sqrt(tl.sum(spread, 0) * times / (all_ - 1.0))
    norm = tl.where(infs > 0.0, _INFINITY, norm)
    deviation = tl.where((infs > 0.0) | (all_ < 2.0), _NAN, deviation)
    has_nan = nans > 0.0

    if (codes >> 16 & 0xFF) == AGREEMENT:
        # 1 everywhere, 0 nowhere.
        least = (mean + 1.0) / 2.0
    scale = tl.full((), 1.0, tl.float64)
    if factor_code == 1:
        scale = tl.load(factor.to(tl.pointer_type(tl.float32))).to(tl.float64)
    elif factor_code == 2:
        scale = tl.load(factor.to(tl.pointer_type(tl.float64)))
    else:
        scale = factor_value
    at = out + number * COLUMNS
    tl.store(at, tl.where(has_nan, _NAN, least * scale))
    tl.store(at + 1, tl.where(has_nan, _NAN, most * scale))
    tl.store(at + 2, tl.where(has_nan, _NAN, mean * scale))
    tl.store(at + 3, tl.where(has_nan, _NAN, norm * scale))
    tl.store(at + 4, tl.where(has_nan, _NAN, deviation * scale))
    tl.store(at + 5, nans * times)
    tl.store(at + 6, infs * times)
    tl.store(at + 7, zeros * times)
