"""Writes a table of one row with a launch, without a transfer to the device."""

import triton
import triton.language as tl


@triton.jit
def put(table, a, b, c, d, e, f, g, h, i):
    """Writes the words of a row into a table."""
    tl.store(table, a)
    tl.store(table + 1, b)
    tl.store(table + 2, c)
    tl.store(table + 3, d)
    tl.store(table + 4, e)
    tl.store(table + 5, f)
    tl.store(table + 6, g)
    tl.store(table + 7, h)
    tl.store(table + 8, i)
