"""The kernels of `agent/device/kernels`, run on the CPU by Triton's interpreter: what a device's driver would launch.

An import of Triton decides for good whether its functions are interpreted; another test of this process may need it the
other way. So the interpreted one is imported apart, and nobody else finds it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from trainmon._trainmon import DeviceTables

KERNELS = Path(__file__).resolve().parents[3] / "device" / "kernels"
_OURS = ("elements", "reductions", "fingerprint", "copies", "one")


def _is_tritons(name: str) -> bool:
    # The compiled part cannot be loaded twice.
    return (name == "triton" or name.startswith("triton.")) and not name.startswith("triton._C")


def _imported() -> dict[str, ModuleType]:
    pytest.importorskip("triton", reason="triton is not installed")
    held = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_tritons(name) or name in _OURS}
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(KERNELS))
    try:
        import copies
        import fingerprint
        import one
        import reductions
        import triton.runtime.interpreter as interpreter

        _fuse(interpreter)
        _hurry(interpreter)
        return {"copies": copies, "fingerprint": fingerprint, "one": one, "reductions": reductions}
    finally:
        sys.path.remove(str(KERNELS))
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
        for name in [name for name in sys.modules if _is_tritons(name) or name in _OURS]:
            del sys.modules[name]
        sys.modules.update(held)


def _fuse(interpreter: Any) -> None:
    """numpy has no fused multiply-add: the interpreter rounds twice, where a device rounds once. In float64 the product
    of two float32 is exact."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    plain = builder.create_fma

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if x.data.dtype != "float32":
            return plain(self, x, y, z)
        fused = x.data.astype("float64") * y.data + z.data
        return handle(fused.astype("float32"), z.dtype.scalar)

    builder.create_fma = create_fma


def _hurry(interpreter: Any) -> None:
    """Every call of a function within a kernel replaces Triton's language by the interpreter's once more, which takes
    most of the time: once per launch is enough."""
    plain, empty = interpreter._patch_lang, interpreter._LangPatchScope
    #: By the names that a function knows the language by: what its first call in this launch replaced.
    scopes: dict[frozenset[int], Any] = {}

    def patch(function: Any) -> Any:
        known = frozenset(
            id(one) for one in function.__globals__.values() if one in (interpreter.tl, interpreter.tl.core)
        )
        is_outermost = not scopes
        if known in scopes:
            return empty()
        scopes[known] = plain(function)
        if not is_outermost:
            return empty()
        end = empty()

        def restore() -> None:
            for one in reversed(scopes.values()):
                one.restore()
            scopes.clear()

        end.restore = restore
        return end

    interpreter._patch_lang = patch


_modules: dict[str, ModuleType] = {}


def kernels() -> dict[str, ModuleType]:
    """The modules, interpreted. Skips the test where Triton is not installed."""
    if not _modules:
        _modules.update(_imported())
    return _modules


def _memory(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    if count == 0:
        return torch.empty(0, dtype=dtype)
    size = count * torch.empty((), dtype=dtype).element_size()
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)


class InterpretedKernels:
    """Stands for `_trainmon.DeviceKernels`; launches what it does, with the same numbers."""

    def __init__(self) -> None:
        self._kernels = kernels()
        #: Of the driver there would have been.
        self.launches = 0

    def measure(
        self,
        table: Any,
        memory: tuple[int, int, int],
        stream: int,
        factor: float = 1.0,
        factor_at: tuple[int, bool] | None = None,
    ) -> int:
        words, found, out = memory
        return self._measure(table, (words, words + table.rows * 72, found, out), factor, factor_at)

    def measure_one(
        self,
        shown: Any,
        memory: tuple[int, int, int, int],
        room: int,
        stream: int,
        factor: float = 1.0,
        factor_at: tuple[int, bool] | None = None,
    ) -> bool:
        tables = DeviceTables()
        table, left_out = tables.of([shown])
        if left_out or table.single_chunks + table.pair_chunks > room:
            return False
        row = struct.unpack_from("9q", tables.words(table))
        self._kernels["one"].put[(1,)](_memory(memory[0], 9, torch.int64), *row)
        self.launches += 1
        self._measure(table, memory, factor, factor_at)
        return True

    def _measure(
        self, table: Any, memory: tuple[int, int, int, int], factor: float, factor_at: tuple[int, bool] | None
    ) -> int:
        reductions = self._kernels["reductions"]
        words, places, found, out = memory
        total = table.single_chunks + table.pair_chunks
        rows = _memory(words, table.rows * 9, torch.int64)
        chunks = _memory(places, total, torch.int64)
        findings = _memory(found, 9 * total, torch.float64)
        results = _memory(out, table.rows * 8, torch.float64)
        address, is_double = factor_at or (0, False)
        how = (address, 0 if factor_at is None else 1 + is_double, factor)
        launches = 0
        # Of NaN and infinities numpy warns.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for first, count, pairs in (
                (0, table.single_chunks, False),
                (table.single_chunks, table.pair_chunks, True),
            ):
                if count:
                    reductions.partial[(count,)](rows, chunks, findings, first, total, *how, pairs)
                    launches += 1
            if table.rows:
                reductions.join[(table.rows,)](rows, findings, total, results, *how)
                launches += 1
        self.launches += launches
        return launches

    def copy(self, table: Any, words: int, stream: int) -> int:
        if table.pair_chunks == 0:
            return 0
        rows = _memory(words, table.rows * 9, torch.int64)
        chunks = _memory(words + table.rows * 72 + table.single_chunks * 8, table.pair_chunks, torch.int64)
        self._kernels["copies"].copies[(table.pair_chunks,)](rows, chunks)
        self.launches += 1
        return 1

    def fingerprint(self, rows: tuple[int, int], chunks: tuple[int, int], sums: int, out: int, stream: int) -> int:
        module = self._kernels["fingerprint"]
        table, cut = _memory(rows[0], rows[1] * 4, torch.int64), _memory(chunks[0], chunks[1] * 2, torch.int64)
        found, results = _memory(sums, chunks[1], torch.int64), _memory(out, rows[1], torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            if chunks[1]:
                module.words[(chunks[1],)](table, cut, found)
            module.join_words[(rows[1],)](table, found, results)
        self.launches += 2
        return 2
