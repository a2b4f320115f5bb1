"""Single values that a script saves: `save_tensor`, `SingleSave`."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any, ClassVar

import torch

from trainmon.captures.debugger import rank_of_process

_numbers = itertools.count()


def save_tensor(tensor: torch.Tensor, path: str) -> str:
    """Writes a tensor to `<path without its suffix>_<number>.pt` and returns the file's name.

    The numbers count all files of the process. Raises `ValueError` if the directory does not exist or the path contains
    `..`, `TypeError` if it is no tensor. The tensor is copied to the host first.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"save_tensor: expected a tensor, found `{type(tensor).__name__}`")
    base = Path(path)
    if ".." in base.parts:
        raise ValueError(f"save_tensor: `{path}` contains `..`: use the directory's own path")
    if not base.parent.is_dir():
        raise ValueError(f"save_tensor: `{base.parent}` is not a directory")
    target = base.with_name(f"{base.stem}_{next(_numbers)}.pt")
    _write_new(target, lambda file: torch.save(_alone(tensor), file))
    return str(target)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A host copy of the tensor alone, if it is a view of a larger memory: `torch.save` would write all of it."""
    host = tensor.detach().to("cpu")
    if host.layout is not torch.strided or host.is_nested:
        return host
    host = host.contiguous()
    is_part = host.untyped_storage().nbytes() > host.numel() * host.element_size()
    return host.clone() if is_part else host


class SingleSave:
    """Saves values by tag, step, rank and micro-step, in the layout of msprobe's `SingleSave`. One per process."""

    _instance: ClassVar[SingleSave | None] = None
    _is_made: bool

    def __new__(cls, *_args: Any, **_kwargs: Any) -> SingleSave:  # noqa: PYI034  Python 3.10 has no `Self`
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._is_made = False
        return cls._instance

    def __init__(self, dump_path: str | None = None, fmk: str = "pytorch") -> None:
        """`dump_path`: required the first time. `fmk`: msprobe's argument; only `pytorch` is supported."""
        if self._is_made:
            return
        if dump_path is None:
            SingleSave._instance = None
            raise ValueError("SingleSave: `dump_path` is required")
        self._root = Path(dump_path)
        self._step = 0
        self._counts: dict[str, int] = {}
        self._is_made = True

    @classmethod
    def save(cls, data: dict[str, Any]) -> None:
        """Writes each tag's tensor, list or dict of tensors. Raises `ValueError` if a tag or key cannot be a file
        name."""
        self = cls()
        for tag, value in data.items():
            _check_names(tag, value)
        for tag, value in data.items():
            micro = self._counts.get(tag, 0)
            self._counts[tag] = micro + 1
            rank = rank_of_process(None) or 0
            parts = ("data", tag, f"step{self._step}", f"rank{rank}", f"micro_step{micro}")
            directory = self._root.joinpath(*parts)
            directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            told = _save_value(directory, tag, value)
            text = json.dumps({"data": told}, indent=1)
            _write_new(directory / f"{tag}.json", lambda file, text=text: file.write(text.encode()))

    @classmethod
    def save_config(cls, config: dict[str, Any]) -> None:
        """Writes the run's configuration to `configurations.json`."""
        self = cls()
        self._root.mkdir(parents=True, exist_ok=True, mode=0o750)
        text = json.dumps(config, indent=1, default=str)
        _write_new(self._root / "configurations.json", lambda file: file.write(text.encode()))

    @classmethod
    def step(cls) -> None:
        """Ends a step."""
        self = cls()
        self._step += 1
        self._counts.clear()


def _check_names(name: str, value: Any) -> None:
    """Checks before anything is written: a tag or key is part of a file's name, and must not lead to another
    directory."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"SingleSave: `{name}` cannot be a file name")
    if isinstance(value, list | tuple):
        for one in value:
            _check_names(name, one)
    if isinstance(value, dict):
        for key, one in value.items():
            _check_names(f"{name}.{key}", one)


def _save_value(directory: Path, name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _save_one(directory, name, value)
    if isinstance(value, list | tuple):
        return [_save_value(directory, f"{name}.{place}", one) for place, one in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): _save_value(directory, f"{name}.{key}", one) for key, one in value.items()}
    return None


def _save_one(directory: Path, name: str, tensor: torch.Tensor) -> dict[str, Any]:
    import numpy as np

    host = tensor.detach().to("cpu")
    # numpy has no bfloat16 and no float8.
    widened = host.float() if host.dtype.is_floating_point and host.element_size() < 4 else host
    array = widened.numpy()
    _write_new(directory / f"{name}.npy", lambda file: np.save(file, array))
    if not tensor.numel():
        return {"max": None, "min": None, "mean": None, "norm": None, "shape": list(tensor.shape)}
    wide = (widened.abs() if widened.is_complex() else widened).double()
    return {
        "max": wide.max().item(),
        "min": wide.min().item(),
        "mean": wide.mean().item(),
        "norm": wide.norm().item(),
        "shape": list(tensor.shape),
    }


def _write_new(path: Path, write: Any) -> None:
    """Writes a file atomically, follows no link, and makes it readable for the group."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
