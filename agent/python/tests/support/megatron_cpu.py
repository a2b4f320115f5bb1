"""Lets Megatron-core and Megatron-LM's training loop run on CPU with gloo. Call `install` before importing megatron.

Every CUDA entry point Megatron reaches gets its CPU meaning. What this cannot stand in for: the order of streams, CUDA
graphs, fused kernels, fp8, NCCL. `torch.cuda.is_available()` stays False.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

CPU = torch.device("cpu")
_CONSTRUCTORS = [
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "empty_strided",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
]
_NOTHING_TO_DO = [
    "set_device",
    "synchronize",
    "empty_cache",
    "reset_peak_memory_stats",
    "set_stream",
    "ipc_collect",
    "_lazy_init",
    "init",
]
_NO_MEMORY = ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]


def install() -> None:
    """Puts the replacements in place, once."""
    if getattr(install, "done", False):
        return
    install.done = True  # type: ignore[attr-defined]
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    for name in _CONSTRUCTORS:
        _replace(torch, name, _on_cpu)
    _moves()
    _cuda_namespace()
    _generators()
    _process_groups()


def _is_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return (isinstance(device, str) and device.startswith("cuda")) or (
        isinstance(device, int) and not isinstance(device, bool)
    )


def _replace(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrapper(original)))


def _on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return original(*args, **kwargs)

    return made


def _moves() -> None:
    def to(original: Callable[..., Any]) -> Callable[..., Any]:
        def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
            if args and _is_cuda(args[0]):
                args = (CPU, *args[1:])
            if _is_cuda(kwargs.get("device")):
                kwargs["device"] = CPU
            return original(self, *args, **kwargs)

        return moved

    def named(original: Callable[..., Any]) -> Callable[..., Any]:
        def type_of(self: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(self, *args, **kwargs)
            # Megatron compares these names.
            is_name = not args and not kwargs and isinstance(found, str)
            return found.replace("torch.", "torch.cuda.", 1) if is_name and "cuda" not in found else found

        return type_of

    def stays(_original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *_args, **_kwargs: self

    _replace(torch.Tensor, "to", to)
    _replace(torch.Tensor, "type", named)
    _replace(torch.Tensor, "cuda", stays)
    _replace(torch.Tensor, "pin_memory", stays)
    _replace(torch.nn.Module, "cuda", stays)


class Stream:
    """A stream that is always done."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class Event:
    """An event that has happened."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.at = time.perf_counter()

    def record(self, *_args: Any) -> None:
        self.at = time.perf_counter()

    def wait(self, *_args: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: Any) -> float:
        return float(later.at - self.at) * 1e3


class Properties:
    """What Megatron asks of a device."""

    major, minor, name, multi_processor_count, total_memory = 8, 0, "cpu", 1, 24 << 30


class Generators:
    """Whatever the index: the CPU's."""

    def __getitem__(self, _index: Any) -> torch.Generator:
        return torch.default_generator

    def __len__(self) -> int:
        return 1


def _cuda_namespace() -> None:
    cuda: Any = torch.cuda
    for name in _NOTHING_TO_DO:
        setattr(cuda, name, lambda *_args, **_kwargs: None)
    for name in _NO_MEMORY:
        setattr(cuda, name, lambda *_args, **_kwargs: 0)
    stream = Stream()
    # A device, so that `device=torch.cuda.current_device()` allocates on the CPU.
    cuda.current_device = lambda: CPU
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.memory_stats = lambda *_args, **_kwargs: collections.defaultdict(int)
    cuda.mem_get_info = lambda *_args, **_kwargs: (24 << 30, 24 << 30)
    cuda.current_stream = cuda.default_stream = lambda *_args, **_kwargs: stream
    cuda.stream = cuda.device = contextlib.nullcontext
    cuda.Stream, cuda.Event = Stream, Event
    cuda.get_device_properties = lambda *_args, **_kwargs: Properties()
    cuda.get_device_capability = lambda *_args, **_kwargs: (8, 0)
    cuda.get_device_name = lambda *_args, **_kwargs: "cpu"
    cuda.is_current_stream_capturing = lambda: False
    for name in ("FloatTensor", "DoubleTensor", "LongTensor", "IntTensor", "ByteTensor"):
        setattr(cuda, name, getattr(torch, name))
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, lambda *_args, **_kwargs: None)
    cuda.nvtx.range = contextlib.nullcontext


def _generators() -> None:
    cuda: Any = torch.cuda
    cuda.manual_seed = cuda.manual_seed_all = lambda seed: torch.default_generator.manual_seed(int(seed))
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_args, **_kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_args, **_kwargs: torch.set_rng_state(state)
    cuda._lazy_call = lambda call, **_kwargs: call()
    cuda.default_generators = Generators()


def _process_groups() -> None:
    def gloo(original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            if "nccl" in str(kwargs.get("backend")):
                kwargs["backend"] = "gloo"
            if args and isinstance(args[0], str) and "nccl" in args[0]:
                args = ("gloo", *args[1:])
            if kwargs.get("pg_options") is not None:
                kwargs["pg_options"] = None
            kwargs.pop("device_id", None)
            return original(*args, **kwargs)

        return made

    def without_devices(original: Callable[..., Any]) -> Callable[..., Any]:
        def waited(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("device_ids", None)
            return original(*args, **kwargs)

        return waited

    _replace(distributed, "init_process_group", gloo)
    _replace(distributed, "new_group", gloo)
    _replace(distributed, "barrier", without_devices)
