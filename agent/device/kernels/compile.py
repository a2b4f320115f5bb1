"""Compiles the kernels for named targets, without a device. `compile.py OUTPUT` writes the crate's PTX texts, one per
kernel; `compile.py --report` prints the resources of the kernels on every target.

Requires exactly the Triton release that generated the texts: `RELEASE`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Omit line numbers: they contain the path of these files and take half of the text.
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import copies
import fingerprint
import one
import reductions

RELEASE = "3.7.1"

#: The target of the crate's PTX texts: the lowest one, in the PTX version of CUDA 12.0's driver.
CARRIED = GPUTarget("cuda", 80, 32)
PTX_VERSION = 80
TARGETS = [CARRIED, GPUTarget("cuda", 90, 32), GPUTarget("cuda", 100, 32), GPUTarget("hip", "gfx942", 64)]

#: The number of warps in a block of threads.
WARPS = 4
#: Registers per thread: four blocks then fit on an NVIDIA multiprocessor, which keeps enough loads in flight.
REGISTERS = 128
#: Registers per thread with which eight blocks fit.
FEW_REGISTERS = 64

_COMMON = {
    "table": "*i64",
    "found": "*fp64",
    "total": "i64",
    "factor": "i64",
    "factor_code": "i32",
    "factor_value": "fp64",
}
_PARTIAL = {**_COMMON, "chunks": "*i64", "first": "i64", "PAIRS": "constexpr"}


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters and compile-time constants."""

    name: str
    function: Any
    parameters: dict[str, str]
    constants: dict[str, Any]
    registers: int = REGISTERS


KERNELS = [
    Kernel("partial", reductions.partial, _PARTIAL, {"PAIRS": False}, FEW_REGISTERS),
    Kernel("partial_pairs", reductions.partial, _PARTIAL, {"PAIRS": True}),
    Kernel("join", reductions.join, {**_COMMON, "out": "*fp64"}, {}),
    Kernel("words", fingerprint.words, {"table": "*i64", "chunks": "*i64", "sums": "*i64"}, {}),
    Kernel("join_words", fingerprint.join_words, {"table": "*i64", "sums": "*i64", "out": "*i64"}, {}),
    Kernel("copies", copies.copies, {"table": "*i64", "chunks": "*i64"}, {}),
    Kernel("put", one.put, {"table": "*i64", **dict.fromkeys("abcdefghi", "i64")}, {}),
]


def compiled(kernel: Kernel, target: GPUTarget) -> Any:
    """Compiles a kernel for a target."""
    signature = {name: kernel.parameters[name] for name in kernel.function.arg_names}
    options: dict[str, Any] = {"num_warps": WARPS}
    if target.backend == "cuda":
        options["maxnreg"] = kernel.registers
    if target == CARRIED:
        options["ptx_version"] = PTX_VERSION
    source = ASTSource(fn=kernel.function, signature=signature, constexprs=kernel.constants)
    return triton.compile(source, target=target, options=options)


def carried(kernel: Kernel) -> str:
    """The PTX text of the crate; its first line has the parameters of a launch."""
    made = compiled(kernel, CARRIED)
    text = re.sub(r"//.*", "", made.asm["ptx"])
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    entry = kernel.function.__name__
    head = f"// entry {entry} shared {made.metadata.shared} threads {32 * made.metadata.num_warps}"
    return "\n".join([head, *lines]) + "\n"


def report(kernel: Kernel, target: GPUTarget) -> str:
    """Registers, spilled bytes, shared memory and size, as reported by the target's compiler."""
    made = compiled(kernel, target)
    if target.backend == "cuda":
        binary = made.asm["cubin"]
        registers, spilled = _found(r"REG:(\d+) STACK:(\d+)", _resources(binary))
    else:
        binary = made.asm["hsaco"]
        (registers,) = _found(r"\.vgpr_count:\s*(\d+)", made.asm["amdgcn"])
        (spilled,) = _found(r"\.vgpr_spill_count:\s*(\d+)", made.asm["amdgcn"])
    cells = (f"`{kernel.name}`", f"{target.backend} {target.arch}", registers, spilled, made.metadata.shared)
    return "| " + " | ".join(map(str, cells)) + f" | {len(binary) / 1024:.0f} KiB |"


def bytes_read(kernel: Kernel) -> str:
    """The bytes that a thread loads with the PTX's vector loads, per element of its share of a full tile. The loads are
    those of float32, bfloat16, other 16-bit types and, for pairs, 8-bit types, added up."""
    widths = {"v4.b32": 16, "v2.b32": 8}
    loads = re.findall(r"ld\.global\.(v[24]\.b32)", carried(kernel))
    block = reductions.BLOCK_OF_PAIRS if kernel.constants["PAIRS"] else reductions.BLOCK_OF_ONE
    elements = 4 * block.value // (32 * WARPS)
    return f"{sum(widths[one] for one in loads) / elements:g}"


def _found(pattern: str, text: str) -> list[int]:
    found = re.search(pattern, text)
    if found is None:
        sys.exit(f"error: no `{pattern}` in the compiler's output: {text[:200]}")
    return [int(one) for one in found.groups()]


def _resources(cubin: bytes) -> str:
    program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [program, "-res-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(words: list[str]) -> None:
    """Writes the PTX texts into a directory, or prints the report."""
    if triton.__version__ != RELEASE:
        sys.exit(f"error: compiling the kernels requires triton {RELEASE}, found {triton.__version__}")
    if words == ["--report"]:
        print("| kernel | target | registers | spilled, bytes | shared memory, bytes | binary |")
        print("|---|---|---|---|---|---|")
        for target in TARGETS:
            for kernel in KERNELS:
                print(report(kernel, target))
        for kernel in KERNELS[:2]:
            print(f"`{kernel.name}` reads {bytes_read(kernel)} bytes of one element of each kind")
        return
    (output,) = words
    Path(output).mkdir(parents=True, exist_ok=True)
    for kernel in KERNELS:
        (Path(output) / f"{kernel.name}.ptx").write_text(carried(kernel))


if __name__ == "__main__":
    main(sys.argv[1:])
