"""Values of every kind that a module may be given, and what a dump says of some."""

from __future__ import annotations

import collections
import dataclasses
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch


@dataclasses.dataclass
class Pair:
    u: torch.Tensor
    v: int


Named = collections.namedtuple("Named", "p q")  # noqa: PYI024


def odd_values() -> dict[str, Any]:
    import numpy as np

    x = torch.arange(4.0)
    loop: list[Any] = [1]
    loop.append(loop)
    return {
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "quantized": torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        "uint16": torch.tensor([1, 2], dtype=torch.uint16),
        "fnuz": x.to(torch.float8_e4m3fnuz),
        "e8m0": x.to(torch.float8_e8m0fnu) if hasattr(torch, "float8_e8m0fnu") else None,
        "meta": torch.ones(2, device="meta"),
        "conj": torch.tensor([1 + 2j]).conj(),
        "many dims": torch.ones([1] * 12),
        "freed": _freed(),
        "numpy scalars": [np.float32(1.5), np.int64(3), np.complex64(1j), np.bool_(True), np.str_("abc")],
        "arrays": [np.arange(3.0), np.array(["a"]), np.ones((2, 2))[:, ::-1], np.zeros(0)],
        "tuple keys": {(1, 2): x, 3: "three", None: 1},
        "key with spaces/and slashes": x,
        "x" * 300: x,
        "data class": Pair(x, 1),
        "named": Named(x, 2),
        "loop": loop,
        "complex": 1 + 2j,
        "bytes": b"xx",
        "huge": 10**40,
        "object": object(),
        "slice": slice(torch.tensor(1), np.int64(3), None),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "size": torch.Size([2, 3]),
        "format": torch.channels_last,
        "raising": Raises(),
        "nan": float("nan"),
        "surrogate": "\ud800",
    }


class Raises:
    """Whose every attribute raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")


def _freed() -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


NUMBERS = ("Max", "Min", "Mean", "Norm")
NOTHING = (None,) * 4
COUNTED = (3.0, 0.0, 1.5, pytest.approx(14**0.5))
ONES = (1.0, 1.0, 1.0, pytest.approx(5**0.5))
#: Of tensors that have no plain memory, or a name that is no file's: dtype, shape, numbers and elements.
DESCRIBED: dict[str, tuple[str, list[int], tuple[Any, ...], torch.Tensor | None]] = {
    "csr": ("float32", [3, 3], NOTHING, None),
    "nested": ("float32", [], ONES, torch.ones(5)),
    "jagged": ("float32", [], ONES, torch.ones(5)),
    "quantized": ("quint8", [4], COUNTED, torch.arange(4.0)),
    "fnuz": ("float8_e4m3fnuz", [4], COUNTED, torch.arange(4.0).to(torch.float8_e4m3fnuz)),
    "e8m0": ("float8_e8m0fnu", [4], NOTHING, None),
    "freed": ("float32", [4], NOTHING, None),
    "key with spaces/and slashes": ("float32", [4], COUNTED, torch.arange(4.0)),
    "x" * 300: ("float32", [4], COUNTED, torch.arange(4.0)),
}


def check_described(name: str, entry: dict[str, Any], files: Path | None) -> None:
    """The entry of a tensor of `DESCRIBED`, and its file where files are written."""
    dtype, shape, numbers, elements = DESCRIBED[name]
    kind = "torch.nested._internal.nested_tensor.NestedTensor" if name == "jagged" else "torch.Tensor"
    assert (entry["type"], entry["dtype"], entry["shape"]) == (kind, f"torch.{dtype}", shape), name
    assert tuple(entry[number] for number in NUMBERS) == numbers, name
    assert entry["requires_grad"] is False
    raw = None if elements is None else elements.view(torch.uint8).numpy().tobytes()
    assert entry["md5"] == (None if raw is None else f"{zlib.crc32(raw):08x}"), name
    assert ("data_name" in entry) == (files is not None and elements is not None), name
    if files is not None and elements is not None:
        loaded = torch.load(files / entry["data_name"], weights_only=True)
        assert loaded.dtype == elements.dtype, name
        assert loaded.view(torch.uint8).numpy().tobytes() == raw, name
