"""Writes the corpus beside this file: `python generate.py`, with torch, numpy and safetensors.

Each file holds tensors whose elements are known from `expected.json`: flat numbers by tensor name, complex numbers as
real, imaginary. NaN and infinities are strings there.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import pathlib
from typing import Any

import numpy as np
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent / "corpus"
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]
expected: dict[str, dict[str, Any]] = {}


def number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def facts(tensor: torch.Tensor) -> dict[str, Any]:
    wide = tensor.detach().contiguous()
    wide = torch.view_as_real(wide.to(torch.complex128)) if wide.is_complex() else wide.to(torch.float64)
    numbers = [number(value) for value in wide.flatten().tolist()]
    return {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "numbers": numbers}


def note(file: str, tensors: dict[str, torch.Tensor]) -> None:
    expected[file] = {name: facts(tensor) for name, tensor in tensors.items()}


def save(file: str, content: Any, tensors: dict[str, torch.Tensor], **options: Any) -> None:
    torch.save(content, HERE / file, **options)
    note(file, tensors)


def of_dtype(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([[True, False, True], [False, True, True]])
    if dtype.is_complex:
        return torch.tensor([[1 + 2j, -0.5j, 3], [0, 1e-3, -7.25j]], dtype=dtype)
    if dtype.is_floating_point:
        return torch.tensor([[1.0, -2.5, 0.0], [448.0, 0.015625, -0.001953125]], dtype=torch.float64).to(dtype)
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return torch.tensor([[0, 1, 2], [3, 100, low if dtype != torch.uint64 else 5]]).to(dtype) if high else None


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        self.tied = self.fc.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.fc(x))


def torch_files() -> None:
    torch.manual_seed(3)
    one = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    save("one.pt", one, {"": one})
    every = {str(dtype).removeprefix("torch."): of_dtype(dtype) for dtype in DTYPES}
    save("dtypes.pt", every, every)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
        codes = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
        save(f"{name}.pt", codes, {"": codes})

    base = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    views = {
        "base": base,
        "transposed": base.T,
        "column": base[:, 2],
        "middle": base[1:3, 2:5],
        "stepped": base[::2, ::3],
        "expanded": base[0, :1].expand(3, 4),
        "scalar": base[3, 5],
        "empty": base[:0],
        "row": base[2],
    }
    save("views.pt", views, views)

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()
    checkpoint = {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameter": net.fc.bias,
        "args": argparse.Namespace(tensor_model_parallel_size=2, lr=1e-3, name="tiny", bf16=True),
        "nested": [torch.ones(2), (torch.zeros(1), collections.defaultdict(list, a=[torch.tensor(5)]))],
        "step": 7,
        "seed": 2**70,
        "numpy": np.random.RandomState(1).get_state()[2],
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
    }
    tensors = {f"model.{name}": tensor for name, tensor in net.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.state.{index}.{name}": tensor for name, tensor in state.items()}
    tensors |= {
        "parameter": net.fc.bias,
        "nested.0": torch.ones(2),
        "nested.1.0": torch.zeros(1),
        "nested.1.1.a.0": torch.tensor(5),
    }
    save("checkpoint.pt", checkpoint, tensors)
    save("checkpoint_protocol5.pt", checkpoint, tensors, pickle_protocol=5)
    save("legacy.pt", checkpoint, tensors, _use_new_zipfile_serialization=False)

    odd = {
        "sparse": torch.eye(2).to_sparse(),
        "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "conjugate": torch.tensor([1 + 1j]).conj(),
        "meta": torch.empty(3, device="meta"),
        "plain": torch.ones(1),
    }
    save("unreadable.pt", odd, {"plain": torch.ones(1)})
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(HERE / "script.pt"))


def numpy_files() -> None:
    arrays = {
        "c.npy": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran.npy": np.asfortranarray(np.arange(24, dtype=np.int16).reshape(2, 3, 4)),
        "big_endian.npy": np.arange(4, dtype=">f8") / 3,
        "big_endian_complex.npy": np.array([1 + 2j, 3 - 4j], dtype=">c8"),
        "bool.npy": np.array([True, False]),
        "half.npy": np.array([1.5, np.inf, np.nan], dtype=np.float16),
        "scalar.npy": np.array(2.5),
        "empty.npy": np.zeros((0, 3), dtype=np.uint8),
    }
    for file, array in arrays.items():
        np.save(HERE / file, array)
        note(
            file,
            {
                "": torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))).reshape(
                    array.shape
                )
            },
        )
    for version in (2, 3):
        with (HERE / f"version{version}.npy").open("wb") as out:
            np.lib.format.write_array(out, arrays["c.npy"], version=(version, 0))
        note(f"version{version}.npy", {"": torch.arange(6, dtype=torch.float32).reshape(2, 3)})
    np.save(HERE / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(HERE / "record.npy", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.save(HERE / "text.npy", np.array(["abc"]))


def safetensors_files() -> None:
    tensors = {str(dtype).removeprefix("torch."): of_dtype(dtype) for dtype in DTYPES if dtype != torch.complex128}
    tensors |= {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4)}
    safetensors.torch.save_file(tensors, HERE / "dtypes.safetensors", metadata={"format": "pt"})
    note("dtypes.safetensors", tensors)


def check_written() -> None:
    """Loads what the Rust writers made of `dtypes.pt` (`written.rs` keeps it) with the real libraries."""
    every = torch.load(HERE / "dtypes.pt")
    for written in (
        torch.load(HERE.parent / "written.pt", weights_only=True),
        safetensors.torch.load_file(HERE.parent / "written.safetensors"),
    ):
        missing = every.keys() - written.keys()
        assert missing <= {"complex128"}, missing
        for name, tensor in written.items():
            assert tensor.dtype == every[name].dtype and tensor.shape == every[name].shape, name
            assert tensor.contiguous().view(torch.uint8).equal(every[name].contiguous().view(torch.uint8)), name
    one = torch.load(HERE.parent / "written_one.pt", weights_only=True)
    assert one.equal(torch.load(HERE / "one.pt")) and one.stride() == (3, 1)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    torch_files()
    numpy_files()
    safetensors_files()
    check_written()
    (HERE / "expected.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
